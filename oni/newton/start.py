"""Where the singular values of a matrix start: after centring and bounding, before the first step."""

from __future__ import annotations

import torch
from torch import Tensor

from oni.newton.bounding import BOUNDS, SCHATTEN_ORDER, TRACE_POWER, centred, power_of_two_scale, trace_factors
from oni.newton.matrix import split_groups
from oni.torch_internals import has_values

__all__ = ["find_starts", "work_dtype"]


TRAINED = 2.0
"""The condition number after some training from an orthogonal start, as measured (docs/how-orthogonal.md)."""


def find_starts(Z: Tensor, *, center: bool, groups: int, in_training: bool = False) -> dict[str, tuple[float, float]]:
    """Return where the singular values of all matrices in ``Z (..., n, d)`` start under each bound: lowest and highest.

    Args:
        Z: the matrices.
        center, groups: as in :func:`oni.orthogonalize`.
        in_training: allow for a condition number of 2, which training reaches from an orthogonal start. Otherwise an
            orthogonal matrix starts at 1 under the trace bound and needs no steps, but only until the first step of the
            optimizer.

    Returns:
        The lowest and the highest start by bound, computed in float64.

    Raises:
        ValueError: if a singular value is zero, which no step can raise.

    >>> low, high = find_starts(torch.eye(16, 20), center=False, groups=1)["compact"]
    >>> round(low, 6), round(high, 6)
    (0.5, 0.5)
    """
    if not has_values(Z):
        raise ValueError(
            "it has no values yet (device meta, or a fake tensor); load or initialise it first, or pass steps"
        )
    if Z.numel() == 0:
        raise ValueError(f"it has shape {tuple(Z.shape)} and no entries")
    A = split_groups(Z.detach().double(), groups)
    if not bool(torch.isfinite(A).all()):
        raise ValueError("it contains NaN or infinity; initialise or load it first")
    A = power_of_two_scale(A) * A  # so that centring does not overflow
    if center:
        A = centred(A)
    n, d = A.shape[-2:]
    sigma = torch.linalg.svdvals(A).reshape(-1, min(n, d))
    check_rank(sigma, Z.dtype, f"{n} x {d}", center=center, centring_costs_rank=center and n >= d)
    sigma = sigma / sigma[:, :1]
    starts = {}
    if in_training:
        spread = torch.linspace(1.0, 1 / TRAINED, sigma.shape[-1], dtype=sigma.dtype, device=sigma.device)
        sigma = torch.cat([sigma, torch.where(sigma[:, -1:] > 1 / TRAINED, spread, sigma)])
    for bound in BOUNDS:
        f = bound_spectrum(sigma, bound)
        # The trace bound is enlarged for rounding, by less where the schedule needs float64.
        enlarged = bound_spectrum(sigma, bound, work_dtype(Z.dtype))
        starts[bound] = float((sigma / enlarged).min()), min(1.0, float((sigma / f).max()))
    return starts


def bound_spectrum(sigma: Tensor, bound: str, dtype: torch.dtype | None = None) -> Tensor:
    """Return the bound for each row of singular values: the plain formula, or enlarged for rounding in a dtype."""
    if bound not in TRACE_POWER:
        return torch.linalg.vector_norm(sigma, ord=SCHATTEN_ORDER[bound], dim=-1, keepdim=True)
    k, power = sigma.shape[-1], TRACE_POWER[bound]
    a, b, tau = trace_factors(k, power, dtype)
    eigenvalues = sigma ** (2 * power)
    m = eigenvalues.mean(-1, keepdim=True)
    spread = torch.hypot(torch.linalg.vector_norm(eigenvalues / m - 1, dim=-1, keepdim=True), m.new_tensor(tau))
    return (m * (a + b * spread)) ** (0.5 / power)


def work_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision in which a few steps on a proxy of this dtype are computed."""
    return dtype if dtype in (torch.float32, torch.float64) else torch.float32


def check_rank(sigma: Tensor, dtype: torch.dtype, size: str, *, center: bool, centring_costs_rank: bool) -> None:
    """Raise an error if a singular value, of ``(matrices, rank)``, is zero up to the rounding of its matrix."""
    if bool((sigma[:, 0] == 0).any()):
        remedy = "initialise it first"
        if center:
            raise ValueError(f"its rows are constant, so centring makes them zero; {remedy}, or pass center=False")
        raise ValueError(f"it is zero, and zero has no direction to orthogonalise; {remedy}")
    if centring_costs_rank:
        raise ValueError(
            f"a centred {size} matrix has a zero singular value, because its rows sum to zero, and no step can "
            'raise it; pass center="auto" or False'
        )
    ranks = (sigma > torch.finfo(work_dtype(dtype)).eps * sigma[:, :1]).sum(-1)
    if int(ranks.min()) < sigma.shape[-1]:
        raise ValueError(
            f"a {size} matrix of rank {int(ranks.min())} has a zero singular value, which no step can raise; "
            "initialise it again (duplicate or dead filters?)"
        )
