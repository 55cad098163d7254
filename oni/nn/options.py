"""The options of an orthogonal weight, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from torch import nn

from oni.newton.orthogonalize import check_options

__all__ = ["Options", "check_learn_scale", "check_scale", "make_options"]


@dataclass(frozen=True)
class Options:
    """The options of ``oni.orthogonal``, ``scale`` as a number."""

    steps: int
    scale: float
    learn_scale: bool
    center: bool | str
    bound: str
    groups: int
    schedule: str

    def of_orthogonalize(self) -> dict[str, Any]:
        """Those that ``orthogonalize`` takes."""
        return {name: getattr(self, name) for name in ("steps", "center", "bound", "groups", "schedule")}


def make_options(
    steps: int = 5,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    center: bool | str = "auto",
    bound: str = "compact",
    groups: int = 1,
    schedule: str = "newton",
) -> Options:
    """Check options as far as that is possible without a weight: whether groups divide its rows is seen later."""
    # As many rows as groups, which always fits.
    rows = int(groups) if isinstance(groups, Integral) and groups > 0 else 1
    steps, _, groups = check_options((rows, 1), steps, center, bound, groups, schedule)
    return Options(steps, check_scale(scale), check_learn_scale(learn_scale), center, bound, groups, schedule)


def check_learn_scale(learn_scale: bool) -> bool:
    """Return ``learn_scale`` if it is True or False."""
    if not isinstance(learn_scale, bool):
        raise TypeError(f"learn_scale must be True or False, got {learn_scale!r}; the factor itself is scale")
    return learn_scale


def check_scale(scale: float | str) -> float:
    """Return ``scale`` as a number.

    >>> check_scale("relu")
    1.4142135623730951
    """
    if isinstance(scale, str):
        try:
            return float(nn.init.calculate_gain(scale))  # type: ignore[arg-type]
        except ValueError:
            raise ValueError(
                f"scale must be a number or an activation that torch.nn.init.calculate_gain knows, got {scale!r}; "
                'pass for example "relu"'
            ) from None
    if isinstance(scale, bool) or not isinstance(scale, Real) or not math.isfinite(scale) or scale == 0:
        raise ValueError(f"scale must be a finite nonzero number or the name of an activation, got {scale!r}")
    return float(scale)
