"""Everyone who computes a weight of one shape: tried, checked, their memory measured, then timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from torch import Tensor

from oni.bench.contender import Contender, WeightJob, join, measure_orthogonality
from oni.bench.limit import product_calls
from oni.bench.memory import peak_memory
from oni.bench.probe import probe
from oni.bench.settings import Settings
from oni.bench.shape_result import ContenderTimes, ShapeResult
from oni.timing import Watch, interleaved

__all__ = ["measure_contenders"]

TRIED = 0.3
"""Which part of a case is over, once everyone has been tried."""


def measure_contenders(
    contenders: Sequence[Contender],
    result: ShapeResult,
    draw: Callable[[tuple[int, ...]], tuple[Tensor, Tensor]],
    settings: Settings,
    watch: Watch,
    *,
    check: Callable[[ContenderTimes, Tensor, Tensor], str],
) -> None:
    """Measure all contenders of a case; ``result`` is filled on the way.

    Args:
        contenders: who takes part.
        result: of the case, with its shape.
        draw: Z and G for a shape.
        settings, watch: as everywhere.
        check: from what is known of a contender, its weight and its gradient to why it is not timed, if it is not.
    """
    # Some inputs take seconds to draw. No contender writes to them.
    draw = lru_cache(maxsize=None)(draw)
    jobs: dict[str, WeightJob] = {}
    for number, contender in enumerate(contenders):
        name = contender.name
        watch(f"trying {name}", TRIED * number / len(contenders))
        entry = result.entries[name] = ContenderTimes(contender)
        if settings.quick and not contender.products:
            contender = replace(contender, patient=False)
        tried = probe(contender, result.shape, draw, patience=settings.patience)
        entry.word = tried.word
        # A quick run has too little patience for its skipping to prove anything.
        entry.at_least = None if settings.quick else tried.at_least
        if tried.job is None:
            continue
        W, dZ = join(tried.W), join(tried.dZ)
        entry.orthogonality = measure_orthogonality(W)
        entry.word = check(entry, W, dZ)
        if not entry.word:
            entry.peak = peak_memory(tried.job.run, settings.device)
            jobs[name] = tried.job
    bare = product_calls(draw(result.shape)[0])
    for call in bare.values():
        call()
    calls = {name: job.run for name, job in jobs.items()} | bare
    times = {name: result.entries[name].times for name in jobs} | result.products
    for done in interleaved(calls, times, seconds=settings.seconds, least_rounds=settings.least_rounds):
        watch("taking turns", TRIED + (1 - TRIED) * done)
