"""From a target, "every singular value at least 0.9", to the steps that reach it.

For a number of steps and a target there is a lowest start from which the best polynomials still reach it. A minimax
schedule made for that start serves every matrix that starts at or above it. So the schedule that is chosen depends on
the target and the number of steps alone. Weights of one shape that need the same number of steps stay in one batch, and
a spectrum may widen down to that start before more steps are needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from numbers import Real
from typing import NamedTuple

import torch
from torch import Tensor

from oni.newton.minimax import LEAST, lift_by_pair, lift_by_step
from oni.newton.orthogonalize import check_input, check_options
from oni.newton.precision import planned_before
from oni.newton.product_count import count_products
from oni.newton.schedule import certified_range, checked_interval, get_schedule
from oni.newton.start import find_starts, work_dtype

__all__ = ["Choice", "Target", "check_target", "choose", "list_choices", "steps_for"]

CANDIDATES = ("trace", "trace2", "tight")
"""The Frobenius and the compact bound cost as much as the trace bound, but start lower."""
STEEP_BELOW = 0.02
"""Schedules made for a start below may be so steep that they need float64."""
MILD = ("minimax:0.0075", "minimax:0.01", "minimax:0.015", "minimax:0.02")
"""Then these are compared too. They take more steps, but in float32."""
DOUBLE_PRICE = 4
"""Of a product in float64, in products in float32: 2 with the same library, 4 where oneDNN multiplies the latter."""
FURTHER = 3
"""How many numbers of steps to compare: one more may cost less, if the matrix is then formed anew fewer times."""


class Target(NamedTuple):
    """A lower bound for the singular values, and what is fixed on the way to it."""

    sigma_min: float
    """The lower bound."""
    bound: str | None = None
    """The bound to use; ``None`` leaves it to be chosen."""
    schedule: str | None = None
    """The schedule to use; ``"minimax"`` leaves its lower end to be chosen, ``None`` all of it."""


class Choice(NamedTuple):
    """A way to reach a target."""

    bound: str
    schedule: str
    steps: int

    def __str__(self) -> str:
        return f"{self.steps} steps, {self.bound}, {self.schedule}"


def steps_for(
    interval: tuple[float, float] | Tensor,
    sigma_min: float,
    *,
    schedule: str = "newton",
    center: bool | str = "auto",
    bound: str = "compact",
    groups: int = 1,
) -> int:
    r"""The fewest steps that raise every singular value of an interval, or of a matrix, to at least ``sigma_min``.

    Args:
        interval: ``(low, high)`` with ``0 < low <= high <= 1``: where the bounded matrix's singular values lie. Or a
            matrix ``(n, d)``, or a batch ``(..., n, d)``: then the singular values of all its matrices count.
        sigma_min: the target, at least 0 and below 1 (no finite number of steps reaches 1).
        schedule: ``"newton"``, ``"minimax"`` or, for another lower end than 0.1, for example ``"minimax:0.03"``.
        center, bound, groups: as in :func:`oni.orthogonalize`, if a matrix is given.

    Returns:
        The smallest ``steps`` for which ``certified_range(interval, steps)[0] >= sigma_min``.

    >>> steps_for((0.1, 1.0), 0.9), steps_for((0.1, 1.0), 0.9, schedule="minimax")
    (7, 3)
    >>> Z = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    >>> steps_for(Z, 0.9), steps_for(Z, 0.9, bound="tight")
    (5, 4)
    """
    found = get_schedule(schedule)
    if isinstance(interval, Tensor) and interval.dim() != 1:
        check_input(interval)
        _, center, groups = check_options(interval.shape, 0, center, bound, groups, schedule)
        try:
            low, high = find_starts(interval, center=center, groups=groups)[bound]
        except ValueError as error:
            raise ValueError(f"the matrix can't reach sigma_min={sigma_min!r}: {error}") from None
    else:
        low, high = checked_interval(interval)  # type: ignore[arg-type]
    if low == 0.0:
        raise ValueError(
            f"interval starts at {low!r}: a zero singular value stays zero for any number of steps; "
            "pass the smallest nonzero singular value as its lower end"
        )
    return first_reaching(found.ranges(low, high), check_target(sigma_min, zero=True))


def check_target(sigma_min: float, *, zero: bool = False) -> float:
    """Return ``sigma_min`` if it is a number below 1 and above, or where allowed at, 0."""
    number = isinstance(sigma_min, Real) and not isinstance(sigma_min, bool)
    value = math.nan
    # As a float: a fraction may round to 0 or 1, and a large number have none.
    with suppress(OverflowError):
        value = float(sigma_min) if number else math.nan
    if not 0.0 <= value < 1.0 or (value == 0 and not zero):
        raise ValueError(
            f"sigma_min must be a number in {'[' if zero else '('}0, 1), got {sigma_min!r}; 1 itself is reached only "
            "in the limit; pass for example 0.999"
        )
    return value


def first_reaching(ranges: Iterator[tuple[float, float]], sigma_min: float) -> int:
    """Return the number of steps after which the lower end reaches the target."""
    before = [-1.0, -1.0]
    for steps, (low, _) in enumerate(ranges):
        if low >= sigma_min:
            return steps
        # Odd and even numbers of steps are two sequences; each may fall at first, and rises until rounding ends it.
        if low == before[steps % 2]:
            break
        before[steps % 2] = low
    raise ValueError(
        f"sigma_min={sigma_min!r} is closer to 1 than this schedule can certify in double precision, {max(before)!r}; "
        "pass for example 0.999999"
    )


def choose(matrices: Tensor, target: Target, *, center: bool | str = "auto", groups: int = 1) -> Choice:
    """Choose the way with the fewest matrix products that certifies a target for ``matrices (..., n, d)`` as they are.

    It also holds for evenly spread singular values of condition number 2, which training reaches from an orthogonal
    start: otherwise the choice would not survive the first steps of the optimizer.

    Raises:
        ValueError: if no number of steps reaches the target, with the reason.

    >>> choose(torch.randn(64, 256, generator=torch.Generator().manual_seed(0)), Target(0.9))
    Choice(bound='trace', schedule='minimax:0.238', steps=2)
    """
    return list_choices(matrices, target, center=center, groups=groups)[0]


def list_choices(matrices: Tensor, target: Target, *, center: bool | str = "auto", groups: int = 1) -> list[Choice]:
    """List all ways that certify a target, those with the fewest matrix products first."""
    sigma_min, bound, schedule = target
    aim = with_reserve(sigma_min, matrices.dtype)
    _, center, groups = check_options(matrices.shape, 0, center, bound or "compact", groups, schedule or "newton")
    starts = find_starts(matrices, center=center, groups=groups, in_training=True)
    n, d = matrices.shape[-2] // groups, matrices.shape[-1]
    choices: list[Choice] = []
    for candidate in [bound] if bound else CANDIDATES:
        for name in [schedule] if schedule else ("newton", "minimax"):
            find = find_minimax if name == "minimax" else find_steps
            choices += find(candidate, name, starts[candidate], aim)
            if name == "minimax" and LEAST <= starts[candidate][0] < STEEP_BELOW and matrices.dtype != torch.float64:
                choices += find_mild(candidate, starts[candidate], aim)
    if not choices:
        lowest = min(low for low, _ in starts.values())
        raise ValueError(
            f"no minimax schedule certifies it for singular values from {lowest:.2g} of the bound; "
            'pass schedule="newton", or initialise it again'
        )
    return sorted(choices, key=lambda choice: rank(choice, n, d, matrices.dtype))


def with_reserve(sigma_min: float, dtype: torch.dtype) -> float:
    """Return what to certify in exact arithmetic, so that the weight reaches the target in this dtype as well."""
    work = work_dtype(dtype)
    # Evaluation rounds by some epsilons; rounding the weight to half precision moves it by up to half an epsilon.
    rounding = 32 * torch.finfo(work).eps + (torch.finfo(dtype).eps / 2 if dtype != work else 0.0)
    aim = sigma_min + max(rounding, 0.01 * (1 - sigma_min))
    if aim >= 1:
        raise ValueError(f"it is too close to 1 for the precision of {dtype}; pass at most {1 - 2 * rounding:.6g}")
    return aim


def find_steps(bound: str, schedule: str, start: tuple[float, float], aim: float) -> list[Choice]:
    """List the ways with a fixed schedule."""
    steps = first_reaching(get_schedule(schedule).ranges(*start), aim)
    return [Choice(bound, schedule, count) for count in range(steps, steps + FURTHER)]


def find_minimax(bound: str, _: str, start: tuple[float, float], aim: float) -> list[Choice]:
    """List the ways with a minimax schedule, made for each number of steps."""
    found: list[Choice] = []
    steps = 1
    while len(found) < FURTHER:
        lowest = lowest_start(aim, steps)
        if lowest < LEAST:
            break
        name = f"minimax:{round_up(lowest)}"
        if lowest <= start[0] and certified_range(start, steps, schedule=name)[0] >= aim:
            found.append(Choice(bound, name, steps))
        steps += 1
    return found


def find_mild(bound: str, start: tuple[float, float], aim: float) -> list[Choice]:
    """List the ways with a schedule for a higher start."""
    choices: list[Choice] = []
    for name in MILD:
        # Where rounding ends before the aim is certified, the others still may.
        with suppress(ValueError):
            choices += find_steps(bound, name, start, aim)
    return choices


@lru_cache(maxsize=1024)
def lowest_start(aim: float, steps: int) -> float:
    """Return the lowest start from which this many minimax steps reach the aim: at most 1e-4 of it too high."""
    if steps == 0:
        return aim
    if steps % 2:
        return invert(lift_by_step, lowest_start(aim, steps - 1))
    return invert(lift_by_pair, lowest_start(aim, steps - 2))


def invert(lift: Callable[[float], float], value: float) -> float:
    """Return the lower end that is lifted to this value: at most 1e-4 of it too high."""
    # No stage lifts to eight times the start: the steepest of degree 9 has slope 7.61 at zero.
    low, high = math.log(value / 8), math.log(value)
    while high - low > 2e-4:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if lift(math.exp(middle)) >= value else (middle, high)
    return math.exp(high)


def round_up(number: float) -> str:
    """Round a positive number up to three digits.

    >>> round_up(0.0412345), round_up(0.25)
    ('0.0413', '0.25')
    """
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / unit - 1e-9) * unit:.3g}"


def rank(choice: Choice, n: int, d: int, dtype: torch.dtype) -> tuple[int, bool]:
    """Sort key for weights of a dtype: cheaper choices first, the paper's own iteration before an equally cheap one."""
    bound, schedule, steps = choice
    price = DOUBLE_PRICE if dtype != torch.float64 and works_in_double(choice) else 1
    return price * sum(count_products(steps, bound=bound, schedule=schedule).multiply_adds(n, d)), schedule != "newton"


def works_in_double(choice: Choice) -> bool:
    """Whether float32 would not do for the work (:mod:`oni.newton.precision`)."""
    return planned_before(choice.schedule, choice.steps, torch.float32, "cpu", choice.bound, True)[0] == torch.float64
