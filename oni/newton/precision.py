r"""How to stay correct at any number of steps: which precision to work in, and when to form the Gram matrix anew.

The map has slope :math:`\prod_t \tfrac32 \alpha_t` at zero (:math:`1.5^T` for Newton's), and rounding noise in a null
space or beside a tiny singular value grows by that factor, whatever the form. The coupled recurrence sees the matrix
through its Gram matrix, so there the noise grows with the *square* of the slope. Hence two rules, which depend on the
number of steps alone, never on the data:

* Where epsilon times the slope would pass :data:`NOISE_ALLOWED`, float32 gives way to float64 (from 17 Newton steps).
* The recurrence runs in parts of bounded slope (8 Newton steps in float32, 16 in float64); between two parts the matrix
  itself is formed, centred again, and its Gram matrix with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise

import torch

from oni.newton.evaluation import Spec
from oni.newton.iteration import stages
from oni.newton.schedule import stretches

__all__ = ["planned", "planned_before"]

NOISE_ALLOWED = 1e-4
# The largest slope of one part. Its noise is epsilon times the square: 8e-5 in float32, 1e-10 in float64.
SEGMENT_SLOPE = {torch.float32: 1.5**8, torch.float64: 1.5**16}


def slope_at_zero(stretches: Sequence[float]) -> float:
    return math.prod([1.5 * a for a in stretches])


def planned(
    schedule: str, steps: int, dtype: torch.dtype, device_type: str, bound: str, center: bool
) -> tuple[torch.dtype, list[Spec]]:
    """The working precision, and the schedule cut into the fewest, evenly long parts whose slope it can bear."""
    whole = stretches(schedule, steps)
    slope = slope_at_zero(whole)
    noisy = torch.finfo(torch.float32).eps * slope > NOISE_ALLOWED and device_type != "mps"
    dtype = torch.float64 if noisy or dtype == torch.float64 else torch.float32
    parts = max(1, math.ceil(math.log(slope) / math.log(SEGMENT_SLOPE[dtype]) - 1e-9))
    cuts = [round(i * steps / parts) for i in range(parts + 1)]
    return dtype, [Spec(stages(whole[start:stop]), None if start else bound, center) for start, stop in pairwise(cuts)]


planned_before = cache(planned)
