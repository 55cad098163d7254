"""The options of the commands, each said once, and how the help shows them. Needs typer."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = [
    "Accelerator",
    "Address",
    "AnyCheckpoint",
    "BenchThreads",
    "Cases",
    "Classifier",
    "Command",
    "ComparedFolders",
    "Compile",
    "ConfigFile",
    "Data",
    "DemoFolder",
    "Device",
    "Devices",
    "Download",
    "DryRun",
    "Engine",
    "Finished",
    "FirstSeed",
    "GPUsPerRun",
    "Group",
    "Inception",
    "InceptionDigest",
    "JSONFile",
    "JSONLines",
    "Limit",
    "Mode",
    "NoiseSeed",
    "NumNodes",
    "Only",
    "OwnExperiments",
    "Plain",
    "PlotFile",
    "Precision",
    "Preset",
    "Processes",
    "Quick",
    "ReportFile",
    "ReportedFolders",
    "ResultsFolder",
    "Resume",
    "RunFile",
    "RunsFolder",
    "Seconds",
    "Seeds",
    "Share",
    "SpectraFile",
    "Steps",
    "Strategy",
    "TableFormat",
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
    int | None, typer.Option(help="Of processes: so many train together, with oni.share and without; 2 otherwise.")
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
Preset = Annotated[
    str, typer.Option(help="How much of it: smoke (seconds), laptop (minutes), paper, or what oni list shows.")
]
RunsFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", file_okay=False, help="Folder of training runs; OUT/runs otherwise.")
]
ConfigFile = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="YAML file of changes; KEY=VALUE win over it.")
]
FirstSeed = Annotated[int, typer.Option(help="The first seed.")]
Seeds = Annotated[int | None, typer.Option(help="How many seeds, instead of the preset's number.")]
Only = Annotated[
    str | None,
    typer.Option(
        metavar="PART",
        help="Only these runs, e.g. g2k1/oni or '*ONI*seed 0'; --dry-run lists them. They go into results.json.",
    ),
]
Inception = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="GANs: Inception network (TorchScript), for FID and KID."),
]
InceptionDigest = Annotated[
    str | None, typer.Option(metavar="DIGEST", help="Of that file, if oni does not know it and you trust it.")
]
Classifier = Annotated[
    Path | None, typer.Option(metavar="RUN", file_okay=False, help="GANs: a classifier's run, for class scores.")
]
TableFormat = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="Print the table alone: latex, csv or markdown.")
]
Seconds = Annotated[float, typer.Option(help="Time for each case.")]
Quick = Annotated[bool, typer.Option("--quick", help="A look in a few seconds, at small cases.")]
Cases = Annotated[str | None, typer.Option(metavar="GLOB", help="Only the cases of such a name, e.g. '256x*'.")]
BenchThreads = Annotated[int | None, typer.Option(help="Threads for torch; its own choice otherwise.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
JSONFile = Annotated[Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write every number here as well.")]
NoiseSeed = Annotated[
    int | None, typer.Option(help="Of the noise; without it, the one of the run's own sample sheets.")
]
Mode = Annotated[
    str, typer.Option(help="Batch normalisation of the generator: eval (running means) or train (each batch's).")
]
PlotFile = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Draw all spectra here (.png, .svg, .pdf).")
]
SpectraFile = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write every singular value here.")
]
Limit = Annotated[int, typer.Option(help="Leave out matrices whose short side is longer: they take minutes.")]
DemoFolder = Annotated[Path, typer.Option(file_okay=False, help="Folder for runs and report.html, made if missing.")]
ReportFile = Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="The file to write.")]
RunFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML file of the run: data, network, method, epochs, ...")
]
AnyCheckpoint = Annotated[
    Path,
    typer.Argument(metavar="CHECKPOINT", help="A .pt, .pth or .safetensors file, anybody's; no code in it runs."),
]
Steps = Annotated[int | None, typer.Option(help="Instead of what was saved with each layer; so are those below.")]
ReportedFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Folders: of an experiment, of a training run, or of several of these."),
]
ComparedFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Folders of training runs, or of results of one experiment; two or more."),
]
OwnExperiments = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="An experiment of your own among them, my_module:EXPERIMENT as for oni reproduce; its code is imported.",
    ),
]
COMPLETION = ("install_completion", "show_completion")


class Command(TyperCommand):
    """A command whose flags have no type: typer would write ``<bool>`` behind each, as if it took a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        return tidy(super().get_params(ctx))


class Group(TyperGroup):
    """The same for the options before a command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return tidy(super().get_params(ctx))


def tidy(parameters: list[Any]) -> list[Any]:
    """Options as the help shows them."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
        # Two more options at the top of the help would drown the commands; its last line names one of them.
        if parameter.name in COMPLETION:
            parameter.hidden = True
    return parameters
