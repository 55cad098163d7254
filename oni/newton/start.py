"""Where the singular values of a matrix start: after centring and bounding, before the first step."""

from __future__ import annotations

import torch
from torch import Tensor

from oni.newton.bounding import BOUNDS, SCHATTEN_ORDER
from oni.newton.matrix import split_groups

__all__ = ["find_starts"]


def find_starts(Z: Tensor, *, center: bool, groups: int) -> dict[str, tuple[float, float]]:
    """The smallest and the largest start of all matrices in ``Z (..., n, d)`` under each bound, in float64.

    Raises:
        ValueError: if one of them is zero, and so would stay.

    >>> low, high = find_starts(torch.eye(16, 20), center=False, groups=1)["compact"]
    >>> round(low, 6), round(high, 6)
    (0.5, 0.5)
    """
    if Z.device.type == "meta":
        raise ValueError("it has no values yet (device meta); load or initialise it first, or pass steps")
    if Z.numel() == 0:
        raise ValueError(f"it has shape {tuple(Z.shape)}, and no entries")
    A = split_groups(Z.detach().double(), groups)
    if not bool(torch.isfinite(A).all()):
        raise ValueError("it holds NaN or infinity; initialise or load it first")
    if center:
        A = A - A[..., :1]
        A = A - A.mean(-1, keepdim=True)
    n, d = A.shape[-2:]
    sigma = torch.linalg.svdvals(A).reshape(-1, min(n, d))
    check_rank(sigma, Z.dtype, f"{n} x {d}", center=center, centring_costs_rank=center and n >= d)
    sigma = sigma / sigma[:, :1]
    starts = {}
    for bound in BOUNDS:
        relative = sigma / torch.linalg.vector_norm(sigma, ord=SCHATTEN_ORDER[bound], dim=-1, keepdim=True)
        starts[bound] = float(relative.min()), min(1.0, float(relative.max()))
    return starts


def check_rank(sigma: Tensor, dtype: torch.dtype, size: str, *, center: bool, centring_costs_rank: bool) -> None:
    """Refuse singular values ``(count, rank)`` of which one is no more than the rounding of the matrix itself."""
    if bool((sigma[:, 0] == 0).any()):
        remedy = "initialise it first"
        if center:
            raise ValueError(f"its rows are constant, so zero once centred; {remedy}, or pass center=False")
        raise ValueError(f"it is zero, and zero has no direction to orthogonalise; {remedy}")
    if centring_costs_rank:
        raise ValueError(
            f"a centred {size} matrix has a zero singular value, which no step lifts, as its rows sum to zero; "
            'pass center="auto" or False'
        )
    work = dtype if dtype in (torch.float32, torch.float64) else torch.float32
    ranks = (sigma > torch.finfo(work).eps * sigma[:, :1]).sum(-1)
    if int(ranks.min()) < sigma.shape[-1]:
        raise ValueError(
            f"a {size} matrix of rank {int(ranks.min())} has a zero singular value, which no step lifts; "
            "initialise it anew (duplicate or dead filters?)"
        )
