"""A long page as several pages of the site: one for each of its sections. On GitHub it stays one page."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["Section", "list_links", "split_page"]


class Section(NamedTuple):
    """A part of a page, from one heading of the second level to the next."""

    title: str
    text: str

    @property
    def name(self) -> str:
        """For the file of its page.

        >>> Section("ImageNet's networks", "").name
        'imagenets-networks'
        """
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower().replace("'", "")).strip("-")

    @property
    def page(self) -> str:
        """The section as a page: its headings go up by a level."""
        return f"# {self.title}\n" + re.sub(r"^##(#+ )", r"#\1", self.text, flags=re.MULTILINE)


def split_page(markdown: str) -> tuple[str, list[Section]]:
    r"""What stands before the first section, and the sections.

    >>> split_page("# Title\n\nText.\n\n## One\n\nMore.\n")
    ('# Title\n\nText.\n\n', [Section(title='One', text='\n\nMore.\n')])
    """
    opening, *parts = re.split(r"^## (.+)$", markdown, flags=re.MULTILINE)
    return opening, [Section(title, text) for title, text in zip(parts[::2], parts[1::2], strict=True)]


def list_links(folder: str, sections: list[Section]) -> str:
    """Links to the pages of the sections."""
    return "\n".join(f"- [{section.title}]({folder}/{section.name}.md)" for section in sections) + "\n"
