"""The options of an orthogonal weight, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

from torch import Tensor, nn

from oni.newton.matrix import Layout
from oni.newton.orthogonalize import check_options
from oni.newton.target import Choice, Target, check_target, choose

__all__ = ["Options", "check_learn_scale", "check_scale", "describe_options", "list_unlike", "make_options"]


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
    target: Target | None = None
    """The target for which ``steps``, ``bound`` and ``schedule`` are chosen, if there is one."""

    @property
    def choice(self) -> Choice:
        return Choice(self.bound, self.schedule, self.steps)

    def choose_for(self, matrices: Tensor) -> Options:
        """The options with steps, bound and schedule chosen for these matrices, where there is a target."""
        if self.target is None:
            return self
        try:
            choice = choose(matrices, self.target, center=self.center, groups=self.groups)
        except ValueError as error:
            raise ValueError(f"sigma_min={self.target.sigma_min!r} can't be reached: {error}") from None
        return replace(self, **choice._asdict())

    def wants_the_same(self, other: Options) -> bool:
        """Whether the same was requested, whatever was chosen to reach the target."""
        if self.target is None or other.target is None:
            return self == other
        return replace(self, **other.choice._asdict()) == other

    def keywords(self) -> dict[str, Any]:
        """The keywords of ``oni.orthogonal`` that make the same weight, without the target."""
        return {name: value for name, value in vars(self).items() if name != "target"}

    def __str__(self) -> str:
        set_options = self.keywords()
        if self.target is not None:
            set_options["sigma_min"] = self.target.sigma_min
        return ", ".join(f"{name}={value!r}" for name, value in set_options.items())

    def of_orthogonalize(self) -> dict[str, Any]:
        """The keywords of ``orthogonalize``."""
        return {name: getattr(self, name) for name in ("steps", "center", "bound", "groups", "schedule")}


def make_options(
    steps: int | None = None,
    scale: float | str = 1.0,
    learn_scale: bool = False,
    center: bool | str = "auto",
    bound: str | None = None,
    groups: int = 1,
    schedule: str | None = None,
    sigma_min: float | None = None,
) -> Options:
    """Check options as far as that is possible without a weight.

    Whether groups divide its rows is seen later, and what a target takes is chosen later (``choose_for``).
    """
    target = None
    if sigma_min is not None:
        if steps is not None:
            raise ValueError(
                f"pass either steps or sigma_min (which chooses the steps), got steps={steps!r} and "
                f"sigma_min={sigma_min!r}"
            )
        target = Target(check_target(sigma_min), bound, schedule)
        steps = 0
    steps = 5 if steps is None else steps
    bound = "compact" if bound is None else bound
    schedule = "newton" if schedule is None else schedule
    # As many rows as groups, which always fits.
    rows = int(groups) if isinstance(groups, Integral) and groups > 0 else 1
    steps, _, groups = check_options((rows, 1), steps, center, bound, groups, schedule)
    return Options(steps, check_scale(scale), check_learn_scale(learn_scale), center, bound, groups, schedule, target)


def describe_options(options: Options, layout: Layout, shape: Sequence[int]) -> dict[str, Any]:
    """Return what determines the weight: ``center`` as True or False for this shape, a target instead of its choice."""
    n, d = shape[-2:]
    chosen: dict[str, Any] = {"steps": options.steps, "bound": options.bound, "schedule": options.schedule}
    if options.target is not None:
        chosen = {name: value for name, value in options.target._asdict().items() if value is not None}
    elif options.steps == 0:
        del chosen["schedule"]
    return {
        **chosen,
        "center": n // options.groups < d if options.center == "auto" else options.center,
        "groups": options.groups,
        "scale": options.scale,
        "learn_scale": options.learn_scale,
        "convolution_groups": layout.groups,
        "transposed": layout.transposed,
    }


def list_unlike(options: dict[str, Any], others: dict[str, Any]) -> str:
    """List the options that are different or missing in others."""
    return ", ".join(f"{name}={value!r}" for name, value in options.items() if others.get(name) != value)


def check_learn_scale(learn_scale: bool) -> bool:
    """Return ``learn_scale`` if it is True or False."""
    if not isinstance(learn_scale, bool):
        raise TypeError(f"learn_scale must be True or False, got {learn_scale!r}; pass the factor itself as scale")
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
