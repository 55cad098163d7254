"""Table A1: how long a convolution takes forward and backward, alone and with its weight orthogonalised.

Contenders take turns in rounds, in an order that rotates, and are compared within a round: what else the machine does
then slows all of them alike. What orthogonalisation adds does not depend on the batch, so where the paper's batch
takes too long, a smaller one is timed, and the ratio at the paper's batch is what was added over the time of the plain
convolution at that batch, which is timed as well.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from oni.newton.reference import authors
from oni.nn import Conv2d
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Results
from oni.style import COLOURS, PAGE_WIDTH, tint

__all__ = ["EXPERIMENTS", "contenders", "timed"]

STEPS = (1, 3, 5, 7)
SIDE = 32
CASES = {
    "k3 n256 m256": (3, 256, 256),
    "k3 n256 m32": (3, 256, 32),
    "k3 n1024 m32": (3, 1024, 32),
    "k1 n256 m256": (1, 256, 256),
    "k1 n256 m32": (1, 256, 32),
    "k1 n1024 m32": (1, 1024, 32),
}
"""Kernel, channels in and out, batch."""
PRINTED = {
    "k3 n256 m256": [118.6, 122.1, 122.9, 124.4, 125.7],
    "k3 n256 m32": [15.8, 18.3, 18.9, 19.5, 20.8],
    "k3 n1024 m32": [71.1, 81.7, 84.3, 89.5, 94.2],
    "k1 n256 m256": [28.7, 31.5, 32.1, 33.7, 34.6],
    "k1 n256 m32": [10.1, 13.0, 13.6, 14.2, 15.3],
    "k1 n1024 m32": [22.2, 27.6, 29.7, 32.9, 37.0],
}
"""Milliseconds on a TITAN Xp: the convolution, then with ONI of 1, 3, 5 and 7 steps."""
OURS = ("oni", "authors")
ROOMY, WORST = "k3 n256 m256", "k1 n1024 m32"


class Authors(nn.Module):
    """The recurrence as its authors released it, as a parametrization."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, Z: Tensor) -> Tensor:
        return authors(Z.flatten(1), self.steps, center=True).view_as(Z)


