"""The reference: every public name from its docstring. A name without one is an error."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from types import ModuleType
from typing import Any

import oni
from website.docstrings import Link, to_markdown

__all__ = ["Undocumented", "render_reference"]

INTRODUCTIONS = {
    "oni": "The names of the package itself. All you need is `import oni`.",
    "oni.nn": "Drop-in layers: torch's own signatures, and the options of [`oni.orthogonal`](oni.md#oniorthogonal) as "
    "keywords. `groups` has the same meaning as in torch; groups of rows within a weight are called `row_groups`. "
    "There is also an activation for 1-Lipschitz networks.",
    "oni.baselines": "The methods that the paper compares with and torch does not have.",
    "oni.diagnostics": "How orthogonal weights and models are, and the effects.",
}


class Undocumented(Exception):
    """Public names without a docstring."""


def render_reference() -> dict[str, str]:
    """The pages of the reference, by file name.

    Raises:
        Undocumented: naming every public name that has no docstring.
    """
    modules = {name: oni if name == "oni" else getattr(oni, name.removeprefix("oni.")) for name in INTRODUCTIONS}
    names = {
        name: [key for key in module.__all__ if not isinstance(getattr(module, key), ModuleType)]
        for name, module in modules.items()
    }
    places = {
        f"{module}.{key}": f"{module}.md#{anchor(f'{module}.{key}')}" for module, keys in names.items() for key in keys
    }
    missing = [
        f"{module}.{key}"
        for module, keys in names.items()
        for key in keys
        if not own_docstring(getattr(modules[module], key))
    ]
    if missing:
        raise Undocumented(f"public names without a docstring: {', '.join(missing)}")
    link = make_link(places)
    public = {full.rpartition(".")[2]: full for full in reversed(places)}
    return {
        f"{module}.md": render_module(module, modules[module], keys, link, public) for module, keys in names.items()
    }


def make_link(places: dict[str, str]) -> Link:
    """From the name in a role to a link to its place; names that are not public stay code."""

    def link(name: str) -> str:
        for full in (name, f"oni.{name}", f"oni.diagnostics.{name}", f"oni.baselines.{name}"):
            if full in places:
                return f"[`{name}`]({places[full]})"
        return f"`{name}`"

    return link


def anchor(name: str) -> str:
    """The anchor that the heading of a name gets.

    >>> anchor("oni.diagnostics.operator_norm")
    'onidiagnosticsoperator_norm'
    """
    return name.lower().replace(".", "")


def render_module(name: str, module: ModuleType, keys: list[str], link: Link, public: dict[str, str]) -> str:
    """The page of one module."""
    parts = [f"# {name}", INTRODUCTIONS[name]]
    parts += [render_name(f"{name}.{key}", getattr(module, key), link, public) for key in keys]
    return "\n\n".join(parts) + "\n"


def render_name(name: str, value: Any, link: Link, public: dict[str, str]) -> str:
    """A function or class: heading, signature, docstring, and the attributes of a class that holds results."""
    text = to_markdown(own_docstring(value), link, public)
    parts = [f"## `{name}`", f"```python\n{format_signature(name, value)}\n```", text]
    if inspect.isclass(value) and dataclasses.is_dataclass(value):
        parts.append(render_attributes(value, link))
    return "\n\n".join(parts)


def own_docstring(value: Any) -> str:
    """The docstring written for it: neither inherited nor made by dataclass."""
    text = value.__doc__ or ""
    if inspect.isclass(value) and text.startswith(f"{value.__name__}("):
        return ""
    return inspect.cleandoc(text)


def format_signature(name: str, value: Any) -> str:
    """The signature on one line, or one parameter a line where that is too long.

    >>> def f(x: int, *, much: str = "") -> None: ...
    >>> format_signature("oni.f", f)
    "oni.f(x: int, *, much: str = '') -> None"
    """
    signature = inspect.signature(value)
    line = f"{name}{signature}".replace(" -> 'None'", " -> None")
    for parameter in signature.parameters.values():
        if isinstance(parameter.annotation, str):
            line = line.replace(f"'{parameter.annotation}'", parameter.annotation)
    if isinstance(signature.return_annotation, str):
        line = line.replace(f"'{signature.return_annotation}'", signature.return_annotation)
    if len(line) <= 88:
        return line
    opening, rest = line.split("(", 1)
    arguments, ending = rest.rsplit(")", 1)
    return f"{opening}(\n{textwrap.indent(split_arguments(arguments), '    ')}\n){ending}"


def split_arguments(arguments: str) -> str:
    """One argument a line, without cutting brackets.

    >>> print(split_arguments("x: tuple[int, int], *, y: int = 0"))
    x: tuple[int, int],
    *,
    y: int = 0,
    """
    lines, depth = [""], 0
    for character in arguments:
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            lines.append("")
        else:
            lines[-1] += character
    return "\n".join(f"{line.strip()}," for line in lines)


def render_attributes(kind: type, link: Link) -> str:
    """The fields and properties of a class, with the strings that stand below them in its source."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    items = []
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            text = ""
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = str(following.value.value)
            items.append((node.target.id, text))
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            items.append((node.name, ast.get_docstring(node) or ""))
    lines = [f"- `{name}`" + (f": {to_markdown(text, link)}" if text else "") for name, text in items]
    return "**Attributes**\n\n" + "\n".join(lines)
