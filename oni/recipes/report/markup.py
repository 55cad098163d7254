"""HTML in which every string is text, unless it was made here."""

from __future__ import annotations

from html import escape

__all__ = ["Markup", "element", "joined"]

WITHOUT_END = {"br", "img", "meta"}


class Markup(str):
    """HTML that goes into a page as it is."""


def element(name: str, /, *content: str, **attributes: str) -> Markup:
    """An element; strings in it that are not :class:`Markup` are escaped, and so are attributes.

    >>> print(element("td", "a < b", element("br"), class_="number", data_of='"x"'))
    <td class="number" data-of="&quot;x&quot;">a &lt; b<br></td>
    """
    given = "".join(f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    return Markup(f"<{name}{given}>" if name in WITHOUT_END else f"<{name}{given}>{joined(*content)}</{name}>")


def joined(*content: str, between: str = "") -> Markup:
    """One after the other.

    >>> print(joined("<", element("b", "x"), between=", "))
    &lt;, <b>x</b>
    """
    return Markup(between.join(part if isinstance(part, Markup) else escape(part) for part in content))
