"""The options of the commands, each defined once, and how the help shows them. Needs typer."""

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
    "ListedFolder",
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
    Path | None, typer.Option(metavar="DIR", help="Folder with the data set; by default the usual places.")
]
ResultsFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="Folder for results and pictures. Default: oni-results; a smaller preset never overwrites a larger one.",
    ),
]
ListedFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Where to look for results. Default: oni-results, then results.")
]
Download = Annotated[bool, typer.Option("--download", help="Download files missing from --data and verify them.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="List all runs, which are finished, and the estimated time for the rest.")
]
Finished = Annotated[
    bool, typer.Option("--finished", help="Train nothing: write table and figure from the finished runs.")
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue interrupted training.")]
Accelerator = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Devices = Annotated[int, typer.Option(help="Devices per machine; the batch is split over all of them.")]
Strategy = Annotated[str, typer.Option(help="For several devices: ddp, or fsdp2 to shard the weights.")]
NumNodes = Annotated[int, typer.Option(help="Number of machines.")]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes per device that read image files; by default chosen from the number of cores."),
]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the networks with torch.compile.")]
Share = Annotated[
    bool,
    typer.Option("--share", help="For several devices: orthogonalise each weight on one device, not on all."),
]
Processes = Annotated[
    int | None, typer.Option(help="For processes: how many train together, with and without oni.share; 2 by default.")
]
Precision = Annotated[str | None, typer.Option(help="32-true, 64-true, bf16-mixed, 16-mixed, ...")]
JSONLines = Annotated[bool, typer.Option("--json", help="For programs: JSON, one object per line.")]
Plain = Annotated[bool, typer.Option("--plain", help="ASCII only, no colours.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads per run; by default torch decides.")]
Engine = Annotated[str, typer.Option(help="local: one run at a time; ray: as many at once as fit on a Ray cluster.")]
Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Address of a running Ray cluster, or auto; by default Ray starts on this machine."
    ),
]
GPUsPerRun = Annotated[
    float | None, typer.Option(help="With ray: GPUs per run, up to 1; by default 1 if there are any.")
]
Preset = Annotated[
    str, typer.Option(help="Size of the experiment: smoke (seconds), laptop (minutes), paper, or others from oni list.")
]
RunsFolder = Annotated[
    Path | None, typer.Option(metavar="DIR", file_okay=False, help="Folder for training runs; by default OUT/runs.")
]
ConfigFile = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="YAML file with changes; KEY=VALUE overrides it.")
]
FirstSeed = Annotated[int, typer.Option(help="The first seed.")]
Seeds = Annotated[int | None, typer.Option(help="Number of seeds, instead of the preset's.")]
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
    str | None, typer.Option(metavar="DIGEST", help="SHA-256 of that file, if oni does not know it but you trust it.")
]
Classifier = Annotated[
    Path | None,
    typer.Option(metavar="RUN", file_okay=False, help="GANs: run folder of a classifier, for class scores."),
]
TableFormat = Annotated[
    str | None, typer.Option(metavar="FORMAT", help="Print only the table: latex, csv or markdown.")
]
Seconds = Annotated[float, typer.Option(help="Time per case.")]
Quick = Annotated[bool, typer.Option("--quick", help="Only small cases, in a few seconds.")]
Cases = Annotated[str | None, typer.Option(metavar="GLOB", help="Only cases whose name matches, e.g. '256x*,64x*'.")]
BenchThreads = Annotated[int | None, typer.Option(help="Number of torch threads; by default torch decides.")]
Device = Annotated[str, typer.Option(help="cpu or cuda.")]
JSONFile = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Also write every number to this file.")
]
NoiseSeed = Annotated[
    int | None, typer.Option(help="Seed for the noise; by default the one used for the sample sheets of the run.")
]
Mode = Annotated[
    str, typer.Option(help="Batch normalisation of the generator: eval (running means) or train (batch statistics).")
]
PlotFile = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Draw all spectra to this file (.png, .svg, .pdf).")
]
SpectraFile = Annotated[
    Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write every singular value to this file.")
]
Limit = Annotated[int, typer.Option(help="Skip matrices whose short side is longer: they take minutes.")]
DemoFolder = Annotated[Path, typer.Option(file_okay=False, help="Folder for runs and report.html; created if missing.")]
ReportFile = Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="The file to write.")]
RunFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML file with the configuration: data, network, method, epochs, ...")
]
AnyCheckpoint = Annotated[
    Path,
    typer.Argument(metavar="CHECKPOINT", help="Any .pt, .pth or .safetensors file; no code in it is executed."),
]
Steps = Annotated[int | None, typer.Option(help="Overrides the saved value of each layer, like the options below.")]
ReportedFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Folders of experiments or training runs, or folders that contain them."),
]
ComparedFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN", help="Two or more folders of training runs, or of results of one experiment."),
]
OwnExperiments = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Name of your own experiment, my_module:EXPERIMENT as for oni reproduce. Its code is imported.",
    ),
]
COMPLETION = ("install_completion", "show_completion")


class Command(TyperCommand):
    """A command whose flags show no type: typer would print ``<bool>`` after each, as if it took a value."""

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
