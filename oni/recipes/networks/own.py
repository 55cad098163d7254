"""Networks of the user's own, imported because the user names them, never because a run folder does."""

from __future__ import annotations

import hashlib
import inspect
import sys
from importlib import import_module
from pathlib import Path

from oni.names import unknown_name
from oni.recipes.networks.registry import NETWORKS

__all__ = ["is_own", "register_network", "source_sha256"]


def is_own(name: str) -> bool:
    """Whether a name stands for the user's own code: ``package.module:Network``."""
    return ":" in name


def register_network(name: str) -> None:
    """Import ``package.module:Network``, so that a configuration can name it. Modules of the current folder count.

    ``Network`` is called with the configuration's ``network_options`` and returns a module from images (n, channels,
    height, width) to logits (n, classes).
    """
    if name in NETWORKS:
        return
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"network {name!r}: write package.module:Network")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ValueError(
            f"network {name!r}: no module {error.name!r}; install it, or start oni in the folder that holds it"
        ) from None
    network = getattr(module, attribute, None)
    if not callable(network):
        choices = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(unknown_name("network", attribute, choices, of=module_name))
    NETWORKS[name] = network


def source_sha256(name: str) -> str | None:
    """The digest of the file that holds the user's own network; ``None`` for ours and where there is no file."""
    if not is_own(name):
        return None
    try:
        file = inspect.getsourcefile(NETWORKS[name])
    except TypeError:
        return None
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
