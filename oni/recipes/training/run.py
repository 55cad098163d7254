"""Train one configuration, once: a finished run is not trained again, an interrupted one continues bit for bit.

>>> from tempfile import TemporaryDirectory
>>> from oni.recipes.run_files.config import Config
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
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oni.machine import code_version, keep_freed_memory, machine, versions
from oni.recipes.data.datasets import is_official, load_dataset
from oni.recipes.data.images import Dataset
from oni.recipes.progress.reporters import Reporter, Silent, make_reporter
from oni.recipes.run_files.config import Config
from oni.recipes.run_files.own_code import REGISTRIES, source_sha256
from oni.recipes.run_files.run_folder import FORMAT, RunFolder, Unfinished
from oni.recipes.task_registry import load_task
from oni.recipes.training.devices import Hardware, launch_fabric, on_first_process, print_errors_once
from oni.recipes.training.interruption import Interrupted, catch_signals
from oni.recipes.training.loop import Loop, Saving, Watch

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Result", "find_result", "train"]

warned: set[str] = set()
"""Digests of data that a warning was printed for, so that a search over learning rates prints it once."""


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
    data: dict[str, Any] = field(default_factory=dict)
    """On which data: their ``name`` and ``sha256``, and whether they are the ``official`` ones."""

    @property
    def diverged(self) -> bool:
        return bool(self.metrics["status"] == "diverged")

    def best(self, metric: str) -> tuple[int, float] | None:
        """The epoch with the lowest value of a metric, counted from 1, and that value."""
        measured: list[tuple[float, int]] = [
            (row[metric], row["epoch"]) for row in self.epochs if row.get(metric) is not None
        ]
        if not measured:
            return None
        value, epoch = min(measured)
        return epoch, value


def train(
    config: Config,
    out: Path | str,
    *,
    data: Dataset | Path | None = None,
    hardware: Hardware | None = None,
    watch: Mapping[str, Watch] | None = None,
    progress: str | Reporter = "auto",
    resume: bool = True,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
) -> Result:
    """Train a configuration, continue it, or return its result.

    From then on the process keeps the memory that it frees (:func:`oni.machine.keep_freed_memory`).

    Args:
        config: what to train.
        out: the folder that holds the folders of runs.
        data: the data, or their folder. By default, the usual place of the data set.
        hardware: what to train on. Not part of the configuration, as the batch is the same on any number of devices.
        watch: for every name in ``config.watch``, a function called with the number of steps done and the model (in
            evaluation mode, once before training and after each step, or after those in its attribute ``steps``). What
            it returns other than ``None`` must be plain JSON values and is recorded. After an interruption, steps since
            the checkpoint are seen again.
        progress: a reporter, or the name of one, see :func:`oni.recipes.progress.reporters.make_reporter`. Nothing is
            reported before the run is known to be this process's own.
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
    report = make_reporter(progress) if isinstance(progress, str) else progress
    alone = hardware.devices * hardware.num_nodes == 1 and "TORCHELASTIC_RUN_ID" not in os.environ
    if data is None or isinstance(data, Path):
        dataset = load_dataset(config.data, data, options=config.data_options, workers=hardware.readers)
    else:
        dataset = data
    if alone and (result := find_result(config, out, dataset.sha256)):
        return result
    keep_freed_memory()
    with print_errors_once(), ExitStack() as inside:
        stop = inside.enter_context(catch_signals())
        fabric = launch_fabric(hardware, config.precision)
        if not fabric.is_global_zero:
            report = Silent()
        if result := on_first_process(fabric, lambda: find_result(config, out, dataset.sha256)):
            return result
        inside.enter_context(torch.random.fork_rng([fabric.device] if fabric.device.type == "cuda" else []))
        inside.enter_context(torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True))
        # Before the folder is made: a network or split that is refused leaves none.
        task = load_task(config.task)(config, fabric, dataset)
        if hardware.compile:
            task.compile()
        if hardware.share:
            task.share_weights()
        folder = RunFolder(Path(out), config, dataset.sha256)
        on_first_process(fabric, lambda: open_folder(folder, inside, resume=resume))
        # Another process may have finished it since.
        if result := on_first_process(fabric, lambda: find_result(config, out, dataset.sha256)):
            return result
        if stop.asked and fabric.world_size == 1:
            raise Interrupted(f"stopped before its first step; {folder.path} is unchanged")
        loop = Loop(task, watch, report, Saving(folder, stop, checkpoint_seconds, checkpoint_steps, resume))
        loop.resume()
        if fabric.is_global_zero:
            warn_of_other_data(config, dataset.sha256, report)
            record_session(folder, fabric, hardware, loop.step)
        loop.run()
        fabric.barrier()
        ended = on_first_process(fabric, lambda: find_result(config, out, dataset.sha256))
    assert ended is not None
    return replace(ended, trained=True)


