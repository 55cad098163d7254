"""Options that several commands have, each said once, and those of grids. Needs typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Accelerator",
    "Address",
    "Compile",
    "Data",
    "Devices",
    "Download",
    "DryRun",
    "Engine",
    "Finished",
    "GPUsPerRun",
    "JSONLines",
    "NumNodes",
    "Plain",
    "Precision",
    "Processes",
    "ResultsFolder",
    "Resume",
    "Share",
    "Strategy",
    "Threads",
    "Workers",
]

Data = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of the data set's files; its usual places otherwise.")
]
ResultsFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Folder for results and pictures; results otherwise, where a smaller preset replaces no larger one.",
    ),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch what --data lacks, with checksums.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List the runs, which are finished, and how long the rest may take.")
]
Finished = Annotated[
    bool, typer.Option("--finished", help="Train nothing: write the table and picture of what is finished so far.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue training that was interrupted.")]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Devices = Annotated[int, typer.Option(help="How many of them on each node; the batch is shared.")]
Strategy = Annotated[str, typer.Option(help="Over several devices: ddp, or fsdp2 to shard the weights.")]
NumNodes = Annotated[int, typer.Option(help="How many machines.")]
Workers = Annotated[
    int | None, typer.Option(help="Processes that read images from files, for each device; by the cores otherwise.")
]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the networks with torch.compile.")]
Share = Annotated[
    bool,
    typer.Option("--share", help="Over several devices: each weight is orthogonalised on one of them, not on all."),
]
Processes = Annotated[
    int | None, typer.Option(help="Of models: so many processes train together, with oni.share and without.")
]
Precision = Annotated[str | None, typer.Option(help="32-true, 64-true, bf16-mixed, 16-mixed, ...")]
JSONLines = Annotated[bool, typer.Option("--json", help="For programs: JSON, one object a line.")]
Plain = Annotated[bool, typer.Option("--plain", help="ASCII only, no colours.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads for each run; torch's own choice otherwise.")]
Engine = Annotated[
    str, typer.Option(help="local: one run after the other; ray: as many at once as a Ray cluster has room for.")
]
Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Of a running Ray cluster, or auto; Ray starts on this machine otherwise."),
]
GPUsPerRun = Annotated[
    float | None, typer.Option(help="With ray: GPUs for each run, up to 1; one if there are any otherwise.")
]