def contenders(kernel: int, channels: int) -> dict[str, nn.Module]:
    """Every way to have such a convolution."""
    shape = (channels, channels, kernel)
    found: dict[str, nn.Module] = {"plain": plain(*shape)}
    for steps in STEPS:
        found[f"oni T={steps}"] = Conv2d(*shape, padding=kernel // 2, bias=False, steps=steps, center=True)
    for steps in STEPS:
        found[f"authors T={steps}"] = plain(*shape)
        parametrize.register_parametrization(found[f"authors T={steps}"], "weight", Authors(steps))
    found["spectral norm"] = parametrizations.spectral_norm(plain(*shape))
    return found


def plain(inputs: int, outputs: int, kernel: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)


def training_step(module: nn.Module, x: Tensor, G: Tensor) -> None:
    """Forward and backward, with gradients of the weight and of the input, as inside a network."""
    module.zero_grad(set_to_none=True)
    x.grad = None
    module(x).backward(G)


def timed(case: str, batch: int, side: int, shrink: int, seconds: float, rounds: int, seed: int) -> dict[str, Any]:
    """Rounds of every contender until the seconds are over, but at least so many; all in milliseconds."""
    kernel, channels, full = CASES[case]
    channels //= shrink
    torch.manual_seed(seed)
    modules = contenders(kernel, channels)
    x = torch.randn(batch, channels, side, side, requires_grad=True)
    calls = {name: partial(training_step, module, x, torch.randn_like(x)) for name, module in modules.items()}
    times = interleaved(calls, seconds, rounds)
    added = {name: [own - alone for own, alone in zip(of, times["plain"], strict=True)] for name, of in times.items()}
    whole = times["plain"]
    if batch < full:
        x = torch.randn(full, channels, side, side, requires_grad=True)
        call = partial(training_step, modules["plain"], x, torch.randn_like(x))
        whole = interleaved({"plain": call}, 0.0, max(2, rounds // 2))["plain"]
    return {
        "rounds": len(times["plain"]),
        "milliseconds": {name: quartiles(of) for name, of in times.items()},
        "added": {name: quartiles(of) for name, of in added.items() if name != "plain"},
        "plain_at_full_batch": quartiles(whole),
    }


def interleaved(calls: Mapping[str, Callable[[], None]], seconds: float, rounds: int) -> dict[str, list[float]]:
    """The milliseconds of each call in every round, after one that is not counted."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    order = deque(calls)
    begun = time.perf_counter()
    while len(times[order[0]]) < rounds or time.perf_counter() - begun < seconds:
        for name in order:
            before = time.perf_counter()
            calls[name]()
            times[name].append(1e3 * (time.perf_counter() - before))
        order.rotate(-1)
    return times


def quartiles(values: Sequence[float]) -> list[float]:
    return statistics.quantiles(values, n=4, method="inclusive")


def timing_runs(
    seed: int, batches: dict[str, int], side: int, shrink: int, seconds: float, rounds: int
) -> list[dict[str, Any]]:
    return [
        {
            "case": case,
            "batch": batch,
            "side": side,
            "shrink": shrink,
            "seconds": seconds,
            "rounds": rounds,
            "seed": seed,
        }
        for case, batch in batches.items()
    ]


def ratio(results: Results, case: str, name: str) -> float:
    """The time beside the plain convolution's, at the paper's batch."""
    (found,) = results.where(case=case)
    return float(1 + found.measured["added"][name][1] / found.measured["plain_at_full_batch"][1])


def printed_ratio(case: str, steps: int) -> float:
    alone, *with_oni = PRINTED[case]
    return with_oni[STEPS.index(steps)] / alone


def cases_of(results: Results) -> list[str]:
    return [run.parameters["case"] for run in results]


def at_most(case: str, steps: int, printed: float) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        found = ratio(results, case, f"oni T={steps}")
        return found <= printed, f"{found:.3f} times the plain convolution, printed {printed_ratio(case, steps):.3f}"

    return test


def worst_is(results: Results) -> tuple[bool, str]:
    found = {case: ratio(results, case, "oni T=5") for case in cases_of(results)}
    said = ", ".join(f"{case} {value:.3f}" for case, value in found.items())
    return max(found, key=lambda case: found[case]) == WORST, f"T=5: {said}"


def degrades(worse: str, better: str) -> Any:
    def test(results: Results) -> tuple[bool, str]:
        bad, good = (ratio(results, case, "oni T=5") for case in (worse, better))
        return bad > good, f"T=5: {worse} {bad:.3f}, {better} {good:.3f}"

    return test


def grows(results: Results) -> tuple[bool, str]:
    held, said = True, []
    for case in cases_of(results):
        (run,) = results.where(case=case)
        added = [run.measured["added"][f"oni T={steps}"][1] for steps in STEPS]
        held &= all(a < b for a, b in itertools.pairwise(added))
        said.append(f"{case} {', '.join(f'{value:.1f}' for value in added)}")
    return held, f"added ms: {'; '.join(said)}"


def cheaper(results: Results) -> tuple[bool, str]:
    shares = []
    for case in cases_of(results):
        (run,) = results.where(case=case)
        added = run.measured["added"]
        shares += [(added[f"oni T={steps}"][1] / added[f"authors T={steps}"][1], case, steps) for steps in STEPS]
    worst, case, steps = max(shares)
    middle = statistics.median(share for share, *_ in shares)
    return worst < 1, f"it adds {middle:.2f} of what theirs adds in the median case, {worst:.2f} in {case} at T={steps}"


def timed_as(parameters: dict[str, Any]) -> str:
    """What is smaller than in the paper, if anything."""
    _, channels, batch = CASES[parameters["case"]]
    smaller = [f"m{parameters['batch']}"] if parameters["batch"] < batch else []
    smaller += [f"n{channels // parameters['shrink']}"] if parameters["shrink"] > 1 else []
    smaller += [f"side {parameters['side']}"] if parameters["side"] < SIDE else []
    return f"timed with {' '.join(smaller)}" if smaller else ""


def tableA1_table(results: Results) -> Comparison:
    rows = []
    for run in results:
        case = run.parameters["case"]
        alone, *_ = PRINTED[case]
        rows.append([case, "paper", f"{alone:g}", *(f"{printed_ratio(case, steps):.2f}" for steps in STEPS), ""])
        here = f"{run.measured['plain_at_full_batch'][1]:.1f}"
        found = {name: [f"{ratio(results, case, f'{name} T={steps}'):.2f}" for steps in STEPS] for name in OURS}
        rows.append(
            [timed_as(run.parameters), "oni", here, *found["oni"], f"{ratio(results, case, 'spectral norm'):.2f}"]
        )
        rows.append(["", "authors' form", here, *found["authors"], ""])
    note = (
        "T, SN: time beside the plain convolution of the same machine, at the paper's batch. Where a smaller one was "
        "timed, that is 1 + time added / time of the plain convolution at the paper's batch. Paper: on a TITAN Xp. SN: "
        "torch's spectral norm."
    )
    return Comparison(["case", "", "plain ms", *(f"T={steps}" for steps in STEPS), "SN"], rows, note)


def draw_times(results: Results) -> Figure:
    """The ratios to the plain convolution, one panel for each case."""
    figure = Figure(figsize=(PAGE_WIDTH, 3.6))
    panels = figure.subplots(2, 3, sharex=True).flat
    for axes, run in zip(panels, results, strict=False):
        case = run.parameters["case"]
        for name, label, colour in (("oni", "oni", COLOURS["oni"]), ("authors", "authors' form", COLOURS["literal"])):
            values = [ratio(results, case, f"{name} T={steps}") for steps in STEPS]
            axes.plot(STEPS, values, color=colour, marker="o", label=label)
        printed = [printed_ratio(case, steps) for steps in STEPS]
        axes.plot(STEPS, printed, "kD", linestyle=":", markerfacecolor="none", label="printed in the paper (GPU)")
        axes.axhline(ratio(results, case, "spectral norm"), color=COLOURS["spectral norm"], label="spectral norm")
        axes.axhline(1, color=tint(COLOURS["plain"], 1.0), linewidth=0.8, label="plain convolution")
        axes.set(xticks=STEPS)
        axes.set_title(case)
    figure.supxlabel("steps T", fontsize=8)
    figure.supylabel("time / plain convolution", fontsize=8)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=5, loc="outside upper center")
    return figure


TABLE_A1 = Experiment(
    id="tableA1",
    title="Wall-clock time of a convolution with ONI",
    shows="Forward and backward of a convolution on 32 x 32 inputs: ONI costs a negligible part for k3 n256 m256, and "
    "1.48 times the plain convolution in the worst case, k1 n1024 m32, with T = 5.",
    choices="k is the kernel, n the channels in and out, m the batch. The paper timed a GPU; whatever device this ran "
    "on, only ratios to its own plain convolution compare. Batches that take too long here are reduced, and so marked.",
    presets={
        "smoke": {
            "batches": dict.fromkeys(CASES, 2),
            "side": 8,
            "shrink": 8,
            "seconds": 0.0,
            "rounds": 2,
        },
        "laptop": {
            "batches": {
                **{case: batch for case, (_, _, batch) in CASES.items()},
                "k3 n256 m256": 32,
                "k3 n1024 m32": 4,
            },
            "side": SIDE,
            "shrink": 1,
            "seconds": 25.0,
            "rounds": 3,
        },
        "paper": {
            "batches": {case: batch for case, (_, _, batch) in CASES.items()},
            "side": SIDE,
            "shrink": 1,
            "seconds": 60.0,
            "rounds": 7,
        },
    },
    runs=timing_runs,
    measure=timed,
    paper={
        case: dict(zip(["plain", *(f"T={steps}" for steps in STEPS)], row, strict=True))
        for case, row in PRINTED.items()
    },
    claims=[
        Claim(
            "ONI is negligible for k3 n256 m256: T=7 costs at most the printed 1.06 times",
            at_most(ROOMY, 7, 1.06),
        ),
        Claim("T=5 costs at most the printed 1.48 times in the worst case", at_most(WORST, 5, 1.48)),
        Claim("The worst case is k1 n1024 m32", worst_is),
        Claim("A smaller kernel is less efficient", degrades("k1 n256 m32", "k3 n256 m32")),
        Claim("More features are less efficient", degrades("k1 n1024 m32", "k1 n256 m32")),
        Claim("A smaller batch is less efficient", degrades("k1 n256 m32", "k1 n256 m256")),
        Claim("More steps take longer", grows),
        Claim("This library adds less time than the authors' form", cheaper),
    ],
    table=tableA1_table,
    draw=draw_times,
)

EXPERIMENTS = [TABLE_A1]
