"""Train many runs with the engine that the user chose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from oni.recipes.grid.jobs import Engine, Job
from oni.recipes.grid.local import train_in_turns
from oni.recipes.progress.overall import Overall
from oni.recipes.training.devices import is_first_process

__all__ = ["run_jobs"]

T = TypeVar("T")


def run_jobs(
    jobs: Sequence[Job[T]],
    name: str,
    *,
    engine: Engine,
    progress: str,
    folder: Path,
    accelerator: str,
    resumes: bool = False,
) -> list[T]:
    """Train all runs, and return what each gave, in the order of ``jobs``.

    Args:
        jobs: the runs.
        name: of the experiment, for the progress bar.
        engine: where to train them.
        progress: how to show them, see :func:`oni.recipes.progress.reporters.make_reporter`.
        folder: holds the folders of the runs; with Ray, all machines must share it.
        accelerator: which the user chose.
        resumes: whether the same command continues after an interruption, or needs ``--resume``.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, once every run that trained has written a checkpoint.
    """
    at_once = engine.name == "ray"
    costs = [job.step_cost for job in jobs]
    quiet = not is_first_process()
    with Overall(name, len(jobs), progress, quiet=quiet, at_once=at_once, step_costs=costs) as overall:
        if not at_once:
            return train_in_turns(jobs, overall)
        from oni.recipes.grid.ray_grid import train_on_ray

        return train_on_ray(jobs, overall, engine, folder, accelerator, resumes=resumes)
