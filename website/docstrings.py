"""Docstrings as Markdown: Google's sections, the few forms of reStructuredText that ours use, and doctests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from website.doctests import Examples

__all__ = ["to_markdown"]

SECTIONS = ("Args", "Returns", "Raises")
ITEM = re.compile(r"^(?P<name>[\w*]+(?:, [\w*]+)*): (?P<text>.*)$")

Link = Callable[[str], str]
"""From the name in a role, such as ``oni.convert``, to Markdown."""


def to_markdown(
    docstring: str, link: Link = lambda name: f"`{name}`", public: Mapping[str, str] = MappingProxyType({})
) -> str:
    r"""A cleaned docstring as Markdown; ``public`` has the full names of those that its examples use.

    >>> print(to_markdown("Twice :math:`x`.\n\nArgs:\n    x: what :func:`f` gives,\n        once."))
    Twice $x$.
    <BLANKLINE>
    **Args**
    <BLANKLINE>
    - `x`: what `f` gives, once.
    """
    lines = docstring.splitlines()
    parts: list[str] = []
    examples = Examples(public)
    while lines:
        if not lines[0].strip():
            lines.pop(0)
        elif lines[0].startswith(">>>"):
            example = examples.paste("\n".join([*take_paragraph(lines), ""]))
            parts.append(f"```python\n{example}\n```")
        elif lines[0].startswith(".. math::"):
            first, *rest = [line.strip() for line in take_paragraph(lines)]
            formula = " ".join([first.removeprefix(".. math::").strip(), *rest]).strip()
            parts.append(f"$$\n{formula}\n$$")
        elif lines[0].startswith("==="):
            parts.append(inline(render_table(take_paragraph(lines)), link))
        elif lines[0].rstrip(":") in SECTIONS and lines[0].endswith(":"):
            title = lines.pop(0).rstrip(":")
            parts.append(f"**{title}**\n\n{inline(render_items(take_indented(lines)), link)}")
        else:
            parts.append(inline(" ".join(line.strip() for line in take_paragraph(lines)), link))
    return "\n\n".join(parts)


def take_paragraph(lines: list[str]) -> list[str]:
    """Remove the lines up to the next empty one, and return them."""
    taken = []
    while lines and lines[0].strip():
        taken.append(lines.pop(0))
    return taken


def take_indented(lines: list[str]) -> list[str]:
    """Remove the lines that belong to a section, and return them without their first four spaces."""
    taken = []
    while lines and (not lines[0].strip() or lines[0].startswith("    ")):
        taken.append(lines.pop(0)[4:])
    return taken


def render_items(lines: list[str]) -> str:
    """The items of a section as a list; a section that has no names is a paragraph."""
    items: list[str] = []
    for line in lines:
        match = ITEM.match(line)
        if match:
            names = ", ".join(f"`{name}`" for name in match["name"].split(", "))
            items.append(f"- {names}: {match['text']}")
        elif line.strip() and items:
            items[-1] += f" {line.strip()}"
        elif line.strip():
            items.append(line.strip())
    return "\n".join(items)


def render_table(lines: list[str]) -> str:
    """A simple table of two columns without a header, as a list."""
    start = len(lines[0].split(" ")[0]) + 1
    items: list[str] = []
    for line in lines[1:-1]:
        if line[:start].strip():
            items.append(f"- {line[:start].strip()}: {line[start:].strip()}")
        else:
            items[-1] += f" {line[start:].strip()}"
    return "\n".join(items)


def inline(text: str, link: Link) -> str:
    r"""Roles and literals within a line.

    >>> inline(r"``steps`` as in :mod:`oni.nn`, with :math:`\sigma`", lambda name: f"[{name}](x)")
    '`steps` as in [oni.nn](x), with $\\sigma$'
    """
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    text = re.sub(r":(?:func|mod|class|meth|data):`([^`]+)`", lambda match: link(match[1]), text)
    return re.sub(r"``(.+?)``", r"`\1`", text)
