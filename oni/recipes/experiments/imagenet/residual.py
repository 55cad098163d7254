"""The rows of Tables 4 and 5, which Figure 7c shares: residual networks with and without ONI."""

from __future__ import annotations

from typing import Any

from oni.recipes.experiments.rows import Options, Row

__all__ = ["BATCH", "CELLS", "DECAYS", "RELEASED", "STEPS", "make_cell"]

BATCH = 256
RATE = 0.1
STEPS = 2
"""Of ONI in residual networks, as the text says."""
KINDS: dict[str, tuple[str, Options]] = {
    "none": ("ResNet w/o BN", {"network_options.norm": "none"}),
    "bn": ("ResNet", {"network_options.norm": "batch"}),
    "var": ("ResNetVar", {"network_options.norm": "batch", "network_options.variant": True}),
}
"""The three architectures, by the word on the command line: title and options."""
DECAYS = ({"weight_decay": 1e-4}, {"weight_decay": 2e-4})
"""Of which Table 5 reports the better."""


def make_cell(kind: str, method: str, **changes: Any) -> Row:
    """A row: one of ``KINDS``, ``"plain"`` or with ``"oni"``."""
    title, options = KINDS[kind]
    if method == "oni":
        options = {**options, "method_options.steps": STEPS}
    name = {"plain": "plain", "oni": "ONI"}[method]
    settings = {"name": f"{kind}/{method}", "title": f"{title}, {name}", "rates": (RATE,), "rate": RATE, **changes}
    return Row(method=method, options=options, **settings)


CELLS = {(kind, method): make_cell(kind, method) for kind in KINDS for method in ("plain", "oni")}
"""The six cells of Table 4."""
PLAIN_RELEASED = make_cell(
    "none",
    "plain",
    name="none/plain-released",
    title="ResNet w/o BN, plain, learning rate of the released code",
    rates=(0.01,),
    rate=0.01,
)
RELEASED = (
    PLAIN_RELEASED,
    Row(
        "none/oni-released",
        "ResNet w/o BN, ONI, steps of the released code",
        "oni",
        {**KINDS["none"][1], "method_options.steps": 3},
        rates=(RATE,),
        rate=RATE,
    ),
)
"""Where the released code has other values than the text."""
