"""``oni demo``: a 20-layer network that only trains when its weights stay orthogonal and keep the signal's size."""

from __future__ import annotations

import statistics
from pathlib import Path

from oni.recipes.charts.chart import Chart
from oni.recipes.charts.curves import draw_charts, error_chart, signal_chart, spectrum_chart
from oni.recipes.experiments.experiment import Claim, Experiment, Results
from oni.recipes.experiments.fashion_mnist.claims import CONVERGED, errors, summary
from oni.recipes.experiments.fashion_mnist.family import describe, measure, runs_of
from oni.recipes.experiments.fashion_mnist.networks import ISOMETRIC, STYLES, network, runs
from oni.recipes.report.write import write_report
from oni.recipes.reproduce import RUNS, reproduce
from oni.recipes.training.setting import Setting
from oni.terminal import console

__all__ = ["EXPERIMENTS", "demo"]

NETWORKS = {
    "plain": network(20, "lecun", {}),
    "OrthInit": network(20, "orth-init", {}),
    "ONI-NS": network(20, "oni-ns", ISOMETRIC),
    "ONI": network(20, "oni", ISOMETRIC),
}
NEXT = """\
import oni, torch
net = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
oni.convert(net, skip="2", scale="relu", learn_scale=True)   # train it as you always do
oni.bake(net)                                                # plain layers again
"""


def named(results: Results) -> dict[str, Results]:
    return {name: runs(results, each) for name, each in NETWORKS.items()}


def styles(results: Results) -> dict[str, tuple[str, Results]]:
    return {name: (STYLES[NETWORKS[name]["method"]], found) for name, found in named(results).items()}


def charts(results: Results) -> list[Chart]:
    found = styles(results)
    return [
        error_chart("Training (solid) and test error (dashed)", found),
        signal_chart(
            "Gradients: start (dotted), end (solid)",
            found,
            "gradient",
            "mean |dL/dh|",
            "Where the gradient is too small at the first layers, they do not learn.",
        ),
        signal_chart("Activations: start (dotted), end (solid)", found, "input", "mean |x|"),
        spectrum_chart("Singular values of layer 5 at the end", found, 5, None, "Without the scale."),
    ]


def only_oni_trains(results: Results) -> tuple[bool, str]:
    ends = {name: statistics.fmean(errors(found)) for name, found in named(results).items()}
    said = ", ".join(f"{name} {error:.1f} %" for name, error in ends.items())
    *others, ours = ends.values()
    return ours < CONVERGED <= min(others), f"training error at the end: {said}"


EXPERIMENTS = [
    Experiment(
        id="demo",
        title="Four 20-layer networks: plain, OrthInit, ONI without and with the scale sqrt 2",
        shows="Twenty layers of ReLU halve the signal's mean square in each, so a plain network does not begin to "
        "learn, nor does one whose weights start orthogonal. ONI keeps every weight orthogonal while it trains; scaled "
        "by sqrt 2 it also keeps the signal's size, and learns.",
        choices="The embedded sample of Fashion-MNIST: 10,000 training and 2,000 test images. 20 hidden layers of "
        "width 256, SGD with learning rate 0.1 and batches of 256. Plain starts from LeCun's weights N(0, 1/d). ONI "
        "with 5 steps; Z starts orthogonal and is not centred. The paper's own settings: oni reproduce fig6.",
        presets={
            "smoke": {"data": "fashion-mnist-sample", "samples": 512, "epochs": 2, "seeds": 1, "grid": [0.1]},
            "laptop": {"data": "fashion-mnist-sample", "samples": 0, "epochs": 6, "seeds": 1, "grid": [0.1]},
        },
        runs=runs_of(list(NETWORKS.values())),
        measure=measure,
        paper={"printed numbers": None},
        claims=[Claim("Of the four, only ONI with the scale trains", only_oni_trains)],
        table=lambda results: summary(named(results)),
        draw=lambda results: draw_charts(charts(results)),
        charts=charts,
        trains=True,
        describe=describe,
    )
]


def demo(out: Path, seed: int = 0, *, preset: str = "laptop", plain: bool = False) -> None:
    """Train all four, print the table, write the report."""
    terminal = console(plain=plain)
    setting = Setting(out / RUNS, progress="lines" if plain else "auto")
    reproduce("demo", preset, out, seed, setting=setting, plain=plain)
    report = write_report([out / "demo"], out / "report.html")
    terminal.out("\nThe same to look into, in a browser:", report, sep="\n  ")
    terminal.out("\nNext, in Python:", *NEXT.splitlines(), sep="\n  ")
