"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

__all__ = ["render_formulas"]

# What pymdownx.arithmatex makes of $...$ and $$...$$ with the option `generic`.
FORMULA = re.compile(
    r'<span class="arithmatex">\\\((?P<inline>.*?)\\\)</span>'
    r'|<div class="arithmatex">\s*\\\[(?P<display>.*?)\\\]\s*</div>',
    re.DOTALL,
)


LONG = 40
"""Characters of LaTeX within a line, beyond which a formula may be wider than a phone."""


def render_formulas(page: str) -> str:
    r"""Replace every formula of an HTML page.

    >>> render_formulas('<p><span class="arithmatex">\\(x^2\\)</span></p>')[:20]
    '<p><math xmlns="http'
    """

    def render(match: re.Match[str]) -> str:
        kind = "inline" if match["inline"] is not None else "display"
        formula = html.unescape(match[kind]).strip()
        mathml: str = convert(formula, display="inline" if kind == "inline" else "block")
        if kind == "display":
            return f'<div class="formula">{mathml}</div>'
        return f'<span class="long-formula">{mathml}</span>' if len(formula) > LONG else mathml

    return FORMULA.sub(render, page)
