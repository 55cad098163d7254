"""Train runs in this process, one after the other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import TypeVar

from oni.recipes.grid.jobs import POLL_SECONDS, Attempt, Job
from oni.recipes.progress.overall import Overall
from oni.recipes.run_files.run_folder import Busy

__all__ = ["train_in_turns"]

T = TypeVar("T")


def train_in_turns(jobs: Sequence[Job[T]], overall: Overall) -> list[T]:
    """Every run; one that another process is training comes last, so that several processes share the work."""
    finished: dict[int, T] = {}
    turns, postponed, awaited = deque(range(len(jobs))), 0, 0
    while turns:
        number = turns.popleft()
        run = overall.begin(jobs[number].heading, jobs[number].step_cost)
        try:
            finished[number], postponed = jobs[number].train(Attempt(run)), 0
        except Busy:
            turns.append(number)
            postponed += 1
            if postponed >= len(turns):
                if awaited != len(turns):
                    awaited = len(turns)
                    runs = "a run" if awaited == 1 else f"{awaited} runs"
                    overall.note(f"waiting for {runs} that other processes have; Ctrl-C leaves them alone")
                time.sleep(POLL_SECONDS)
        else:
            run.finish()
    return [finished[number] for number in range(len(jobs))]
