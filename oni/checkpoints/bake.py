"""``oni bake``: from the checkpoint of a converted model to that of the plain architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from oni.checkpoints.files import read, state_dicts, write
from oni.checkpoints.matrices import why_too_long, why_unreadable
from oni.files import check_writable
from oni.models.bake_state_dict import bake_state_dict, find_proxies
from oni.names import unknown_name
from oni.terminal import printable

__all__ = ["bake"]

SUFFIXES = (".pt", ".pth", ".safetensors")
CENTRING = {"auto": "auto", "true": True, "false": False}


def bake(path: Path, out: Path, key: str | None = None, **given: Any) -> None:
    """Read, bake, write; options that are ``None`` are those that were saved."""
    if out.suffix not in SUFFIXES:
        raise ValueError(f"--out {out}: the name must end in {', '.join(SUFFIXES)}")
    if out.exists() and path.exists() and out.samefile(path):
        raise ValueError(f"--out {out} is the checkpoint itself, which training continues from; choose another file")
    check_writable(out)
    options = read_options({name: value for name, value in given.items() if value is not None})
    try:
        state = choose_state(state_dicts(read(path)), key)
        check_proxies(state, options.get("steps"))
        baked = bake_state_dict(state, **options)
    except ValueError as error:
        text = str(error)
        if "no options were saved" in text:
            text += " (as flags: --steps 5, --scale relu, ...)"
        raise ValueError(text if text.startswith(str(path)) else f"{path}: {text}") from None
    write(baked, out)
    count = sum(1 for _ in find_proxies(state))
    print(f"{printable(str(out))}: {len(baked)} tensors, {count} of them orthogonal weights baked")


def check_proxies(state: Mapping[str, Tensor], steps: int | None) -> None:
    """Refuse proxies of which no weight can be computed, or only in more time and memory than there is."""
    for proxy in find_proxies(state):
        chosen = steps if steps is not None else proxy.saved.steps if proxy.saved is not None else 0
        why = why_unreadable(proxy.Z) or why_too_long(chosen)
        if why:
            raise ValueError(f"{proxy.weight}: its proxy can't be baked: {why}")


def read_options(options: dict[str, Any]) -> dict[str, Any]:
    """Options from the command line, as the library takes them."""
    if "center" in options:
        if options["center"] not in CENTRING:
            raise ValueError(f"--center must be auto, true or false, got {options['center']!r}")
        options["center"] = CENTRING[options["center"]]
    if "scale" in options:
        options["scale"] = number_or_name(options["scale"])
    return options


def choose_state(states: dict[str, dict[str, Tensor]], key: str | None) -> dict[str, Tensor]:
    """The state dict to bake: the one named by ``key``, or the only one that holds proxies."""
    if key is not None:
        if key not in states:
            raise ValueError(f"--key: {unknown_name('state dict', key, states)}")
        return states[key]
    candidates = {where: state for where, state in states.items() if any(True for _ in find_proxies(state))}
    if len(candidates) > 1:
        raise ValueError(f"it contains several state dicts; choose one with --key: {', '.join(map(repr, candidates))}")
    return next(iter(candidates.values()), {})


def number_or_name(text: str) -> float | str:
    """A number where the text is one."""
    try:
        return float(text)
    except ValueError:
        return text
