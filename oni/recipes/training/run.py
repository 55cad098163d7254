"""Train one configuration, once: what is finished is not trained again, what was cut off continues bit for bit.

>>> from tempfile import TemporaryDirectory
>>> from oni.recipes.training.config import Config
>>> config = Config(data="fashion-mnist-sample", network_options={"depth": 1, "width": 8}, epochs=1, samples=512)
>>> with TemporaryDirectory() as out:
...     first = train(config, out, progress="none")
...     again = train(config, out, progress="none")
>>> first.metrics == again.metrics, first.metrics["steps"], again.trained
(True, 2, False)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from oni.machine import code_version, machine, versions
from oni.recipes.data.batches import split
from oni.recipes.data.subjects import DATASETS, Images
from oni.recipes.training.config import Config
from oni.recipes.training.devices import Hardware, launched
from oni.recipes.training.interruption import listening
from oni.recipes.training.loop import Loop, Saving, Watch
from oni.recipes.training.progress import Reporter, reporter
from oni.recipes.training.run_folder import RunFolder, Unfinished

__all__ = ["Result", "finished", "train"]


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    config: Config
    folder: Path
    metrics: dict[str, Any]
    """``status`` is "finished", or "diverged" if a loss was not finite, and then what could not be measured is None."""
    epochs: list[dict[str, Any]]
    """One row for each epoch."""
    watched: dict[str, dict[int, Any]]
    """What each watching function gave, by step."""
    trained: bool
    """Whether it was trained now, at least in part."""

    @property
    def diverged(self) -> bool:
        return bool(self.metrics["status"] == "diverged")


def train(
    config: Config,
    out: Path | str,
    *,
    data: Images | Path | None = None,
    hardware: Hardware | None = None,
    watch: Mapping[str, Watch] | None = None,
    progress: str | Reporter = "auto",
    resume: bool = True,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
) -> Result:
    """Train a configuration, continue it, or return what it gave.

    Args:
        config: what to train.
        out: the folder in which the run has its own.
        data: where the data are: their folder, or themselves. The data set's own place otherwise.
        hardware: on what. Not part of what a run is, as the batch is the same over any number of devices.
        watch: for every name in ``config.watch``, a function called with the number of steps done and the model (in
            evaluation mode, once before training and after each step). What it returns other than ``None`` must be
            plain JSON values and is recorded. After an interruption, steps since the checkpoint are seen again.
        progress: see :func:`oni.recipes.training.progress.reporter`.
        resume: continue what was interrupted; otherwise that is an error.
        checkpoint_seconds, checkpoint_steps: how often to save.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM, once a checkpoint is written.
        NotSaved: if the folder can't be written to.
        Busy: if another process is training the same.
        Unfinished: if it was interrupted and ``resume`` is false.
    """
    watch = dict(watch or {})
    if set(watch) != set(config.watch):
        raise ValueError(f"watch must have the names of config.watch, {list(config.watch)}; got {list(watch)}")
    hardware = hardware or Hardware()
    folder = RunFolder(Path(out), config)
    alone = hardware.devices * hardware.num_nodes == 1 and "TORCHELASTIC_RUN_ID" not in os.environ
    if alone and (found := finished(config, out)):
        return found
    fabric = launched(hardware, config.precision)
    if not alone and (found := fabric.broadcast(finished(config, out) if fabric.is_global_zero else None)):
        return found
    with ExitStack() as inside:
        inside.enter_context(torch.random.fork_rng([fabric.device] if fabric.device.type == "cuda" else []))
        inside.enter_context(torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True))
        if fabric.is_global_zero:
            inside.enter_context(folder.opened())
            if not resume and (left := folder.checkpoints()):
                raise Unfinished(
                    f"{folder.path}: interrupted after step {left[0][1]}; pass --resume to continue it, or remove the "
                    "folder to start it anew"
                )
        stop = inside.enter_context(listening())
        images = data if isinstance(data, Images) else DATASETS[config.data](data)
        dtype = torch.float64 if config.precision == "64-true" else torch.float32
        loop = Loop(
            config,
            fabric,
            split(images, config, fabric.device, dtype),
            watch,
            reporter(progress if fabric.is_global_zero else "none"),
            Saving(folder, stop, checkpoint_seconds, checkpoint_steps),
        )
        loop.resume(images.sha256())
        if fabric.is_global_zero:
            record_session(folder, fabric, hardware, images, loop.step)
        loop.run()
        fabric.barrier()
    ended = fabric.broadcast(finished(config, out) if fabric.is_global_zero else None)
    assert ended is not None
    return Result(config, ended.folder, ended.metrics, ended.epochs, ended.watched, trained=True)


def finished(config: Config, out: Path | str) -> Result | None:
    """What a run gave, read from its folder; ``None`` if it has not ended."""
    folder = RunFolder(Path(out), config)
    record = folder.read("metrics.json")
    if record is None:
        return None
    watched = {name: {int(step): value for step, value in of.items()} for name, of in record["watched"].items()}
    return Result(config, folder.path, record["metrics"], record["epochs"], watched, trained=False)


def record_session(folder: RunFolder, fabric: Fabric, hardware: Hardware, images: Images, step: int) -> None:
    """Add to run.json what trains from this step on."""
    known = folder.read("run.json") or {"name": folder.path.name, "data_sha256": images.sha256(), "sessions": []}
    session = {
        "from_step": step,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "code": code_version(),
        "versions": {**versions(), "lightning-fabric": version("lightning-fabric")},
        "machine": machine(str(fabric.device)),
        "hardware": {**asdict(hardware), "processes": fabric.world_size},
    }
    folder.write_json("run.json", {**known, "sessions": [*known["sessions"], session]})
