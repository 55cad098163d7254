"""Parts of a page that are written from ``results/``: everything between two comments.

::

    <!-- results: number {"id": "fig6", "row": "20 layers, ONI", "column": "test, end"} -->28.94 ± 6.75<!-- end -->

The name says which function writes it, the JSON is its arguments. A region on lines of its own is a block.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from oni.files import write_atomically
from oni.names import unknown_name
from website.bench import BENCH
from website.certified import CERTIFIED
from website.headlines import HEADLINES
from website.measured import MEASURED
from website.pictures import OVERVIEW
from website.scale import SCALE

__all__ = ["WRITERS", "fill", "pages", "write_regions"]

WRITERS: Mapping[str, Callable[..., str]] = {**MEASURED, **BENCH, **HEADLINES, **SCALE, **CERTIFIED, **OVERVIEW}
"""Each is called with the folder of results and the arguments of the region, and returns Markdown."""

REGION = re.compile(
    r"(?P<open><!-- results: (?P<name>[\w-]+) ?(?P<arguments>\{.*?\})? -->)(?P<text>.*?)(?P<close><!-- end -->)",
    re.DOTALL,
)


def fill(page: str, results: Path, writers: Mapping[str, Callable[..., str]] = WRITERS) -> str:
    """The page with every region written anew.

    >>> fill('In <!-- results: n {"of": 3} -->2<!-- end --> steps', Path(), {"n": lambda results, of: str(of)})
    'In <!-- results: n {"of": 3} -->3<!-- end --> steps'
    """

    def write(match: re.Match[str]) -> str:
        if match["name"] not in writers:
            raise ValueError(unknown_name("region", match["name"], list(writers)))
        arguments: dict[str, Any] = json.loads(match["arguments"] or "{}")
        text = writers[match["name"]](results, **arguments).strip("\n")
        between = f"\n\n{text}\n\n" if match["text"].startswith("\n") else text
        return f"{match['open']}{between}{match['close']}"

    return REGION.sub(write, page)


def pages(root: Path) -> list[Path]:
    """The pages that people write: README and everything in docs/ but the pages of the experiments."""
    written = [path for path in (root / "docs").rglob("*.md") if path.parent != root / "docs" / "reproduction"]
    return [root / "README.md", *sorted(written)]


def write_regions(root: Path) -> None:
    """Write every region of every page."""
    for path in pages(root):
        before = path.read_text("utf-8")
        after = fill(before, root / "results")
        if after != before:
            write_atomically(path, after)
