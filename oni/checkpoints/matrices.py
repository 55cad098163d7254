"""The weight matrices of a state dict, and their singular values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from oni.diagnostics.spectrum import effective_rank_of, spectrum
from oni.models.bake_state_dict import Proxy, find_proxies
from oni.newton.matrix import Layout, split_groups
from oni.nn.options_codec import MOST_STEPS

__all__ = [
    "LIMIT",
    "Matrix",
    "StoredWeight",
    "measure",
    "singular_values",
    "weights_of",
    "why_too_long",
    "why_unreadable",
]

LIMIT = 4096
DECOMPOSED = 256
"""Up to this short side by a singular value decomposition, beyond by the Gram matrix."""
BLOCK = 1 << 24
"""Entries of a large matrix that are turned into float64 at a time."""


class StoredWeight(NamedTuple):
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
    """As in :class:`StoredWeight`."""
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

    @cached_property
    def values(self) -> list[float]:
        """The singular values as numbers, as tensors of a few are slow; empty if it was left out."""
        return [] if self.sigma is None else self.sigma.tolist()

    def excess(self, side: int) -> float:
        """The square of the distance from orthonormal rows (side 0) or columns (side 1)."""
        if not self.values:
            return math.nan
        count = len(self.values) // min(self.size)
        # A product of huge numbers is infinite, where a power raises.
        away = [value * value - 1 for value in self.values]
        return sum(excess * excess for excess in away) + count * (self.size[side] - min(self.size))

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
        """The singular value with this share of the others below it, between two of them where none has."""
        if not self.values or math.isnan(self.values[0]):  # NaN is sorted before all numbers
            return math.nan
        position = (1 - share) * (len(self.values) - 1)
        above, below = self.values[math.floor(position)], self.values[math.ceil(position)]
        return above + (below - above) * (position % 1)

    @property
    def condition(self) -> float:
        smallest, largest = self.quantile(0), self.quantile(1)
        return largest / smallest if smallest else math.inf if largest else math.nan

    @property
    def rank(self) -> float:
        return math.nan if self.sigma is None else float(effective_rank_of(self.sigma))


def weights_of(state: dict[str, Tensor], where: str = "") -> Iterator[StoredWeight]:
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
            yield StoredWeight(name, "weight", tensor)
            continue
        short = f"{layer}.{rest.partition('.')[0]}".lstrip(".")
        proxy = proxies.get(key)
        if proxy is not None and proxy.saved is not None:
            yield StoredWeight(short, "baked", tensor, proxy)
        yield StoredWeight(short, "proxy", tensor, proxy)


def measure(weight: StoredWeight, *, limit: int = LIMIT) -> Matrix:
    """The singular values of a weight, or why there are none; nothing in a file raises here."""
    name, kind, tensor, proxy = weight
    shape = tuple(tensor.shape)
    layout, row_groups = Layout(), 1
    if proxy is not None:
        # Gates, and queries, keys and values, were orthogonalised each on its own.
        layout, row_groups = proxy.layout, 1 if proxy.saved is None else proxy.saved.groups
    # With sizes that no layer has, or groups that do not divide: as for any weight, one row a filter.
    if layout.filters(shape) % (layout.groups * row_groups) or shape[0] % layout.groups:
        layout, row_groups = Layout(), 1
    filters = layout.filters(shape)
    size = filters // (layout.groups * row_groups), tensor.numel() // filters
    why = why_unreadable(tensor) or why_left_out(size, limit)
    if not why and kind == "baked" and proxy is not None and proxy.saved is not None:
        why = why_too_long(proxy.saved.steps)
    if why:
        return Matrix(name, kind, shape, size, None, why)
    try:
        if kind == "baked" and proxy is not None and proxy.saved is not None:
            tensor = proxy.value(proxy.saved)
        W = split_groups(layout.matrices(tensor), row_groups)
        return Matrix(name, kind, shape, size, singular_values(W))
    except (ValueError, NotImplementedError) as error:
        return Matrix(name, kind, shape, size, None, " ".join(str(error).split())[:60])


def why_unreadable(tensor: Tensor) -> str:
    """Why nothing can be computed of a tensor; empty if it can."""
    if tensor.layout is not torch.strided:
        return f"sparse ({tensor.layout}); save tensor.to_dense() instead"
    if tensor.is_meta:
        return "on the meta device, so that it has a shape but no values"
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return "not stored in full"
    return ""


def why_left_out(size: tuple[int, int], limit: int) -> str:
    """Why to compute nothing of a matrix that would take long; empty if it does not."""
    return f"its short side is over {limit}; --limit {min(size)} takes it in" if min(size) > limit else ""


def why_too_long(steps: int) -> str:
    """Why not to take a number of steps that a file asks for; empty if it is a sensible one.

    Memory and time grow with it, so that a file of a few kB could take all there is.
    """
    return f"steps={steps} is over {MOST_STEPS}, the most that is computed for a file" if steps > MOST_STEPS else ""


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
