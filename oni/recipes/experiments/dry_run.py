"""``oni reproduce --dry-run``: which runs are finished, and how long the others may take."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from oni.recipes.experiments.experiment import Experiment
from oni.recipes.experiments.setting import NotTrained, Setting
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
    setting = replace(setting, dry_run=True)
    states, seconds, finished_cost, cost_left = [], 0.0, 0.0, 0.0
    for parameters in planned:
        try:
            run = experiment.run(parameters, setting)
        except NotTrained:
            states.append(TO_DO)
            cost_left += experiment.cost(parameters)
        else:
            states.append(FINISHED)
            finished_cost += experiment.cost(parameters)
            seconds += read_seconds(setting.runs / str(run.measured["run"]))
    if not cost_left:
        return Progress(states, "nothing is left to do")
    if not seconds:
        return Progress(states, "no finished run to estimate the time of the others from")
    return Progress(states, f"about {format_seconds(cost_left * seconds / finished_cost)} left, by the finished ones")


def read_seconds(folder: Path) -> float:
    """How long a finished run took."""
    return float(json.loads((folder / "metrics.json").read_text(encoding="utf-8"))["metrics"]["seconds"])
