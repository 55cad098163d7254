"""``summary``: every layer of a model, what was done to it, and why not."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oni.diagnostics.spectrum import orthogonality, spectrum
from oni.models.proxied import check_model
from oni.models.select import LEFT_ALONE, Weight, check_whole, find_proxied_weights, find_weights
from oni.newton.matrix import is_tall
from oni.nn.from_proxy import FromProxy
from oni.nn.parametrization import Orthogonal
from oni.torch_internals import has_values

__all__ = ["LayerSummary", "Summary", "summary"]

HEADINGS = ("layer", "kind", "shape", "steps", "scale", "delta", "sigma", "left alone because")
TARGET_HEADINGS = (*HEADINGS[:4], "bound", "schedule", *HEADINGS[4:7], "target", "would take", HEADINGS[-1])
"""Where a weight has a target."""
GROUPS, START = "groups", "start"
"""Shown where a weight has several groups, and where one had a start."""
WORDS = ("would take", "left alone because")
SMALL = 0.1
"""Below it, a signal that passes through many layers loses the directions of such singular values."""
RANK_LOST = 1e-5
"""Below it, or below an epsilon, a start would have to replace what a weight lacks, or centring takes it away."""


@dataclass(frozen=True)
class LayerSummary:
    """One weight. What does not apply to a layer left alone, or has no value on the meta device, is ``None``."""

    layer: str
    kind: str
    shape: tuple[int, ...] | None
    steps: int | None
    scale: tuple[float, float] | None
    """Smallest and largest factor of its filters."""
    delta: float | None
    """Distance of the unscaled weight from orthonormal rows, or columns where it is tall."""
    sigma: tuple[float, float] | None
    """Smallest and largest singular value of the unscaled weight."""
    why: str
    """Why it was left alone; empty if it is orthogonal."""
    bound: str | None = None
    schedule: str | None = None
    target: float | None = None
    """The ``sigma_min`` that was asked for."""
    start: str = ""
    """How its proxy started, if not as the weight was."""
    groups: int | None = None
    """In how many groups its rows are orthogonalised, each alone: gates, or queries, keys and values."""
    noise: float = RANK_LOST
    """Singular values below it are as good as zero in the weight's dtype."""
    would_take: str = ""
    """What :func:`oni.retune` would choose for the target, or why it can't; empty if it would change nothing."""

    @property
    def misses_target(self) -> bool:
        """Whether the smallest singular value is below the target now."""
        return self.target is not None and self.sigma is not None and self.sigma[0] < self.target

    @property
    def has_small_values(self) -> bool:
        """Whether its steps leave small singular values, which an orthogonal start would not have."""
        if self.target is not None or not self.steps or self.start or self.sigma is None:
            return False
        low, high = self.sigma
        # Where all are small, steps or bound are to blame.
        return self.noise < low < min(SMALL, high / 2)

    def cells(self) -> dict[str, str]:
        """As text, by heading."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "shape": "" if self.shape is None else " x ".join(map(str, self.shape)),
            "steps": "" if self.steps is None else str(self.steps),
            "bound": self.bound or "",
            "schedule": self.schedule or "",
            GROUPS: "" if self.groups is None else str(self.groups),
            START: self.start,
            "scale": "" if self.scale is None else format_bounds(*self.scale),
            "delta": "" if self.delta is None else f"{self.delta:.3f}",
            "sigma": "" if self.sigma is None else format_bounds(*self.sigma),
            "target": "" if self.target is None else f"{self.target:g}",
            "would take": self.would_take,
            "left alone because": self.why,
        }


def format_bounds(low: float, high: float) -> str:
    return f"{low:.3f}" if round(low, 3) == round(high, 3) else f"{low:.3f} - {high:.3f}"


@dataclass(frozen=True)
class Summary:
    """A table of a model's layers; ``rows`` holds it as data, ``print`` shows it."""

    rows: tuple[LayerSummary, ...]

    def __str__(self) -> str:
        if sys.stdout.isatty():
            try:
                return self._draw()
            except ModuleNotFoundError:
                pass
        headings = self.headings()
        table = [headings, *([row.cells()[heading] for heading in headings] for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:], "", self.headline()])

    def headings(self) -> tuple[str, ...]:
        """The columns: those of targets, groups and the start only where there is one."""
        headings = list(HEADINGS if all(row.target is None for row in self.rows) else TARGET_HEADINGS)
        if any(row.start for row in self.rows):
            headings.insert(headings.index("scale"), START)
        if any(row.groups is not None and row.groups > 1 for row in self.rows):
            headings.insert(headings.index("steps"), GROUPS)
        return tuple(headings)

    def headline(self) -> str:
        """How many weights are orthogonalised, and how far, in a sentence."""
        sigmas = [row.sigma for row in self.rows if row.sigma is not None]
        orthogonal = sum(not row.why for row in self.rows)
        count = f"{orthogonal} of {len(self.rows)} weights are orthogonalised"
        if len(sigmas) < orthogonal:
            return f"{count}; {orthogonal - len(sigmas)} of them are on the meta device and have no values yet."
        if not sigmas:
            return count + "."
        low, high = min(low for low, _ in sigmas), max(high for _, high in sigmas)
        sentence = f"{count}; their singular values, before scale: {format_bounds(low, high)}."
        if missed := sum(row.misses_target for row in self.rows):
            sentence += f" Below their target: {missed}; oni.retune(model) chooses again."
        if small := sum(row.has_small_values for row in self.rows):
            sentence += (
                f" {small} of them {'have' if small > 1 else 'has'} singular values below {SMALL}, which can keep a "
                'deep network from training; unless it is pretrained, convert it with start="orthogonal".'
            )
        return sentence

    def __rich__(self) -> Any:
        from rich.table import Table

        table = Table(title=self.headline(), title_justify="left", box=None, header_style="bold")
        headings = self.headings()
        for heading in headings:
            numbers = heading in (GROUPS, "steps", "delta", "target")
            table.add_column(heading, justify="right" if numbers else "left", no_wrap=heading not in WORDS)
        for row in self.rows:
            cells = row.cells()
            table.add_row(*(cells[heading] for heading in headings), style="dim" if row.why else None)
        return table

    def _draw(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, force_terminal=True).print(self)
        return text.getvalue().rstrip("\n")


