r"""The proxies Z that are orthogonalised, by what their singular values are like.

- ``gaussian``: entries drawn from a normal distribution, as most networks start. A square one has singular values near
  zero.
- ``trained``: as training leaves a Z that started orthogonal. The logarithms of the singular values are quantiles of a
  normal distribution, their condition number is 2.2.
- ``condition100``: the logarithms spread evenly, condition number 100.

The singular vectors are random. Where there are more columns than rows, and so rows are centred by default, the rows
have mean zero already in all but the first: centring leaves the singular values as they are.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from oni.bench.settings import SEED

__all__ = ["SPECTRA", "draw_inputs", "spread_singular_values"]

SPECTRA = ("gaussian", "trained", "condition100")
TRAINED, ILL = 2.2, 100.0


def draw_inputs(shape: tuple[int, ...], spectrum: str = "gaussian", device: str = "cpu") -> tuple[Tensor, Tensor]:
    """The same Z, and the same Gaussian gradient G, for the same shape and spectrum, always."""
    generator = torch.Generator().manual_seed(SEED)
    Z, G = torch.randn((2, *shape), generator=generator).unbind()
    if spectrum != "gaussian":
        Z = draw_with_spectrum(shape, spectrum, generator)
    return Z.to(device), G.to(device)


def spread_singular_values(spectrum: str, count: int) -> Tensor:
    """The singular values of a spectrum, the largest 1.

    >>> spread_singular_values("condition100", 3)
    tensor([0.0100, 0.1000, 1.0000], dtype=torch.float64)
    """
    if count == 1:
        return torch.ones(1, dtype=torch.float64)
    places = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    places, condition = (torch.special.ndtri(places), TRAINED) if spectrum == "trained" else (places, ILL)
    return torch.exp(math.log(condition) * (places - places[-1]) / (places[-1] - places[0]))


def draw_with_spectrum(shape: tuple[int, ...], spectrum: str, generator: torch.Generator) -> Tensor:
    """A matrix with random singular vectors; of mean zero in each row, if it is wide."""
    *batch, n, d = shape
    if n > d:
        return draw_with_spectrum((*batch, d, n), spectrum, generator).mT.contiguous()
    U, R = (torch.randn(*batch, side, n, dtype=torch.float64, generator=generator) for side in (n, d))
    if n < d:
        R = R - R.mean(-2, keepdim=True)
    U, R = torch.linalg.qr(U).Q, torch.linalg.qr(R).Q
    return ((U * spread_singular_values(spectrum, n)) @ R.mT).float()
