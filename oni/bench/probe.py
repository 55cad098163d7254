"""The first call of a contender: does it work, and is it fast enough to be measured?"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from oni.bench.contender import Contender, WeightJob

__all__ = ["Probe", "growing_shapes", "probe"]

SMALLEST = 64
FORESIGHT = 2
"""How far off the estimate of a call's time from that on half the size may be."""
CALLS = 3
"""The fastest of so many counts: the first may be all loading of libraries, another slowed by someone else."""


class Probe(NamedTuple):
    """A job and its results, or why there is none."""

    job: WeightJob | None = None
    W: Sequence[Tensor] = ()
    dZ: tuple[Tensor, ...] = ()
    word: str = ""
    """Why there is no job."""
    at_least: float | None = None
    """Seconds that one call of a skipped contender takes at the very least."""


def growing_shapes(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes from small to the one given, each side doubling.

    >>> growing_shapes((256, 2304))
    [(64, 576), (128, 1152), (256, 2304)]
    """
    *batch, n, d = shape
    sizes = [shape]
    while min(n, d) > SMALLEST:
        n, d = n // 2, d // 2
        sizes.insert(0, (*batch, n, d))
    return sizes


def probe(
    contender: Contender,
    shape: tuple[int, ...],
    inputs: Callable[[tuple[int, ...]], tuple[Tensor, Tensor]],
    *,
    patience: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Probe:
    """Run a contender on growing matrices until it is too slow, fails, or has done the whole.

    A call can't be stopped once it is in a library, and some would take minutes. All of them are cubic in the
    size, so the time on half the size tells, eightfold, whether to try the whole.

    Args:
        contender: what to try.
        shape: the shape of the whole.
        inputs: Z and G for a shape.
        patience: the longest that one call may take, in seconds.
        clock: seconds since some moment.
    """
    budget, expected = (0.0 if contender.patient else max(1.0, patience)), math.inf
    for size in [shape] if contender.patient else growing_shapes(shape):
        try:
            job = contender.prepare(*inputs(size))
            W, dZ, seconds = run_fastest(job, budget, expected, clock)
        except (RuntimeError, ValueError, MemoryError) as error:
            return Probe(word=f"failed: {shorten_error(error)}")
        if contender.patient:
            break
        if size == shape and seconds > patience:
            return Probe(word=f"skipped: one call took {seconds:.2g} s", at_least=seconds)
        expected = FORESIGHT * 8 * seconds
        if size != shape and 8 * seconds > FORESIGHT * patience:
            smaller = "x".join(map(str, size))
            return Probe(word=f"skipped: {smaller} alone took {seconds:.2g} s", at_least=seconds)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in (*W, *dZ)):
        return Probe(word="failed: not finite")
    return Probe(job, W, dZ)


def run_fastest(
    job: WeightJob, budget: float, expected: float, clock: Callable[[], float]
) -> tuple[list[Tensor], tuple[Tensor, ...], float]:
    """The results of a call, and the least seconds of several; of one, if it uses up the budget as expected."""
    seconds: list[float] = []
    while not seconds or (len(seconds) < CALLS and (sum(seconds) < budget or min(seconds) > expected)):
        before = clock()
        W, dZ = job.run()
        seconds.append(clock() - before)
    return [tensor.detach() for tensor in W], dZ, min(seconds)


def shorten_error(error: BaseException, length: int = 80) -> str:
    """An error's message on one line, cut where it is long."""
    line = " ".join(str(error).split()) or type(error).__name__
    return line if len(line) <= length else line[: length - 3] + "..."
