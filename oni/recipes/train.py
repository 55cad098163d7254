"""``oni train``: a user's own run of the engine, from a file and ``KEY=VALUE`` changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from oni.names import unknown_name
from oni.recipes.data.datasets import load_dataset
from oni.recipes.experiments.fashion_mnist.family import watch_network
from oni.recipes.own import is_own
from oni.recipes.run_files.config import Config
from oni.recipes.run_files.overrides import apply_changes, read_changes
from oni.recipes.run_files.own_code import REGISTRIES, register_own
from oni.recipes.training.devices import Hardware, is_first_process
from oni.recipes.training.run import Result, train
from oni.recipes.training.watch import WATCHERS
from oni.terminal import ascii_only, console, table

__all__ = ["Request", "read_config", "train_config"]


@dataclass(frozen=True)
class Request:
    """What the command line asks for."""

    file: Path
    changes: Sequence[str] = ()
    data: Path | None = None
    download: bool = False
    out: Path = Path("runs")
    resume: bool = False
    hardware: Hardware = field(default_factory=Hardware)
    precision: str | None = None
    json: bool = False
    plain: bool = False


def read_config(file: Path, changes: Sequence[str]) -> Config:
    """The configuration in a file, with changes; what neither names has its default.

    A network or method of the user's own, ``package.module:Network``, is imported if the file or a change names it. The
    ``config.json`` of a run folder alone is not enough: others may have written it.
    """
    in_file = read_changes(file)
    for kind in REGISTRIES:
        typed = find_value(changes, kind)
        name = typed or find_value(in_file, kind)
        if name and is_own(name):
            if name != typed and file.with_name("run.json").exists():
                raise ValueError(
                    f"{file}: comes from a run folder, so its code is not imported; if you trust {name}, "
                    f"add {kind}={name} to the command"
                )
            register_own(kind, name)
    return apply_changes(Config(), [*drop_replaced(in_file, changes), *changes])


def drop_replaced(in_file: Sequence[str], changes: Sequence[str]) -> list[str]:
    """What of the file stays: not the options of a method, network, data set or task that a change replaces.

    >>> drop_replaced(["method=oni", "method_options.steps=5", "epochs=3"], ["method=he"])
    ['method=oni', 'epochs=3']
    """
    replaced = [
        f"{owner}_options."
        for owner in ("data", "network", "method", "task")
        if find_value(changes, owner) not in (None, find_value(in_file, owner))
    ]
    return [change for change in in_file if not change.startswith(tuple(replaced))]


def find_value(changes: Sequence[str], wanted: str) -> str | None:
    """What changes set a key to, if any does."""
    values = [text.strip() for key, _, text in (change.partition("=") for change in changes) if key.strip() == wanted]
    return values[-1] if values else None


def train_config(request: Request) -> None:
    """Train, and print what was measured and where it is."""
    precision = [f"precision={request.precision}"] if request.precision else []
    config = read_config(request.file, [*precision, *request.changes])
    for name in config.watch:
        if name not in WATCHERS:
            raise ValueError(unknown_name("watch", name, WATCHERS))
    if request.download and request.data is None:
        raise ValueError("--download needs a folder: pass --data DIR as well")
    hardware = request.hardware
    dataset = load_dataset(
        config.data,
        request.data,
        options=config.data_options,
        workers=hardware.readers,
        download=request.download,
    )
    result = train(
        config,
        request.out,
        data=dataset,
        hardware=hardware,
        watch=watch_network(config, dataset) if config.watch else None,
        progress="json" if request.json else "lines" if request.plain else "auto",
        resume=request.resume,
    )
    if is_first_process():
        show_result(result, as_json=request.json, plain=request.plain)


def show_result(result: Result, *, as_json: bool, plain: bool) -> None:
    """Print the metrics of the last epoch, the lowest test errors of all, and the folder; as JSON for programs."""
    errors = [name for name in result.metrics if name.startswith("test_") and name.endswith("error")]
    lowest = {name: best for name in errors if (best := result.best(name))}
    if as_json:
        event = {"event": "result", "folder": str(result.folder), "metrics": result.metrics}
        values = {name: {"epoch": epoch, "value": value} for name, (epoch, value) in lowest.items()}
        print(json.dumps({**event, "lowest": values}))
        return
    terminal = console(plain=plain)
    rows = table(ascii_only(terminal, plain=plain))
    rows.add_column("metric")
    rows.add_column("value", justify="right")
    for name, value in result.metrics.items():
        if value is not None:
            rows.add_row(name, f"{value:.6g}" if isinstance(value, float) else str(value))
    for name, (epoch, value) in lowest.items():
        rows.add_row(f"lowest {name}, in epoch {epoch}", f"{value:.6g}")
    if not result.trained:
        terminal.out("finished before, not trained again")
    terminal.print(rows)
    terminal.out("\nWritten:", result.folder, sep="\n  ")
    terminal.out(f"\nNext: oni report {result.folder}")
