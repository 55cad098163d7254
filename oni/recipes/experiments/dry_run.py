"""``oni reproduce --dry-run``: which runs are finished, and how long the others may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oni.recipes.experiments.experiment import Experiment
from oni.recipes.experiments.setting import NoData, NotTrained, Setting
from oni.recipes.experiments.texts import format_seconds

__all__ = ["Progress", "find_progress"]

FINISHED, TO_DO = "finished", "to do"


@dataclass(frozen=True)
class Progress:
    """How far an experiment is."""

    states: list[str]
    """Of every run: "finished" or "to do"."""
    estimate: str
    """How long the rest may take, in words."""


def find_progress(experiment: Experiment, planned: Sequence[Any], setting: Setting) -> Progress:
    """Look for every run in the folder of runs, without training or writing anything."""
    if not experiment.trains:
        return Progress([TO_DO] * len(planned), "nothing of it is kept, so all are measured")
    states, finished_cost, cost_left, no_data = [], 0.0, 0.0, False
    seconds: dict[str, float] = {}
    """Of every training that was needed, as a search that several runs share took its time once."""
    for parameters in planned:
        own = replace(setting, dry_run=True, seconds={})
        try:
            experiment.run(parameters, own)
        except NotTrained as error:
            no_data |= isinstance(error, NoData)
            states.append(TO_DO)
            cost_left += experiment.cost(parameters)
        else:
            states.append(FINISHED)
            finished_cost += experiment.cost(parameters)
            seconds |= own.seconds
    if not cost_left:
        return Progress(states, "nothing is left to do")
    if no_data:
        return Progress(states, "the data are not here; pass --data to see what is finished")
    if not seconds:
        return Progress(states, "no finished run to estimate the time of the others from")
    left = format_seconds(cost_left * sum(seconds.values()) / finished_cost)
    return Progress(states, f"about {left} left one after the other, by the finished ones")
