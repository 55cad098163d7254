"""The weight matrices of a state dict, and their singular values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from oni.diagnostics.spectrum import effective_rank_of, spectrum
from oni.models.bake_state_dict import Proxy, find_proxies

__all__ = ["LIMIT", "Matrix", "Weight", "measure", "singular_values", "weights_of"]

LIMIT = 4096
DECOMPOSED = 256
"""Up to this short side by a singular value decomposition, beyond by the Gram matrix."""
BLOCK = 1 << 24
"""Entries of a large matrix that are turned into float64 at a time."""


class Weight(NamedTuple):
    """A tensor of a checkpoint that is one matrix or several."""

    name: str
    kind: str
    """``weight``, ``proxy``, or ``baked``: the weight that a proxy stands for."""
    tensor: Tensor
    proxy: Proxy | None = None


@dataclass(frozen=True)
class Matrix:
    """One weight as a matrix, with its singular values."""

    name: str
    kind: str
    """As in :class:`Weight`."""
    shape: tuple[int, ...]
    """Of the tensor."""
    size: tuple[int, int]
    """Of the matrix; of each of them, if a weight is several."""
    sigma: Tensor | None
    """Largest first, of all its matrices; ``None`` if it was left out."""
    why: str = ""
    """Why it was left out."""

    @property
    def label(self) -> str:
        """Its name, with a word if it is a proxy."""
        return f"{self.name} (proxy)" if self.kind == "proxy" else self.name

    def excess(self, side: int) -> float:
        """The square of the distance from orthonormal rows (side 0) or columns (side 1)."""
        if self.sigma is None:
            return math.nan
        count = self.sigma.numel() // min(self.size)
        return float((self.sigma.square() - 1).square().sum()) + count * (self.size[side] - min(self.size))

    @property
    def delta_row(self) -> float:
        return math.sqrt(self.excess(0))

    @property
    def delta_column(self) -> float:
        return math.sqrt(self.excess(1))

    @property
    def delta(self) -> float:
        """Of the short side."""
        return min(self.delta_row, self.delta_column)

    def quantile(self, share: float) -> float:
        """The singular value with this share of the others below it."""
        return math.nan if self.sigma is None else float(self.sigma.quantile(share))

    @property
    def condition(self) -> float:
        smallest, largest = self.quantile(0), self.quantile(1)
        return largest / smallest if smallest else math.inf if largest else math.nan

    @property
    def rank(self) -> float:
        return math.nan if self.sigma is None else float(effective_rank_of(self.sigma))


def weights_of(state: dict[str, Tensor], where: str = "") -> Iterator[Weight]:
    """The weights of a state dict: every tensor of floating-point numbers with two or more dimensions."""
    try:
        proxies = {proxy.prefix + "original": proxy for proxy in find_proxies(state)}
    except ValueError:
        # Options that can't be read keep nobody from looking at the proxies.
        proxies = {}
    for key, tensor in state.items():
        if not tensor.is_floating_point() or tensor.dim() < 2 or tensor.numel() == 0:
            continue
        name = f"{where}: {key}" if where else key
        layer, parametrized, rest = name.rpartition(".parametrizations.")
        if not parametrized and name.startswith("parametrizations."):
            parametrized, rest = "parametrizations.", name.removeprefix("parametrizations.")
        if not (parametrized and rest.endswith(".original")):
            yield Weight(name, "weight", tensor)
            continue
        short = f"{layer}.{rest.partition('.')[0]}".lstrip(".")
        proxy = proxies.get(key)
        if proxy is not None and proxy.saved is not None:
            yield Weight(short, "baked", tensor, proxy)
        yield Weight(short, "proxy", tensor, proxy)


def measure(weight: Weight, *, limit: int = LIMIT) -> Matrix:
    """The singular values of a weight, or why there are none; nothing in a file raises here."""
    name, kind, tensor, proxy = weight
    shape = tuple(tensor.shape)
    # With sizes that no layer has, or groups that do not divide: as for any weight, one row a filter.
    layout = proxy.layout if proxy is not None else None
    rows, columns = shape[0], tensor.numel() // shape[0]
    if layout is not None and layout.filters(shape) % layout.groups == 0 and shape[0] % layout.groups == 0:
        rows = layout.filters(shape) // layout.groups
        columns = tensor.numel() // (rows * layout.groups)
    else:
        layout = None
    size = (rows, columns)
    why = why_left_out(tensor, size, limit)
    if why:
        return Matrix(name, kind, shape, size, None, why)
    try:
        if kind == "baked" and proxy is not None and proxy.saved is not None:
            tensor = proxy.value(proxy.saved)
        W = layout.matrices(tensor) if layout is not None else tensor.reshape(rows, columns)
        return Matrix(name, kind, shape, size, singular_values(W))
    except (ValueError, NotImplementedError) as error:
        return Matrix(name, kind, shape, size, None, " ".join(str(error).split())[:60])


def why_left_out(tensor: Tensor, size: tuple[int, int], limit: int) -> str:
    """Why not to compute anything of a tensor; empty if nothing is against it."""
    if tensor.layout is not torch.strided:
        return "sparse"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return "not stored in full"
    if min(size) > limit:
        return f"its short side is over {limit}; --limit {min(size)} takes it in"
    return ""


def singular_values(W: Tensor) -> Tensor:
    r"""All of them, largest first, of a matrix or of several together.

    With a short side over 256 as the roots of the eigenvalues of the Gram matrix, summed up in float64: some ten times
    faster, and a large matrix is never copied whole. Values below :math:`10^{-8} \sigma_{\max}` are noise then.
    """
    if W.dim() > 2:
        return torch.cat([singular_values(matrix) for matrix in W]).sort(descending=True).values
    W = W.detach()
    if min(W.shape) <= DECOMPOSED:
        return spectrum(W)
    if W.shape[0] > W.shape[1]:
        W = W.mT
    gram = W.new_zeros((W.shape[0], W.shape[0]), dtype=torch.float64)
    for block in W.split(max(1, BLOCK // W.shape[0]), dim=1):
        part = block.double()
        gram.addmm_(part, part.mT)
    if not bool(torch.isfinite(gram).all()):
        return gram.new_full((gram.shape[0],), math.nan)
    return torch.linalg.eigvalsh(gram).clamp(min=0).sqrt().flip(0)
