"""Every block of code in README and docs/: Python runs, in order, and of commands it is checked that they exist."""

import importlib.util
import os
import re
import shlex
from pathlib import Path
from unittest import mock

import pytest
import typer.main
import yaml
from torch.nn.parallel import DistributedDataParallel

from oni.cli import application
from oni.recipes.run_files.config import Config

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
BLOCK = re.compile(
    r"^(?P<fence>`{3,})(?P<language>\w*)(?P<rest>[^\n]*)\n(?P<code>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL
)
GIVEN = re.compile(r"^<!-- given\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
"""What a page takes as given, run before its blocks and not shown."""


def blocks(page, *languages):
    found = [match for match in BLOCK.finditer(page.read_text("utf-8")) if match["language"] in languages]
    return [(match["code"], match["rest"]) for match in found]


KEPT = []
"""One that ends right after its backward pass may wait for ever for a thread of gloo's, which waits for the GIL."""


def name(page):
    return page.relative_to(ROOT).as_posix()


@mock.patch.dict(os.environ)
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name)
def test_python(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = {"__name__": "page"}
    for given in GIVEN.findall(page.read_text("utf-8")):
        exec(compile(given, f"{page}, given", "exec"), names)
    for number, (code, rest) in enumerate(blocks(page, "python"), 1):
        if title := re.search(r'title="([^"]+)"', rest):
            (tmp_path / title[1]).write_text(code, "utf-8")
        packages = re.findall(r"^(?:from|import) (\w+)", code, re.MULTILINE)
        if all(importlib.util.find_spec(package) for package in packages):
            exec(compile(code, f"{page}, block {number}", "exec"), names)
    KEPT.extend(value for value in names.values() if isinstance(value, DistributedDataParallel))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")], ids=name)
def test_configurations(page):
    for code, _ in blocks(page, "yaml"):
        Config(**yaml.safe_load(code))


@pytest.fixture(scope="module")
def program():
    return typer.main.get_command(application())


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "sh")], ids=name)
def test_commands(page, program):
    for code, _ in blocks(page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            command = []
            for word in [*shlex.split(line, comments=True), ";"]:
                if word in ("&", "&&", ";", "|"):
                    check_command(command, program)
                    command = []
                else:
                    command.append(word)


def check_command(words, program):
    """That a command exists, with these options and values; nothing is run."""
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if not words:
        return
    if words[0] == "torchrun":
        words = words[words.index("-m") + 1 :]
    tool, *arguments = words
    if tool in ("oni", ".venv/bin/oni"):
        command = program.commands[arguments[0]]
        command.make_context(f"oni {arguments[0]}", [*arguments[1:]])
    elif tool == "make":
        target = next(word for word in arguments if "=" not in word)
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
    elif tool in ("pip", ".venv/bin/pip"):
        assert arguments[0] == "install"
        extras = re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
        for extra in re.findall(r"\[([\w,]+)\]", " ".join(arguments)):
            assert set(extra.split(",")) <= set(extras)
    elif tool == "python":
        assert arguments[0] == "-m" or (ROOT / arguments[0]).is_file()
    else:
        assert tool in ("git", "cd", ".ci/run", "tensorboard"), f"what is {tool!r}?"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_code_is_of_a_kind_that_is_not_run(page):
    languages = {match["language"] for match in BLOCK.finditer(page.read_text("utf-8"))}
    assert languages <= {"python", "sh", "yaml", "text"}
