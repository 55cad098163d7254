"""Drop-in layers: torch's own signatures, and the options of ``oni.orthogonal`` as keywords.

``groups`` is what it is in torch: a convolution's groups. Groups of rows within a weight are ``row_groups`` here.

>>> import torch
>>> layer = Conv2d(3, 16, 3, padding=1, steps=5, scale="relu")
>>> layer(torch.zeros(1, 3, 8, 8)).shape
torch.Size([1, 16, 8, 8])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

from oni.nn.parametrization import orthogonal

__all__ = ["PLAIN", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Linear"]

if TYPE_CHECKING:
    Base = nn.Module
else:
    Base = object


class _DropIn(Base):
    def __init__(
        self,
        *args: Any,
        steps: int | None = None,
        sigma_min: float | None = None,
        scale: float | str = 1.0,
        learn_scale: bool = False,
        center: bool | str = "auto",
        bound: str | None = None,
        row_groups: int = 1,
        schedule: str | None = None,
        start: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        orthogonal(
            self,
            steps=steps,
            sigma_min=sigma_min,
            scale=scale,
            learn_scale=learn_scale,
            center=center,
            bound=bound,
            groups=row_groups,
            schedule=schedule,
            start=start,
        )


class Linear(_DropIn, nn.Linear):
    """``torch.nn.Linear`` with an orthogonalised weight (out, in)."""


class Conv1d(_DropIn, nn.Conv1d):
    """``torch.nn.Conv1d`` with an orthogonalised weight (out, in * kernel), in each of its ``groups``."""


class Conv2d(_DropIn, nn.Conv2d):
    """``torch.nn.Conv2d`` with an orthogonalised weight (out, in * kernel), in each of its ``groups``."""


class Conv3d(_DropIn, nn.Conv3d):
    """``torch.nn.Conv3d`` with an orthogonalised weight (out, in * kernel), in each of its ``groups``."""


class ConvTranspose1d(_DropIn, nn.ConvTranspose1d):
    """``torch.nn.ConvTranspose1d`` whose weight, as (out, in * kernel), is orthogonalised in each of its ``groups``."""


class ConvTranspose2d(_DropIn, nn.ConvTranspose2d):
    """``torch.nn.ConvTranspose2d`` whose weight, as (out, in * kernel), is orthogonalised in each of its ``groups``."""


class ConvTranspose3d(_DropIn, nn.ConvTranspose3d):
    """``torch.nn.ConvTranspose3d`` whose weight, as (out, in * kernel), is orthogonalised in each of its ``groups``."""


PLAIN: dict[type[nn.Module], type[nn.Module]] = {
    layer: layer.__mro__[2]
    for layer in (Linear, Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
}
"""What each layer is when it is baked."""
