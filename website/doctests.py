"""Doctests as code that can be pasted: no prompts, public names in full, what is printed as comments."""

from __future__ import annotations

import ast
import builtins
import doctest
from collections.abc import Mapping

__all__ = ["Examples"]

IMPORTS = {
    "oni": "import oni",
    "torch": "import torch",
    "nn": "from torch import nn",
    "Tensor": "from torch import Tensor",
    "math": "import math",
}
"""What examples may use without saying where it is from."""
WIDTH = 88


class Examples:
    r"""The examples of one docstring, one after the other: each may use what those before it made.

    Args:
        public: full names, by the short ones that the docstrings of their own modules use.

    >>> examples = Examples({"bake": "oni.bake"})
    >>> print(examples.paste(">>> layer = bake(nn.Linear(2, 2))\n>>> layer.bias is None\nFalse\n"))
    import oni
    from torch import nn
    <BLANKLINE>
    layer = oni.bake(nn.Linear(2, 2))
    layer.bias is None  # False
    >>> print(examples.paste(">>> bake(layer) is layer\nTrue\n"))
    oni.bake(layer) is layer  # True
    """

    def __init__(self, public: Mapping[str, str]) -> None:
        self.public = public
        self.known: set[str] = set()
        """Names that were made or imported so far."""

    def paste(self, example: str) -> str:
        """An example without prompts, with the imports that it needs."""
        parts = doctest.DocTestParser().get_examples(example)
        self.known |= find_assigned("".join(part.source for part in parts))
        lines: list[str] = []
        used: set[str] = set()
        for part in parts:
            public = {short: full for short, full in self.public.items() if short not in self.known}
            source, names = qualify(part.source.rstrip("\n"), public)
            used |= names - self.known
            lines += [*join_output(source, [part.exc_msg.strip()] if part.exc_msg else read_output(part.want))]
        imports = [statement for name, statement in IMPORTS.items() if name in used]
        self.known |= used
        return "\n".join([*imports, *([""] if imports else []), *lines])


def read_output(want: str) -> list[str]:
    """The lines that a doctest expects."""
    return [line for line in want.rstrip("\n").replace("<BLANKLINE>", "").splitlines() if line]


def join_output(source: str, printed: list[str]) -> list[str]:
    """Code and, as comments, what it prints: on one line where there is room."""
    if len(printed) == 1 and "\n" not in source and len(source) + len(printed[0]) < WIDTH:
        return [f"{source}  # {printed[0]}"]
    return [*source.splitlines(), *(f"# {line}" for line in printed)]


def qualify(source: str, public: Mapping[str, str]) -> tuple[str, set[str]]:
    """The source with public names in full, and every name that it takes from elsewhere."""
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    lines = source.splitlines()
    used = set()
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        full = public.get(node.id, node.id)
        used.add(full.partition(".")[0])
        line = lines[node.lineno - 1].encode()
        lines[node.lineno - 1] = (line[: node.col_offset] + full.encode() + line[node.end_col_offset :]).decode()
    return "\n".join(lines), {name for name in used if not hasattr(builtins, name)}


def find_assigned(source: str) -> set[str]:
    """The names that a source makes itself."""
    assigned = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            assigned.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            assigned.add(node.name)
        elif isinstance(node, ast.arg):
            assigned.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            assigned |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return assigned
