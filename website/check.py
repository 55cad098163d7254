"""``python -m website.check site``: that a built site needs nothing from elsewhere and shows what it should."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path

__all__ = ["find_faults"]

LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "video": "src"}
"""What a browser fetches by itself. Links for people may lead anywhere."""


class Loads(HTMLParser):
    """Collects the addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag in LOADED and values.get(LOADED[tag]) and values.get("rel") not in ("canonical", "prev", "next"):
            self.addresses.append(values[LOADED[tag]] or "")


def find_file(site: Path, page: Path, address: str) -> Path:
    """The file at an address of a page."""
    path = re.split(r"[?#]", address)[0]
    return site / path.lstrip("/") if path.startswith("/") else page.parent / path


def find_faults(site: Path) -> list[str]:
    """What is wrong with a site, a line each."""
    faults = []
    for page in sorted(site.rglob("*.html")):
        text = page.read_text("utf-8")
        name = page.relative_to(site).as_posix()
        loads = Loads()
        loads.feed(text)
        for address in loads.addresses:
            if re.match(r"(https?:)?//", address):
                faults.append(f"{name} loads {address}")
            elif not address.startswith("data:") and not find_file(site, page, address).exists():
                faults.append(f"{name} loads {address}, which is not there")
        if 'class="arithmatex"' in text or "<merror" in text:
            faults.append(f"{name} has a formula that was not drawn")
    for name in ("index.html", "search/search_index.js", "404.html"):
        if not (site / name).is_file():
            faults.append(f"{name} is missing")
    return faults


if __name__ == "__main__":
    faults = find_faults(Path(sys.argv[1]))
    print("\n".join(faults) or "the site loads nothing from elsewhere")
    sys.exit(bool(faults))
