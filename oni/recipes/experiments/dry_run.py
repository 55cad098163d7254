"""``oni reproduce --dry-run`` and ``--finished``: which runs are finished, and how long the others may take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from oni.recipes.experiments.experiment import Experiment, Results, Run
from oni.recipes.experiments.run_costs import estimate_cost
from oni.recipes.experiments.runs import Training, read_finished
from oni.recipes.experiments.setting import Setting
from oni.recipes.experiments.texts import format_duration

__all__ = ["Progress", "find_progress"]

FINISHED, TO_DO = "finished", "to do"


@dataclass(frozen=True)
class Progress:
    """Which runs of an experiment are finished."""

    runs: list[Run | None]
    """Every run with its measurements; ``None`` if it is not finished."""
    estimate: str
    """The time that the others may take, in words."""

    @property
    def states(self) -> list[str]:
        """For every run, "finished" or "to do"."""
        return [TO_DO if run is None else FINISHED for run in self.runs]

    @property
    def results(self) -> Results:
        """The finished runs."""
        return Results(run for run in self.runs if run is not None)


def find_progress(experiment: Experiment, planned: Sequence[Any], setting: Setting) -> Progress:
    """Look for every run in the folder of runs, without training, measuring or writing anything."""
    if not experiment.trains:
        return Progress([None] * len(planned), "no runs are stored, so all are measured")
    reading = replace(setting, inception=None, inception_sha256=None, classifier=None)
    runs: list[Run | None] = []
    finished_cost, cost_left = 0.0, 0.0
    seconds: dict[str, float] = {}
    """By the folder of a training, because several runs may share a search."""
    for parameters in planned:
        training = parameters if isinstance(parameters, Training) else None
        try:
            results = training and read_finished(training, reading)
        except FileNotFoundError:
            if setting.data is not None:
                raise
            nothing: list[Run | None] = [None] * len(planned)
            return Progress(nothing, "the data set was not found; pass --data to see what is finished")
        runs.append(experiment.run(parameters, reading) if results else None)
        if results and training:
            finished_cost += estimate_cost(training)
            seconds |= {result.folder.name: result.metrics["seconds"] for result in results}
        elif training:
            cost_left += estimate_cost(training)
    if None not in runs:
        return Progress(runs, "nothing is left to do")
    if not seconds:
        return Progress(runs, "no finished run yet to estimate the time from")
    left = format_duration(cost_left * sum(seconds.values()) / finished_cost)
    return Progress(runs, f"about {left} left if run one after the other, judging by the finished runs")
