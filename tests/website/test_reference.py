"""The reference is made of docstrings, and a public name without one fails."""

import contextlib
import doctest
import io
import json
import re

import pytest

import oni
from website import check, docstrings
from website.reference import Undocumented, render_reference


def test_every_public_name_has_its_place():
    pages = render_reference()
    for module in ("oni.nn", "oni.baselines", "oni.diagnostics"):
        for name in getattr(oni, module.removeprefix("oni.")).__all__:
            assert f"## `{module}.{name}`\n" in pages[f"{module}.md"]
    for name in set(oni.__all__) - {"nn", "baselines", "diagnostics"}:
        assert f"## `oni.{name}`\n" in pages["oni.md"]


def test_nothing_of_restructuredtext_is_left():
    for name, page in render_reference().items():
        text = re.sub(r"```.*?```", "", page, flags=re.DOTALL)
        for remnant in (":func:", ":mod:", ":math:", ".. math", "``", "\n===="):
            assert remnant not in text, f"{remnant} in {name}"


def test_a_name_without_a_docstring(monkeypatch):
    monkeypatch.setattr(oni.convert, "__doc__", None)
    with pytest.raises(Undocumented, match=r"without a docstring: oni\.convert"):
        render_reference()


def test_doctests_become_blocks():
    text = docstrings.to_markdown("So:\n\n>>> 1 + 1\n2\n\nAnd:\n\n.. math:: x\n    + y")
    assert text == "So:\n\n```python\n1 + 1  # 2\n```\n\nAnd:\n\n$$\nx + y\n$$"


def test_examples_can_be_pasted():
    """Those of each name, one after the other, into a new session; what raises is what the example shows."""
    failures = []
    for page in render_reference().values():
        for entry in page.split("\n## ")[1:]:
            name, _, *blocks = entry.split("\n", 1)[0], *re.findall(r"```python\n(.*?)```", entry, re.DOTALL)
            assert ">>>" not in entry
            session = {}
            for block in blocks:
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        exec(block, session)
                except Exception as error:
                    if type(error).__name__ not in block:
                        failures.append(f"{name}: {error!r}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    "name", ["bench", "docstrings", "doctests", "formulas", "names", "reference", "regions", "sections"]
)
def test_examples_in_docstrings(name):
    module = pytest.importorskip(f"website.{name}", exc_type=ImportError)
    attempted = doctest.testmod(module)
    assert attempted.attempted > 0
    assert attempted.failed == 0


def test_a_table_becomes_a_list():
    table = "==== =====\n``a``  one\n       two\n``b``  :math:`x`\n==== ====="
    assert docstrings.to_markdown(table.replace("====", "======")) == "- `a`: one two\n- `b`: $x$"


def test_formulas():
    formulas = pytest.importorskip("website.formulas", reason="latex2mathml is not installed", exc_type=ImportError)
    page = formulas.render_formulas(
        '<p><span class="arithmatex">\\(a &lt; b\\)</span></p><div class="arithmatex">\\[\n\\frac12\n\\]</div>'
    )
    assert "arithmatex" not in page
    assert page.count("<math") == 2
    assert "<mfrac>" in page
    assert "&#x0003C;" in page or "&lt;" in page


def test_a_site_that_loads_from_elsewhere(tmp_path):
    (tmp_path / "index.html").write_text(
        '<script src="https://cdn.example/x.js"></script><img src="missing.png"><a href="https://example.org">fine</a>'
        '<span class="arithmatex">\\(x\\)</span>'
    )
    faults = check.find_faults(tmp_path)
    assert faults == [
        "index.html loads https://cdn.example/x.js",
        "index.html loads missing.png, which is not there",
        "index.html has a formula that was not drawn",
        "search/search_index.js is missing",
        "404.html is missing",
    ]


def test_every_command_and_option():
    from oni.cli import COMMANDS
    from website.commands import render_commands

    page = render_commands()
    for command, example in COMMANDS.items():
        assert f"## `oni {command.__name__}`\n" in page
        assert example in page
    assert "| `--preset` | `laptop` |" in page
    assert "| `CHECKPOINT` |  |" in page


def test_a_notebook_as_a_page(tmp_path):
    from website.notebooks import render_notebook

    picture = {"output_type": "display_data", "data": {"image/png": "cG5n"}}
    text = {"output_type": "stream", "name": "stdout", "text": ["1\n", "2\n"]}
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": [text, picture]},
    ]
    (tmp_path / "look.ipynb").write_text(json.dumps({"cells": cells}))
    page, pictures = render_notebook(tmp_path / "look.ipynb")
    assert page.startswith("# Title\nwords\n\n")
    assert "```python\nprint(1)\n```\n\n```text\n1\n2\n```\n\n![What the code above draws](look-1.png)" in page
    assert pictures == {"look-1.png": b"png"}
