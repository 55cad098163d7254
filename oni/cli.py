"""The command line: one function per command.

A new command is a function here and a line in ``COMMANDS``. Its docstring is its help; what it needs of
``oni.recipes`` it imports inside, so that ``oni --help`` stays quick.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from oni.errors import exit_code, explain, silence_output
from oni.names import unknown_name

# Annotations are read only when typer runs: without it this module loads, and main says what is missing.
with suppress(ModuleNotFoundError):
    import typer

    import oni.cli_options as options

__all__ = ["main"]

INTERRUPTED = 130  # 128 + SIGINT, as in a shell


def demo(
    out: options.DemoFolder = Path("oni-demo"),
    seed: Annotated[int, typer.Option(help="Seed for initial weights and sample order.")] = 0,
    preset: Annotated[str, typer.Option(help="laptop (two minutes) or smoke (seconds, only a test).")] = "laptop",
    plain: options.Plain = False,
) -> None:
    """Train networks that certify their classes; print a table and write report.html with all details.

    Spectral norm, ONI with 2 and 5 steps, and exact orthogonality, on a sample of Fashion-MNIST.
    Runs are saved: after Ctrl-C, the same command continues.
    """
    from oni.recipes.demo import demo as run

    run(out, seed, preset=preset, plain=plain)


def report(
    sources: options.ReportedFolders,
    experiment: options.OwnExperiments = None,
    out: options.ReportFile = Path("report.html"),
    open_it: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write one HTML file about experiments and runs: claims, tables, interactive curves, spectra, configurations.

    It needs no internet access and no other file, so you can send it by itself.
    """
    from oni.recipes.report.write import open_report, write_report

    print(write_report(sources, out, experiment or []))
    if open_it:
        open_report(out)


def compare(
    sources: options.ComparedFolders,
    experiment: options.OwnExperiments = None,
    json: Annotated[bool, typer.Option("--json", help="For programs: one JSON object.")] = False,
    plain: options.Plain = False,
) -> None:
    """Compare runs, or results of one experiment: show differences in configuration and results."""
    from oni.recipes.report.compare import compare as run

    run(sources, experiment or [], as_json=json, plain=plain)


def bench(
    what: Annotated[
        str, typer.Argument(help="What to measure: matrices, forms, choices, models, processes, images or overhead.")
    ] = "matrices",
    seconds: options.Seconds = 10.0,
    quick: options.Quick = False,
    cases: options.Cases = None,
    threads: options.BenchThreads = None,
    processes: options.Processes = None,
    device: options.Device = "cpu",
    json: options.JSONFile = None,
    plain: options.Plain = False,
) -> None:
    """Measure speed and memory on this machine, compared with other methods."""
    from oni.bench.command import run
    from oni.bench.settings import Settings

    settings = Settings(
        what=what,
        seconds=seconds,
        quick=quick,
        cases=cases,
        threads=threads,
        device=device,
        json=json,
        plain=plain,
        processes=processes,
    )
    raise typer.Exit(run(settings))


def list_experiments(
    out: options.ListedFolder = None,
    plain: options.Plain = False,
) -> None:
    """List the paper's experiments, their presets, and where their results are."""
    from oni.recipes.experiments.listing import show_list

    show_list(out, plain=plain)


list_experiments.__name__ = "list"  # the command's name; the builtin of that name is needed here


