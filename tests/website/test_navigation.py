"""The navigation has titles, and a long page is several on the site."""

import re
from pathlib import Path

import pytest
import yaml

from oni.recipes.experiments.registry import MEASURED
from website.names import SHORT_TITLES, nav_title
from website.sections import split_page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("id", MEASURED)
def test_experiments_have_titles(id):
    title = nav_title(id)
    assert title != id
    assert title[0].isupper()
    assert re.match(r"(Fig\.|Table|Theorem) ", title) or not re.match(r"fig|table|theorem", id)


def test_short_titles_fit_the_menu():
    assert {id: title for id, title in SHORT_TITLES.items() if len(title) > 30} == {}


def test_sections_hold_all_of_the_page():
    text = (ROOT / "docs" / "benchmarks.md").read_text("utf-8")
    opening, sections = split_page(text)
    assert opening + "".join(f"## {section.title}{section.text}" for section in sections) == text
    assert len({section.name for section in sections}) == len(sections) > 3
    assert all(section.page.startswith(f"# {section.title}\n") for section in sections)
    assert "\n### " not in "".join(section.page for section in sections)


def test_hooks_expand_the_navigation():
    hooks = pytest.importorskip("website.hooks", reason="mkdocs is not installed", exc_type=ImportError)
    # Without mkdocs' own tags, none of which the navigation uses.
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    config = type("Config", (), {"nav": yaml.safe_load(text)["nav"], "docs_dir": str(ROOT / "docs")})()
    hooks.on_config(config)
    entries = {next(iter(section)): next(iter(section.values())) for section in config.nav}
    titles = [next(iter(entry)) for entry in entries["Reproduction"] if isinstance(entry, dict)]
    assert "Fig. 5: ten-layer MLP" in titles
    assert {"Whole networks": "benchmarks/whole-networks.md"} in entries["Benchmarks"]
    assert "EXPERIMENTS" not in str(config.nav)
    assert "SECTIONS" not in str(config.nav)


def test_the_home_page_has_code_and_the_install_line():
    home = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert "pip install" in home
    assert re.search(r"```python\n.*oni\.convert\(.*?```", home, re.DOTALL)
