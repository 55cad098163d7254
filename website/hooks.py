"""What mkdocs calls while it builds the site (`hooks` in mkdocs.yml)."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # mkdocs loads this file by its path

from mkdocs.config.defaults import MkDocsConfig  # noqa: E402
from mkdocs.exceptions import PluginError  # noqa: E402
from mkdocs.structure.files import File, Files  # noqa: E402
from mkdocs.structure.pages import Page  # noqa: E402

from oni.recipes.experiments.registry import MEASURED  # noqa: E402
from website.commands import render_commands  # noqa: E402
from website.formulas import render_formulas  # noqa: E402
from website.names import nav_title  # noqa: E402
from website.notebooks import render_notebook  # noqa: E402
from website.reference import Undocumented, render_reference  # noqa: E402
from website.sections import Section, list_links, split_page  # noqa: E402

__all__ = ["on_config", "on_files", "on_page_content", "on_page_markdown"]

FROM_ELSEWHERE = {
    "benchmarks-method.md": "benchmarks/README.md",
    "contributing-code.md": "CONTRIBUTING.md",
    "reference/changelog.md": "CHANGELOG.md",
}
"""Pages of the site that are files of the repository."""
SPLIT = "benchmarks.md"
"""A page of docs/ that is one page for each section on the site: on a phone it was 17,500 pixels long."""
LINK = re.compile(r"(?<=\]\()(?P<target>(?!\w+:)[^)#\s]+)|(?<= src=\")(?P<source>[^\"#]+)")
SHOWN = {".png", ".svg", ".jpg", ".json", ".txt", ".html"}
"""What a browser shows as it is; everything else is given to it as text."""


def on_config(config: MkDocsConfig) -> None:
    """Put the pages of experiments and sections where the navigation says ``EXPERIMENTS`` and ``SECTIONS``."""
    folder = Path(config.docs_dir, "reproduction")
    pages = {
        "EXPERIMENTS": [{nav_title(id): f"reproduction/{id}.md"} for id in MEASURED if (folder / f"{id}.md").exists()],
        "SECTIONS": [{section.title: uri} for uri, section in read_sections().items()],
    }

    def expand(entries: list[Any]) -> list[Any]:
        expanded: list[Any] = []
        for entry in entries:
            if isinstance(entry, str) and entry in pages:
                expanded += pages[entry]
            elif isinstance(entry, dict):
                expanded.append(
                    {key: expand(value) if isinstance(value, list) else value for key, value in entry.items()}
                )
            else:
                expanded.append(entry)
        return expanded

    config.nav = expand(config.nav or [])


def read_sections() -> dict[str, Section]:
    """The sections of the page that is split, by the addresses of their pages."""
    _, sections = split_page((ROOT / "docs" / SPLIT).read_text("utf-8"))
    return {f"{Path(SPLIT).stem}/{section.name}.md": section for section in sections}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the code or are files of the repository."""
    try:
        pages = {f"reference/{name}": text for name, text in render_reference().items()}
    except Undocumented as error:
        raise PluginError(str(error)) from None
    pages["reference/commands.md"] = render_commands()
    pages |= {uri: (ROOT / path).read_text("utf-8") for uri, path in FROM_ELSEWHERE.items()}
    pages |= {uri: section.page for uri, section in read_sections().items()}
    pictures: dict[str, bytes] = {}
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        text, drawn = render_notebook(path)
        pages[f"examples/{path.stem}.md"] = text
        pictures |= {f"examples/{name}": content for name, content in drawn.items()}
    everything: dict[str, str | bytes] = {**pages, **pictures}
    for uri, content in everything.items():
        files.append(File.generated(config, uri, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Take along what a page links to outside of docs/: pictures and numbers in results/, examples, source files."""
    own = page.file.src_uri
    docs = Path(config.docs_dir)
    base = (ROOT / FROM_ELSEWHERE[own] if own in FROM_ELSEWHERE else docs / own).parent
    if own in read_sections():
        base = (docs / SPLIT).parent
    elif own == SPLIT:
        opening, sections = split_page(markdown)
        markdown = opening + list_links(Path(SPLIT).stem, sections)

    pages = {ROOT / path: uri for uri, path in FROM_ELSEWHERE.items()}

    def take_along(match: re.Match[str]) -> str:
        target = Path(os.path.normpath(base / match[0]))
        if target in pages:
            uri = pages[target]
        elif target.is_relative_to(docs):
            uri = target.relative_to(docs).as_posix()
        elif target.is_file():
            uri = f"files/{target.relative_to(ROOT).as_posix()}" + ("" if target.suffix in SHOWN else ".txt")
            if uri not in files.src_uris:
                files.append(File.generated(config, uri, abs_src_path=str(target)))
        else:
            return match[0]  # mkdocs says that it is broken
        return os.path.relpath(PurePosixPath(uri), PurePosixPath(own).parent)

    return LINK.sub(take_along, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Draw the formulas."""
    return render_formulas(html)