def summary(model: nn.Module) -> Summary:
    """List every layer with a weight matrix: what was done to it, how orthogonal it is, or why it was left alone.

    >>> from oni.nn import Linear
    >>> print(summary(nn.Sequential(Linear(8, 4, steps=12), nn.ReLU(), nn.Embedding(3, 2))))
    layer  kind       shape  steps  scale  delta  sigma  left alone because
    ---------------------------------------------------------------------------------------
    0      Linear     4 x 8  12     1.000  0.000  1.000
    2      Embedding  3 x 2                              an embedding is a table, not a map
    <BLANKLINE>
    1 of 2 weights are orthogonalised; their singular values, before scale: 1.000.
    """
    check_model(model)
    reasons = getattr(model, LEFT_ALONE, {})
    proxied = {
        (id(weight.module), weight.name): (weight, parametrization)
        for weight, parametrization in find_proxied_weights(model)
        if parametrization.orthogonal
    }
    rows = []
    for weight in find_weights(model):
        _, parametrization = proxied.pop((id(weight.module), weight.name), (weight, None))
        if parametrization is None:
            rows.append(plain_row(weight, reasons))
        else:
            rows.append(orthogonal_row(weight, parametrization))
    # Parameters that convert would not touch, made orthogonal by hand.
    rows += [orthogonal_row(weight, parametrization) for weight, parametrization in proxied.values()]
    return Summary(tuple(rows))


def orthogonal_row(weight: Weight, parametrization: FromProxy) -> LayerSummary:
    Z = weight.module.parametrizations[weight.name].original  # type: ignore[union-attr, index]
    check_whole(weight, Z)
    options = parametrization.options if isinstance(parametrization, Orthogonal) else None
    measured = measure(parametrization, Z) if has_values(Z) else {}
    return LayerSummary(
        layer=weight.title,
        kind=layer_kind(weight),
        shape=parametrization.shape,
        steps=None if options is None else options.steps,
        bound=None if options is None else options.bound,
        schedule=None if options is None else options.schedule,
        groups=None if options is None else options.groups,
        start=parametrization.start,
        target=None if options is None or options.target is None else options.target.sigma_min,
        scale=measured.get("scale"),
        delta=measured.get("delta"),
        sigma=measured.get("sigma"),
        noise=max(RANK_LOST, torch.finfo(Z.dtype).eps),
        would_take=measured.get("would_take", ""),
        why="",
    )


@torch.no_grad()
def measure(parametrization: FromProxy, Z: Tensor) -> dict[str, Any]:
    """What a row says of the values of a weight."""
    learnt = parametrization.options.learn_scale
    factors = parametrization.scale if learnt else torch.tensor([parametrization.options.scale])
    blocks = parametrization.blocks(parametrization.unscaled(Z))
    sigmas = [spectrum(W) for W in blocks]
    deltas = [orthogonality(W).column if is_tall(*W.shape[-2:]) else orthogonality(W).row for W in blocks]
    return {
        "scale": (float(factors.min()), float(factors.max())),
        "delta": max(float(delta.max()) for delta in deltas),
        "sigma": (min(float(sigma.min()) for sigma in sigmas), max(float(sigma.max()) for sigma in sigmas)),
        "would_take": what_it_would_take(parametrization, Z) if isinstance(parametrization, Orthogonal) else "",
    }


def what_it_would_take(parametrization: Orthogonal, Z: Tensor) -> str:
    """What is needed for the target now, if that is not what there is."""
    options = parametrization.options
    if options.target is None:
        return ""
    try:
        needed = options.choose_for(parametrization.layout.matrices(Z))
    except ValueError as error:
        return str(error)
    return "" if needed == options else str(needed.choice)


def plain_row(weight: Weight, reasons: dict[str, str]) -> LayerSummary:
    present = weight.parametrization
    why = f"parametrised by {type(present).__name__}" if present is not None else ""
    why = why or reasons.get(weight.title) or weight.unfit or "plain: never converted, or baked"
    tensor = weight.module._parameters.get(weight.name)
    shape = None if tensor is None else tuple(tensor.shape)
    return LayerSummary(weight.title, layer_kind(weight), shape, None, None, None, None, why)


def layer_kind(weight: Weight) -> str:
    return type(weight.module).__name__.removeprefix("Parametrized")
