"""How a proxy starts: as the weight it is made from, or orthogonal."""

from __future__ import annotations

import torch
from torch import Tensor

from oni.newton.matrix import Layout
from oni.newton.orthogonalize import check_options
from oni.newton.polar import find_polar_factor
from oni.nn.options import Options

__all__ = ["check_start", "describe_shortfall", "make_proxy", "write_proxy"]


def check_start(start: str | None) -> str | None:
    """Return ``start`` if it is one."""
    if start is not None and not (isinstance(start, str) and start == "orthogonal"):
        raise ValueError(
            f'start must be None, which keeps the weight as it is, or "orthogonal", which replaces it by its polar '
            f"factor, got {start!r}"
        )
    return start


def make_proxy(weight: Tensor, layout: Layout, options: Options, start: str | None) -> tuple[Tensor, str]:
    """What the proxy of this weight starts as, and how a table says that: empty for the weight itself."""
    if start is None:
        return weight, ""
    matrices = layout.matrices(weight)
    _, center, groups = check_options(matrices.shape, **options.of_orthogonalize())
    try:
        polar = find_polar_factor(matrices, center=center, groups=groups)
    except ValueError as error:
        raise ValueError(f"start={start!r} is not possible: {error}") from None
    said = start if polar.rank >= polar.possible else f"{start}, rank {polar.rank} of {polar.possible}"
    return layout.weight(polar.factor, weight.shape), said


def write_proxy(weight: Tensor, proxy: Tensor) -> None:
    """Start the parameter, which is the proxy from now on, from these values."""
    if proxy is not weight:
        with torch.no_grad():
            weight.copy_(proxy)


def describe_shortfall(said: str) -> str:
    """What ``start`` could not do, from what ``make_proxy`` said; empty if it did all."""
    _, _, rank = said.partition(", ")
    return f"{rank}, so its zero singular values stay zero" if rank else ""
