"""The user's own networks, methods and experiments: imported because the user names them, never because a folder does.

A name is ``package.module:attribute``; modules of the current folder count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from oni.names import unknown_name

__all__ = ["import_own", "is_own"]


def is_own(name: str) -> bool:
    """Whether a name stands for the user's own code: ``package.module:Network``."""
    return ":" in name


def import_own(kind: str, name: str, is_fit: Callable[[Any], bool], expected: str) -> Any:
    """Import ``package.module:attribute``.

    Args:
        kind: what it is, for errors: ``"network"``, ``"method"``, ``"experiment"``.
        name: its name.
        is_fit: whether a value is of that kind.
        expected: what such a value is, in words.
    """
    module_name, _, attribute = name.partition(":")
    example = "Network" if kind == "network" else kind.upper()
    if not module_name or not attribute:
        raise ValueError(f"{kind} {name!r}: write package.module:{example}")
    if module_name.endswith(".py") or not all(part.isidentifier() for part in module_name.split(".")):
        raise ValueError(
            f"{kind} {name!r}: {module_name!r} is not a module name; start oni in the folder of the file, and write "
            f"my_file:{example} for my_file.py"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"{kind} {name!r}: no module {error.name!r}; install it, or start oni in the folder that contains it"
        ) from None
    choices = [key for key, value in vars(module).items() if is_fit(value) and not key.startswith("_")]
    if not hasattr(module, attribute):
        raise ValueError(unknown_name(kind, attribute, choices, of=module_name))
    value = getattr(module, attribute)
    if not is_fit(value):
        raise ValueError(f"{kind} {name!r} must be {expected}, got {type(value).__name__}")
    return value
