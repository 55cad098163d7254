"""``oni reproduce --dry-run`` and ``--finished``: which runs are finished, and how long the others may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oni.recipes.experiments.experiment import Experiment, Results, Run
from oni.recipes.experiments.setting import NoData, NotTrained, Setting
from oni.recipes.experiments.texts import format_seconds

__all__ = ["Progress", "find_progress"]

FINISHED, TO_DO = "finished", "to do"


@dataclass(frozen=True)
class Progress:
    """How far an experiment is."""

    runs: list[Run | None]
    """What every run gave; ``None`` if it is not finished."""
    estimate: str
    """How long the rest may take, in words."""

    @property
    def states(self) -> list[str]:
        """Of every run: "finished" or "to do"."""
        return [TO_DO if run is None else FINISHED for run in self.runs]

    @property
    def results(self) -> Results:
        """What the finished runs gave."""
        return Results(run for run in self.runs if run is not None)


def find_progress(experiment: Experiment, planned: Sequence[Any], setting: Setting) -> Progress:
    """Look for every run in the folder of runs, without training or writing anything."""
    if not experiment.trains:
        return Progress([None] * len(planned), "nothing of it is kept, so all are measured")
    runs: list[Run | None] = []
    finished_cost, cost_left, no_data = 0.0, 0.0, False
    seconds: dict[str, float] = {}
    """Of every training that was needed, as a search that several runs share took its time once."""
    for parameters in planned:
        own = replace(setting, dry_run=True, seconds={})
        try:
            runs.append(experiment.run(parameters, own))
        except NotTrained as error:
            no_data |= isinstance(error, NoData)
            runs.append(None)
            cost_left += experiment.cost(parameters)
        else:
            finished_cost += experiment.cost(parameters)
            seconds |= own.seconds
    if not cost_left:
        return Progress(runs, "nothing is left to do")
    if no_data:
        return Progress(runs, "the data are not here; pass --data to see what is finished")
    if not seconds:
        return Progress(runs, "no finished run to estimate the time of the others from")
    left = format_seconds(cost_left * sum(seconds.values()) / finished_cost)
    return Progress(runs, f"about {left} left one after the other, by the finished ones")
