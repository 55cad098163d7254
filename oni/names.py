"""What to say of a name that is not known: the likely one first, then every choice."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

__all__ = ["unknown_name"]

SIMILAR = 0.6
"""Below this similarity (difflib's ratio) a suggestion would mislead."""


def unknown_name(kind: str, name: object, choices: Collection[str], *, of: str = "") -> str:
    """The message for an unknown name.

    Args:
        kind: what it should have been: "preset", "experiment", "method".
        name: what was given.
        choices: what there is.
        of: what the choices belong to, if not everything has the same: "fig2".

    >>> unknown_name("preset", "labtop", ["smoke", "laptop"], of="fig2")
    "unknown preset 'labtop' for fig2; did you mean 'laptop'? Choose from smoke, laptop"
    >>> unknown_name("experiment", "nosuch", ["demo", "fig1"])
    "unknown experiment 'nosuch'; choose from demo, fig1"
    """
    where = f" for {of}" if of else ""
    message = f"unknown {kind} {name!r}{where}"
    if not choices:
        return f"{message}; there are none"
    by_lowercase = {choice.lower(): choice for choice in choices}
    close = get_close_matches(str(name).lower(), by_lowercase, n=1, cutoff=SIMILAR)
    listed = f"hoose from {', '.join(choices)}"
    return f"{message}; did you mean {by_lowercase[close[0]]!r}? C{listed}" if close else f"{message}; c{listed}"
