"""How a proxy starts: as the weight that it replaces, or orthogonal."""

from __future__ import annotations

import torch
from torch import Tensor

from oni.newton.matrix import Layout
from oni.newton.orthogonalize import check_options
from oni.newton.polar import find_polar_factor
from oni.nn.options import Options

__all__ = ["check_start", "describe_shortfall", "make_proxy", "write_proxy"]


def check_start(start: str | None) -> str | None:
    """Return ``start`` if it is None or "orthogonal"."""
    if start is not None and not (isinstance(start, str) and start == "orthogonal"):
        raise ValueError(
            f'start must be None, which keeps the weight as it is, or "orthogonal", which replaces it by its polar '
            f"factor, got {start!r}"
        )
    return start


def make_proxy(weight: Tensor, layout: Layout, options: Options, start: str | None) -> tuple[Tensor, str]:
    """Return the initial proxy of a weight, and its description in tables: empty for the weight itself."""
    if start is None:
        return weight, ""
    matrices = layout.matrices(weight)
    _, center, groups = check_options(matrices.shape, **options.of_orthogonalize())
    try:
        polar = find_polar_factor(matrices, center=center, groups=groups)
    except ValueError as error:
        raise ValueError(f"start={start!r} is not possible: {error}") from None
    missing = "" if polar.rank >= polar.possible else f", rank {polar.rank} of {polar.possible}"
    return layout.weight(polar.factor, weight.shape), start + missing


def write_proxy(weight: Tensor, proxy: Tensor) -> None:
    """Start the parameter, which is the proxy from now on, from these values."""
    if proxy is not weight:
        with torch.no_grad():
            weight.copy_(proxy)


def describe_shortfall(description: str) -> str:
    """Say what a start with this description, from ``make_proxy``, could not do; empty if it did everything."""
    _, _, rank = description.partition(", ")
    return f"{rank}, so its zero singular values stay zero" if rank else ""