def reproduce(
    id: Annotated[str, typer.Argument(help="A figure, table or theorem of the paper; oni list shows them.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to the configuration of every run, e.g. epochs=5."),
    ] = None,
    preset: options.Preset = "laptop",
    data: options.Data = None,
    download: options.Download = False,
    out: options.ResultsFolder = None,
    runs: options.RunsFolder = None,
    resume: options.Resume = False,
    config: options.ConfigFile = None,
    seed: options.FirstSeed = 0,
    seeds: options.Seeds = None,
    only: options.Only = None,
    dry_run: options.DryRun = False,
    finished: options.Finished = False,
    accelerator: options.Accelerator = "auto",
    devices: options.Devices = 1,
    strategy: options.Strategy = "auto",
    num_nodes: options.NumNodes = 1,
    workers: options.Workers = None,
    compile: options.Compile = False,
    share: options.Share = False,
    precision: options.Precision = None,
    threads: options.Threads = None,
    engine: options.Engine = "local",
    address: options.Address = None,
    gpus_per_run: options.GPUsPerRun = None,
    inception: options.Inception = None,
    inception_sha256: options.InceptionDigest = None,
    classifier: options.Classifier = None,
    table: options.TableFormat = None,
    json: options.JSONLines = False,
    plain: options.Plain = False,
) -> None:
    """Run an experiment of the paper: compare its numbers with ours, and judge each of its claims.

    Every run is saved, and a finished run is never trained again.
    Interrupted runs continue with --resume, with bit-identical results.
    Several commands with the same --out share the work.
    With --engine ray, --out must be on a file system that all machines of the cluster share.
    """
    from oni.machine import torch_threads
    from oni.recipes.experiments.listing import RESULTS_FOLDER
    from oni.recipes.experiments.record import RUNS
    from oni.recipes.experiments.setting import make_setting
    from oni.recipes.grid.jobs import Engine
    from oni.recipes.reproduce import Request
    from oni.recipes.reproduce import reproduce as run
    from oni.recipes.training.devices import Hardware

    setting = make_setting(
        runs=runs or (out or RESULTS_FOLDER) / RUNS,
        data=data,
        download=download,
        hardware=Hardware(
            accelerator=accelerator,
            devices=devices,
            strategy=strategy,
            num_nodes=num_nodes,
            workers=workers,
            compile=compile,
            share=share,
        ),
        engine=Engine(engine, address, gpus_per_run),
        progress="json" if json else "lines" if plain else "auto",
        resume=resume,
        changes=changes or [],
        file=config,
        precision=precision,
        inception=(inception, inception_sha256),
        classifier=classifier,
    )
    request = Request(
        id=id,
        preset=preset,
        out=out,
        seed=seed,
        seeds=seeds,
        only=only,
        dry_run=dry_run,
        finished=finished,
        plain=plain,
        json=json,
        table=table,
    )
    with torch_threads(threads):
        run(request, setting)


def train(
    config: options.RunFile,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to the file, e.g. learning_rate=0.05."),
    ] = None,
    data: options.Data = None,
    download: options.Download = False,
    out: Annotated[Path, typer.Option(file_okay=False, help="Folder that will contain the run folder.")] = Path("runs"),
    resume: options.Resume = False,
    accelerator: options.Accelerator = "auto",
    devices: options.Devices = 1,
    strategy: options.Strategy = "auto",
    num_nodes: options.NumNodes = 1,
    workers: options.Workers = None,
    compile: options.Compile = False,
    share: options.Share = False,
    precision: options.Precision = None,
    json: options.JSONLines = False,
    plain: options.Plain = False,
) -> None:
    """Train a network: any data set, network and method that oni knows, or your own network.

    The network may be package.module:Network, imported from the current folder or the installed packages.
    A finished run is never trained again. An interrupted run continues with --resume, with a bit-identical result.
    """
    from oni.recipes.train import Request, train_config
    from oni.recipes.training.devices import Hardware

    request = Request(
        file=config,
        changes=changes or [],
        data=data,
        download=download,
        out=out,
        resume=resume,
        hardware=Hardware(
            accelerator=accelerator,
            devices=devices,
            strategy=strategy,
            num_nodes=num_nodes,
            workers=workers,
            compile=compile,
            share=share,
        ),
        precision=precision,
        json=json,
        plain=plain,
    )
    train_config(request)


def sample(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a GAN's training run.")],
    out: Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="The PNG file to write.")],
    number: Annotated[int, typer.Option("--number", "-n", help="Number of images.")] = 64,
    seed: options.NoiseSeed = None,
    columns: Annotated[int, typer.Option(help="Images per row.")] = 8,
    mode: options.Mode = "eval",
) -> None:
    """Draw a sheet of images from the generator of a trained GAN."""
    from oni.recipes.generated.samples import draw_sheet

    print(draw_sheet(run, out, number, seed, columns=columns, mode=mode))


