"""``cost``: what orthogonalisation adds to the arithmetic of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oni.diagnostics.operator import CONVOLUTIONS
from oni.diagnostics.untouched import sample_input, untouched
from oni.newton.matrix import Layout
from oni.newton.product_count import count_products

__all__ = ["LayerCost", "cost", "own_cost", "paper_cost"]


@dataclass(frozen=True)
class LayerCost:
    """Multiply-adds of one layer, forward unless said."""

    layer: str
    kind: str
    matrix: tuple[int, int]
    """Rows and columns of its weight, of one group if it has several."""
    groups: int
    layer_itself: int
    """The layer itself, on the whole batch, in all its calls."""
    paper: int
    """Orthogonalising by the paper's count, once per training step."""
    oni: int
    """Orthogonalising as this package does it."""
    oni_backward: int
    """Its gradient; that of the layer itself is twice ``layer_itself``."""

    @property
    def paper_ratio(self) -> float:
        return self.paper / self.layer_itself

    @property
    def ratio(self) -> float:
        return self.oni / self.layer_itself


def cost(
    model: nn.Module,
    input_size: int | Sequence[int],
    batch_size: int,
    steps: int = 5,
    *,
    bound: str = "compact",
    schedule: str = "newton",
) -> list[LayerCost]:
    r"""Multiply-adds of orthogonalisation in every linear and convolutional layer, compared with the layer's own.

    For n filters on d channels, a kernel :math:`F_h \times F_w`, an output h x w and a batch of m, the paper's ratio is

    .. math:: \frac{2 n}{m h w} + \frac{3 T n^2}{m d h w F_h F_w}.

    This package works on the short side and takes two steps at a time, so it needs fewer products
    (:mod:`oni.newton.product_count`). Arithmetic is not time, because small matrices wait for memory: see
    ``oni bench``.

    Args:
        model: any module, converted or not; it runs once, in evaluation, on a single input of zeros.
        input_size: the size of one input, without the batch: ``(channels, height, width)``, or ``features``.
        batch_size: the m of a training step.
        steps, bound, schedule: as in :func:`oni.orthogonalize`.

    >>> (row,) = cost(nn.Conv2d(256, 256, 3, padding=1), (256, 32, 32), batch_size=256, steps=5)
    >>> round(row.paper_ratio, 5), round(row.ratio, 5)
    (0.00358, 0.00304)
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size must be a positive whole number, got {batch_size!r}")
    count_products(steps, bound=bound, schedule=schedule)
    calls: dict[str, tuple[Any, int]] = {}

    def watched(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            # Each weight meets every output pixel once; a transposed convolution's, every input pixel.
            pixels = output.numel() // filters(module)
            if isinstance(module, CONVOLUTIONS) and module.transposed:
                pixels = inputs[0].numel() // module.in_channels
            calls[name] = (module, calls.get(name, (module, 0))[1] + pixels)

        return hook

    handles = []
    with untouched(model, training=False), torch.no_grad():
        try:
            for name, module in model.named_modules():
                if isinstance(module, (nn.Linear, *CONVOLUTIONS)):
                    handles.append(module.register_forward_hook(watched(name)))
            model(sample_input(model, input_size if isinstance(input_size, int) else tuple(input_size)))
        finally:
            for handle in handles:
                handle.remove()
    rows = []
    for name, (module, pixels) in calls.items():
        groups = getattr(module, "groups", 1)
        n = filters(module) // groups
        d = module.weight.numel() // filters(module)
        forward, backward = own_cost(n, d, steps, bound=bound, schedule=schedule)
        rows.append(
            LayerCost(
                layer=name,
                kind=type(module).__name__.removeprefix("Parametrized"),
                matrix=(n, d),
                groups=groups,
                layer_itself=module.weight.numel() * pixels * batch_size,
                paper=groups * paper_cost(n, d, steps),
                oni=groups * forward,
                oni_backward=groups * backward,
            )
        )
    return rows


def filters(module: Any) -> int:
    transposed = isinstance(module, CONVOLUTIONS) and module.transposed
    return Layout(getattr(module, "groups", 1), transposed).filters(module.weight.shape)


def paper_cost(n: int, d: int, steps: int) -> int:
    """The paper's count for an n x d matrix: the Gram matrix and W, and three products of n x n for each step.

    >>> paper_cost(2, 3, 1)
    48
    """
    return 2 * n * n * d + 3 * steps * n**3


def own_cost(n: int, d: int, steps: int, *, bound: str = "compact", schedule: str = "newton") -> tuple[int, int]:
    """Multiply-adds of ``orthogonalize`` on an n x d matrix, forward and backward.

    >>> own_cost(2, 3, 2)
    (40, 52)
    """
    return count_products(steps, bound=bound, schedule=schedule).multiply_adds(n, d)
