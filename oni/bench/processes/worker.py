"""One process of several: python -m oni.bench.processes.worker PLAN PROCESSES FOLDER RANK.

All take their training steps in turns, together; the first one writes FOLDER/measured.json.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from oni.bench.processes.cases import ProcessesCase, list_shared_methods
from oni.bench.settings import SEED
from oni.bench.training import TrainingStep, classification
from oni.machine import keep_freed_memory
from oni.models.cache import CACHE
from oni.models.roll_call import Place
from oni.models.share import Sharing
from oni.timing import Times, shuffle

__all__ = ["main"]

WARM_UP = 2
"""Steps before the first that counts: DistributedDataParallel arranges its buckets anew after one."""
EXCHANGES = 20


def main(plan: str, processes: str, folder: str, rank: str) -> None:
    """Measure, together with the other processes."""
    fields = json.loads(plan)
    seconds, least_rounds = fields.pop("seconds"), fields.pop("least_rounds")
    case = ProcessesCase(**{**fields, "shape": tuple(fields["shape"])})
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    keep_freed_memory()
    dist.init_process_group("gloo", f"file://{folder}/rendezvous", rank=int(rank), world_size=int(processes))
    nets, steps = build_steps(case, int(processes))
    times = run_in_turns(steps, seconds, least_rounds)
    everyone: list[Any] = [None] * int(processes)
    dist.all_gather_object(everyone, times)
    shared = [sharing for net in nets if isinstance(sharing := CACHE.models.get(net), Sharing)]
    exchange = [time_exchange(sharing) for sharing in shared]
    if int(rank) == 0:
        content = {
            # A step is over when the last process is done with it.
            "times": {
                name: {number: max(times[name][number] for times in everyone) for number in times[name]}
                for name in times
            },
            "exchange_seconds": statistics.median(exchange) if exchange else 0.0,
        }
        Path(folder, "measured.json").write_text(json.dumps(content), encoding="utf-8")
    dist.barrier()
    sys.stderr.flush()
    # gloo's threads race with the interpreter's own exit, and now and then abort it.
    os._exit(0)


def build_steps(case: ProcessesCase, processes: int) -> tuple[list[nn.Module], dict[str, Callable[[], Tensor]]]:
    """A network for each method, wrapped, with some steps done."""
    torch.manual_seed(SEED)
    plain = case.build()
    loss = classification(case.shape, case.batch, case.classes, "cpu")
    nets: list[nn.Module] = []
    steps: dict[str, Callable[[], Tensor]] = {}
    for method in list_shared_methods(processes):
        net = deepcopy(plain)
        nets.append(net)
        method.apply(net)
        steps[method.name] = TrainingStep(DistributedDataParallel(net), loss)
        for _ in range(WARM_UP):
            steps[method.name]()
    return nets, steps


def run_in_turns(steps: dict[str, Callable[[], Tensor]], seconds: float, least_rounds: int) -> dict[str, Times]:
    """Rounds of one step each, as many as the first process has time for; all begin a step together."""
    times: dict[str, Times] = {name: {} for name in steps}
    started, number = time.perf_counter(), 0
    while True:
        enough = torch.tensor(number >= least_rounds and time.perf_counter() - started >= seconds)
        dist.broadcast(enough, 0)
        if enough:
            return times
        for name in shuffle(list(steps), number):
            dist.barrier()
            before = time.perf_counter()
            steps[name]()
            times[name][number] = time.perf_counter() - before
        number += 1


def time_exchange(sharing: Sharing) -> float:
    """What all that a shared step sends takes by itself, with nothing computed meanwhile."""
    slots = sharing.make_slots(range(len(sharing.members)))
    values = {index: torch.zeros(slot.shape, dtype=slot.dtype) for index, slot in slots.items()}
    seconds = []
    for number in range(EXCHANGES):
        dist.barrier()
        before = time.perf_counter()
        sharing.roll_call.meet(Place("timing", number))
        sharing.transport.broadcast(values, slots)
        sharing.roll_call.meet(Place("timing", number))
        sharing.transport.reduce(values, slots)
        seconds.append(time.perf_counter() - before)
    return statistics.median(seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