def find_result(config: Config, out: Path | str, data_sha256: str | None = None) -> Result | None:
    """The result of a run, read from its folder; ``None`` if it has not ended.

    Args:
        config: which run.
        out: the folder that holds the folders of runs.
        data_sha256: the digest of its data; the official ones otherwise.

    Raises:
        ValueError: if the folder is of a newer version of oni, or was trained on other data or with other code.
    """
    folder = RunFolder(Path(out), config, data_sha256)
    record = folder.read("metrics.json")
    if record is None:
        return None
    check_origin(folder)
    try:
        metrics, epochs, watched = record["metrics"], record["epochs"], record["watched"]
        metrics["status"]
    except (KeyError, TypeError):
        path = folder.path / "metrics.json"
        raise ValueError(f"{path}: incomplete for a finished run; delete it to train this run again") from None
    watched = {name: {int(step): value for step, value in steps.items()} for name, steps in watched.items()}
    data = (folder.read("run.json") or {}).get("data", {})
    return Result(config, folder.path, metrics, epochs, watched, trained=False, data=data)


def open_folder(folder: RunFolder, inside: ExitStack, *, resume: bool) -> None:
    """Lock the folder, and check that what is in it may be continued."""
    inside.enter_context(folder.lock())
    check_origin(folder)
    if not resume and (checkpoints := folder.checkpoints()) and folder.read("metrics.json") is None:
        raise Unfinished(
            f"{folder.path}: interrupted after step {checkpoints[0][1]}; pass --resume to continue it, or remove the "
            "folder to start again"
        )


def check_origin(folder: RunFolder) -> None:
    """Refuse a run of other data, or of another version of the user's own network or method."""
    folder.check_data()
    for kind in REGISTRIES:
        name = getattr(folder.config, kind)
        before = (folder.read("run.json") or {}).get(f"{kind}_sha256")
        if before != source_sha256(kind, name) and before is not None:
            raise ValueError(
                f"{folder.path}: the file of {kind} {name} has changed since this run; move this folder away, or train "
                "into another --out"
            )


def warn_of_other_data(config: Config, sha256: str, report: Reporter) -> None:
    """Say once that the data are not the official ones."""
    if is_official(config.data, sha256) or sha256 in warned:
        return
    warned.add(sha256)
    report.warn(
        f"these are not the official data of {config.data} (sha256 {sha256[:8]}...); their runs are kept in separate "
        f"folders, named -data-{sha256[:8]}"
    )


def record_session(folder: RunFolder, fabric: Fabric, hardware: Hardware, step: int) -> None:
    """Add to run.json the machine and versions that train from this step on."""
    config, sha256 = folder.config, folder.data_sha256 or ""
    record = folder.read("run.json") or {
        "name": folder.path.name,
        "data_sha256": sha256,
        "sessions": [],
    }
    record["data"] = {"name": config.data, "sha256": sha256, "official": is_official(config.data, sha256)}
    for kind in REGISTRIES:
        if code := source_sha256(kind, getattr(config, kind)):
            record[f"{kind}_sha256"] = code
    session = {
        "from_step": step,
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "code": code_version(),
        "versions": {**versions(), "lightning-fabric": version("lightning-fabric")},
        "machine": machine(str(fabric.device)),
        "hardware": {**asdict(hardware), "processes": fabric.world_size},
    }
    folder.write_json("run.json", {**record, "format": FORMAT, "sessions": [*record["sessions"], session]})
