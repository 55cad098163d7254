r"""How to stay correct at any number of steps: which precision to work in, and when to form the Gram matrix anew.

The map has a slope at zero (:math:`1.5^T` for Newton's), and rounding noise in a null space or next to a tiny singular
value grows by that factor in every form of the iteration. A minimax schedule that starts low is also steep at 1, at
least after some of its stages; its curvature there spoils the gradient first. The coupled recurrence sees the
matrix through its Gram matrix, so near zero the noise grows with the *square* of the slope there. Hence two rules,
which depend only on the schedule and the number of steps, never on the data:

* If epsilon times the slope at zero would exceed :data:`NOISE_ALLOWED`, or the slope at 1 :data:`STEEP_ALLOWED`,
  the work is done in float64 instead of float32 (for 17 Newton steps or more; for 4 minimax steps that start at 0.02).
* The recurrence runs in parts of bounded slope at zero (8 Newton steps in float32, 16 in float64); between two parts
  the matrix itself is formed, centred again, and its Gram matrix with it.
"""

from __future__ import annotations

from functools import cache

import torch

from oni.newton.evaluation import Spec
from oni.newton.schedule import get_schedule
from oni.newton.stage import Stage

__all__ = ["planned", "planned_before"]

NOISE_ALLOWED = 1e-4
STEEP_ALLOWED = 180.0
"""Measured: beyond it the gradient in float32 may be off by more than 1e-4."""
# The largest slope of one part. Its noise is epsilon times the square: 8e-5 in float32, 1e-10 in float64.
SEGMENT_SLOPE = {torch.float32: 1.5**8, torch.float64: 1.5**16}


def planned(
    schedule: str, steps: int, dtype: torch.dtype, device_type: str, bound: str, center: bool
) -> tuple[torch.dtype, list[Spec]]:
    """Return the working precision, and the stages in the fewest parts whose slopes it allows."""
    # Half precision overflows to infinity as any gradient does in it: scalers of the loss wait for that.
    largest = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).max
    dtype, parts = divided(schedule, steps, dtype, device_type)
    return dtype, [Spec(stages, None if index else bound, center, largest) for index, stages in enumerate(parts)]


planned_before = cache(planned)


def divided(schedule: str, steps: int, dtype: torch.dtype, device_type: str) -> tuple[torch.dtype, list[list[Stage]]]:
    found = get_schedule(schedule)
    whole = found.stages(steps)
    noisy = torch.finfo(torch.float32).eps * slopes_at(0.0, whole)[-1] > NOISE_ALLOWED
    noisy = (noisy or max(slopes_at(1.0, whole)) > STEEP_ALLOWED) and device_type != "mps"
    dtype = torch.float64 if noisy or dtype == torch.float64 else torch.float32
    return dtype, found.split(steps, SEGMENT_SLOPE[dtype])


# Otherwise torch.compile would trace how the coefficients of a schedule are computed. This is all that
# torch.compiler.assume_constant_result does, but for importing the compiler, which takes as long as importing torch.
divided._dynamo_marked_constant = True  # type: ignore[attr-defined]


def slopes_at(s: float, stages: list[Stage]) -> list[float]:
    """The absolute slopes of the map at s after each of its stages, and before the first."""
    slopes = [1.0]
    for stage in stages:
        slopes.append(slopes[-1] * abs(stage.derivative(s)))
        s = stage.value(s)
    return slopes
