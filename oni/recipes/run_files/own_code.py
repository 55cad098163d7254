"""Networks and methods of the user's own, which a configuration names as ``package.module:attribute``."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oni.recipes.methods import METHODS, Method
from oni.recipes.networks.registry import NETWORKS
from oni.recipes.own import import_own, is_own

__all__ = ["REGISTRIES", "register_own", "source_sha256"]

REGISTRIES: Mapping[str, dict[str, Any]] = {"network": NETWORKS, "method": METHODS}
"""Where the user's own networks and methods are registered."""


def register_own(kind: str, name: str) -> None:
    """Import a network or a method, so that a configuration can name it.

    A network is called with the configuration's ``network_options`` and returns a module from images (n, channels,
    height, width) to logits (n, classes). A method is an `oni.recipes.methods.Method`.
    """
    if name in REGISTRIES[kind]:
        return
    if kind == "network":
        NETWORKS[name] = import_own(kind, name, callable, "a class or function")
    else:
        METHODS[name] = import_own(kind, name, lambda value: isinstance(value, Method), "a Method")


def source_sha256(kind: str, name: str) -> str | None:
    """The digest of the file that holds the user's own network or method; ``None`` for ours and where there is none."""
    if not is_own(name):
        return None
    try:
        file = inspect.getsourcefile(NETWORKS[name] if kind == "network" else sys.modules[name.partition(":")[0]])
    except TypeError:
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
