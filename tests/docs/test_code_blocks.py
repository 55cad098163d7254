"""Every block of Python in the pages that promise it runs, in order, as a reader would run them."""

import importlib.util
import re
from pathlib import Path

import pytest

PAGES = [Path(__file__).parents[2] / "docs" / "models.md"]


def python_blocks(page):
    return re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = python_blocks(page)
    assert len(blocks) > 4
    names = {}
    for block in blocks:
        packages = re.findall(r"^(?:from|import) (\w+)", block, re.MULTILINE)
        if all(importlib.util.find_spec(package) for package in packages):
            exec(compile(block, str(page), "exec"), names)
    assert (tmp_path / "model.pt").exists()