def inspect(
    checkpoint: options.AnyCheckpoint,
    plot: options.PlotFile = None,
    json: options.SpectraFile = None,
    limit: options.Limit = 4096,
    plain: options.Plain = False,
) -> None:
    """Show the spectrum of every weight matrix in a checkpoint, and how far each is from orthogonal."""
    from oni.checkpoints.inspect import inspect as run

    run(checkpoint, plot=plot, json_to=json, limit=limit, plain=plain)


def bake(
    checkpoint: Annotated[
        Path,
        typer.Argument(metavar="CHECKPOINT", help="The state_dict of a converted model: .pt, .pth or .safetensors."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", dir_okay=False, help="Where to write the plain state_dict.")],
    key: Annotated[str | None, typer.Option(help="Which state_dict, if the checkpoint contains several.")] = None,
    steps: options.Steps = None,
    scale: Annotated[str | None, typer.Option(help="A number, or relu, tanh, ...")] = None,
    center: Annotated[str | None, typer.Option(help="auto, true or false.")] = None,
    bound: Annotated[str | None, typer.Option(help="compact, frobenius, trace, trace2 or tight.")] = None,
    groups: Annotated[int | None, typer.Option(help="Groups of rows.")] = None,
    schedule: Annotated[str | None, typer.Option(help="newton, minimax or e.g. minimax:0.03.")] = None,
) -> None:
    """Turn the checkpoint of a converted model into a checkpoint of the plain architecture."""
    from oni.checkpoints.bake import bake as run

    run(checkpoint, out, key, steps=steps, scale=scale, center=center, bound=bound, groups=groups, schedule=schedule)


COMMANDS: dict[Callable[..., None], str] = {
    demo: "oni demo --out demo --seed 1",
    inspect: "oni inspect checkpoint.pt --plot spectra.png",
    bake: "oni bake checkpoint.pt --out plain.safetensors",
    bench: "oni bench --cases '256x*' --json bench.json",
    list_experiments: "oni list",
    reproduce: "oni reproduce fig5 --preset laptop epochs=5",
    train: "oni train examples/train.yaml learning_rate=0.05",
    sample: "oni sample oni-results/runs/RUN -n 64 -o sheet.png --seed 1",
    report: "oni report oni-results/fig5 --out report.html",
    compare: "oni compare oni-results/runs/RUN1 oni-results/runs/RUN2",
}
"""Every command, with the example that its help shows."""


def show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print("oni", version("oni-torch"))
        raise typer.Exit


def top(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Keep the weight matrices of PyTorch networks as orthogonal as you ask for.

    Uses Newton's iteration, from "Controllable Orthogonalization in Training DNNs" (CVPR 2020).
    """


def application() -> typer.Typer:
    """All commands as typer sees them."""
    last = "To install shell completion: oni --install-completion"
    app = typer.Typer(
        cls=options.Group,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="\n\n".join(["Examples:", *COMMANDS.values(), last]),
        pretty_exceptions_enable=False,
    )
    app.callback()(top)
    for command, example in COMMANDS.items():
        app.command(cls=options.Command, epilog=f"Example: {example}")(command)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0: success. 2: an error that the user can fix, explained in one line on standard error. 74: a file, a folder or
    standard output is not writable. 130: Ctrl-C.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = run(given)
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        # As in oni list | head -1. typer and rich exit with the same code.
        silence_output()
        return 1
    except Exception as error:
        line = explain(error)
        if line is None:
            raise
        print("oni:", line, file=sys.stderr)
        return exit_code(error)
    # typer turns Ctrl-C inside a command into this code.
    if code == INTERRUPTED:
        print("oni: interrupted", file=sys.stderr)
    return code or 0


def run(given: list[str]) -> int | None:
    """Run the command that the arguments name; without any, show the help."""
    import typer.main

    names = [command.__name__ for command in COMMANDS]
    name = next((argument for argument in given if not argument.startswith("-")), None)
    if name is not None and name not in names:
        raise ValueError(f"{unknown_name('command', name, names)} (try: oni --help)")
    program = typer.main.get_command(application())
    return program.main(given or ["--help"], prog_name="oni", standalone_mode=False)


if __name__ == "__main__":
    sys.exit(main())
