"""A process of its own that trains: python train_worker.py OUT ENDING KEY=VALUE...

ENDING: "whole"; "kill:N", kill -9 by itself after step N; "slow:N", says so after step N and then takes its time;
"two", as one of two processes that Fabric or torchrun starts; "fsdp2", the same in shards.
"""

import os
import signal
import sys
import time

import torch

from oni.recipes.run_files.config import Config
from oni.recipes.run_files.overrides import apply_changes
from oni.recipes.training.devices import Hardware
from oni.recipes.training.interruption import Interrupted
from oni.recipes.training.run import train

BASE = Config(
    data="fashion-mnist-sample",
    network_options={"depth": 2, "width": 24},
    momentum=0.9,
    batch_size=64,
    samples=1024,
    validation=101,
    epochs=2,
    drops=(1,),
    watch=("eye",),
)


def eye(ending, at):
    def look(step, model):
        if step == at and ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if step >= at and ending == "slow":
            if step == at:
                print("slow", flush=True)
            time.sleep(0.05)
        # A draw from the generator that training uses: watching must leave no trace.
        return float(torch.rand(())) * 0 + step if step % 16 == 0 else None

    return look


def main(out, ending, *changes):
    torch.set_num_threads(1)
    ending, _, at = ending.partition(":")
    strategies = {"two": "ddp", "fsdp2": "fsdp2"}
    hardware = Hardware("cpu", 2, strategies[ending]) if ending in strategies else Hardware("cpu")
    try:
        train(
            apply_changes(BASE, changes),
            out,
            hardware=hardware,
            watch={"eye": eye(ending, int(at or 0))},
            progress="lines",
            checkpoint_steps=5,
        )
    except Interrupted as error:
        code = error.exit_code
    else:
        code = 0
    # gloo's threads race with the interpreter's own exit, and now and then abort it.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
