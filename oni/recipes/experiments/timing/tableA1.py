"""Table A1: how long a convolution takes forward and backward, alone and with its weight orthogonalised.

Contenders take turns in rounds and are compared within a round, so other load on the machine slows all of them alike.
The time that orthogonalisation adds does not depend on the batch, so it is measured with a small batch, where it is a
large part of the whole. The ratio at the paper's batch is this time over that of the plain convolution at that batch.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

from oni.newton.reference import authors
from oni.nn import Conv2d
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results, Run
from oni.recipes.experiments.verdicts import Judgement, Kind, Verdict, all_hold, as_verdict
from oni.timing import Interval, Times, interleaved, quartiles, share_of_addition

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "ConvolutionTimes", "make_contenders"]

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
ROOMY, WORST = "k3 n256 m256", "k1 n1024 m32"


@dataclass(frozen=True)
class ConvolutionTimes:
    """All variants of one convolution, timed in turns."""

    case: str
    batch: int
    """The batch at which the added time is measured."""
    side: int
    shrink: int
    """By how much the number of channels is divided."""
    seconds: float
    """The time budget."""
    rounds: int
    """At least so many, however long they take."""
    seed: int

    def describe(self) -> str:
        """A run in a few words."""
        return f"{self.case} {describe_sizes(self)}".strip()


class Authors(nn.Module):
    """The recurrence of the released code, as a parametrization."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, Z: Tensor) -> Tensor:
        return authors(Z.flatten(1), self.steps, center=True).view_as(Z)


def make_contenders(kernel: int, channels: int) -> dict[str, nn.Module]:
    """Every variant of such a convolution, by name."""
    shape = (channels, channels, kernel)
    modules: dict[str, nn.Module] = {"plain": make_plain(*shape)}
    for steps in STEPS:
        modules[f"oni T={steps}"] = Conv2d(*shape, padding=kernel // 2, bias=False, steps=steps, center=True)
    for steps in STEPS:
        modules[f"authors T={steps}"] = make_plain(*shape)
        parametrize.register_parametrization(modules[f"authors T={steps}"], "weight", Authors(steps))
    modules["spectral norm"] = parametrizations.spectral_norm(make_plain(*shape))
    return modules


def make_plain(inputs: int, outputs: int, kernel: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False)


def run_step(module: nn.Module, x: Tensor, G: Tensor) -> None:
    """Forward and backward, with gradients of the weight and of the input, as inside a network."""
    module.zero_grad(set_to_none=True)
    x.grad = None
    module(x).backward(G)


def measure(run: ConvolutionTimes, setting: object = None) -> dict[str, Any]:
    """In milliseconds: the quartiles of every contender, and the time it adds to the plain one, with an interval."""
    kernel, channels, full_batch = CASES[run.case]
    torch.manual_seed(run.seed)
    modules = make_contenders(kernel, channels // run.shrink)

    def make_calls(modules: Mapping[str, nn.Module], batch: int) -> dict[str, Callable[[], None]]:
        x = torch.randn(batch, channels // run.shrink, run.side, run.side, requires_grad=True)
        G = torch.randn_like(x)
        return {name: partial(run_step, module, x, G) for name, module in modules.items()}

    times = time_in_turns(make_calls(modules, run.batch), run.seconds, run.rounds)
    plain_at_full_batch = times["plain"]
    if run.batch < full_batch:
        alone = make_calls({"plain": modules["plain"]}, full_batch)
        plain_at_full_batch = time_in_turns(alone, 0.0, 3, warm=False)["plain"]
    return {
        "rounds": len(times["plain"]),
        "milliseconds": {name: milliseconds(quartiles([*by_round.values()])) for name, by_round in times.items()},
        "added": {
            name: milliseconds(interval_of_difference(by_round, times["plain"]))
            for name, by_round in times.items()
            if name != "plain"
        },
        "plain_at_full_batch": milliseconds(quartiles([*plain_at_full_batch.values()])),
    }


def time_in_turns(
    calls: Mapping[str, Callable[[], None]], seconds: float, rounds: int, *, warm: bool = True
) -> dict[str, Times]:
    """The seconds of each call in every round, after a first call that is not counted."""
    if warm:
        for call in calls.values():
            call()
    times: dict[str, Times] = {name: {} for name in calls}
    for _ in interleaved(calls, times, seconds=max(seconds, 1e-9), least_rounds=rounds):
        pass
    return times


def interval_of_difference(times: Times, base: Times) -> Interval:
    """The median difference within a round, with its interval: the share of one second added to the base."""
    interval = share_of_addition(times, {number: seconds + 1.0 for number, seconds in base.items()}, base)
    assert interval is not None  # every contender runs in the first round, and a second is not nothing
    return interval


def milliseconds(values: tuple[float, ...]) -> list[float]:
    return [1e3 * value for value in values]


def plan(
    seed: int, batches: Mapping[str, int], side: int, shrink: int, seconds: Mapping[str, float], rounds: int
) -> list[ConvolutionTimes]:
    return [ConvolutionTimes(case, batch, side, shrink, seconds[case], rounds, seed) for case, batch in batches.items()]


# Claims: each value is [low, value, high].


def find_run(results: Results, case: str) -> Run:
    (run,) = results.where(case=case)
    return run


def ratio_interval(results: Results, case: str, name: str) -> Interval:
    """The time relative to the plain convolution, at the paper's batch."""
    measured = find_run(results, case).measured
    added, plain = Interval(*measured["added"][name]), Interval(*measured["plain_at_full_batch"])
    # The faster the plain one, the larger the ratio.
    bounds = [value / time for value in (added.low, added.high) for time in (plain.low, plain.high)]
    return Interval(1 + min(bounds), 1 + added.value / plain.value, 1 + max(bounds))


def format_interval(interval: Interval) -> str:
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def judge_below(smaller: Interval, larger: Interval, text: str) -> Judgement:
    """Whether one is below the other; undecided where their intervals overlap."""
    if smaller.high < larger.low:
        return Verdict.HELD, text
    if smaller.low > larger.high:
        return Verdict.NOT_HELD, text
    return Verdict.UNDECIDED, f"the intervals overlap; {text}"


def printed_ratio(case: str, steps: int) -> float:
    alone, *with_oni = PRINTED[case]
    return with_oni[STEPS.index(steps)] / alone


def costs_at_most(case: str, steps: int, limit: float) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        ratio = ratio_interval(results, case, f"oni T={steps}")
        text = f"{format_interval(ratio)} times the plain convolution, printed {printed_ratio(case, steps):.3f}"
        if ratio.low <= limit < ratio.high:
            return Verdict.UNDECIDED, f"the interval straddles {limit:g}; {text}"
        return ratio.high <= limit, text

    return judge


def worst_case_is(case: str) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        ratios = {run.parameters.case: ratio_interval(results, run.parameters.case, "oni T=5") for run in results}
        text = "T=5: " + ", ".join(f"{name} {format_interval(ratio)}" for name, ratio in ratios.items())
        others = [ratio for name, ratio in ratios.items() if name != case]
        return judge_below(max(others, key=lambda ratio: ratio.high), ratios[case], text)

    return judge


def is_less_efficient(worse: str, better: str) -> Callable[[Results], Judgement]:
    def judge(results: Results) -> Judgement:
        bad, good = (ratio_interval(results, case, "oni T=5") for case in (worse, better))
        return judge_below(good, bad, f"T=5: {worse} {format_interval(bad)}, {better} {format_interval(good)}")

    return judge


def more_steps_take_longer(results: Results) -> Judgement:
    verdicts, texts = [], []
    for run in results:
        added = [Interval(*run.measured["added"][f"oni T={steps}"]) for steps in STEPS]
        verdicts += [as_verdict(judge_below(fewer, more, "")[0]) for fewer, more in itertools.pairwise(added)]
        texts.append(f"{run.parameters.case} {', '.join(f'{interval.value:.1f}' for interval in added)}")
    return join_pairs(verdicts, f"added ms: {'; '.join(texts)}")


def join_pairs(verdicts: Sequence[Verdict], text: str) -> Judgement:
    """Whether the first interval of every pair is below the second."""
    overlapping = verdicts.count(Verdict.UNDECIDED)
    counted = f"{overlapping} of {len(verdicts)} pairs of intervals overlap; " if overlapping else ""
    return all_hold(verdicts), counted + text


def adds_less_than_authors(results: Results) -> Judgement:
    verdicts, shares = [], []
    for run in results:
        added = {name: Interval(*values) for name, values in run.measured["added"].items()}
        for steps in STEPS:
            ours, theirs = added[f"oni T={steps}"], added[f"authors T={steps}"]
            verdicts.append(as_verdict(judge_below(ours, theirs, "")[0]))
            shares.append((ours.value / theirs.value, run.parameters.case, steps))
    largest, case, steps = max(shares)
    middle = statistics.median(share for share, *_ in shares)
    text = f"it adds {middle:.2f} of what theirs adds in the median case, {largest:.2f} in {case} at T={steps}"
    return join_pairs(verdicts, text)


def make_claim(text: str, judge: Callable[[Results], Judgement]) -> Claim:
    """A claim that is not tested where the measurement was disturbed."""

    def judge_sound(results: Results) -> Judgement:
        for run in results:
            for name, (_, _, high) in run.measured["added"].items():
                if high < 0:
                    return Verdict.NOT_TESTED, (
                        f"the measurement was disturbed: {name} took less time than the bare convolution in "
                        f"{run.parameters.case}"
                    )
        return judge(results)

    return Claim(Kind.OURS, text, judge_sound)


CLAIMS = [
    make_claim(
        "ONI is negligible for k3 n256 m256: T=7 costs at most the printed 1.06 times", costs_at_most(ROOMY, 7, 1.06)
    ),
    make_claim("T=5 costs at most the printed 1.48 times in the worst case", costs_at_most(WORST, 5, 1.48)),
    make_claim("The worst case is k1 n1024 m32", worst_case_is(WORST)),
    make_claim("A smaller kernel is less efficient", is_less_efficient("k1 n256 m32", "k3 n256 m32")),
    make_claim("More features are less efficient", is_less_efficient("k1 n1024 m32", "k1 n256 m32")),
    make_claim("A smaller batch is less efficient", is_less_efficient("k1 n256 m32", "k1 n256 m256")),
    make_claim("More steps take longer", more_steps_take_longer),
    make_claim("This library adds less time than the authors' form", adds_less_than_authors),
]


def describe_sizes(run: ConvolutionTimes) -> str:
    """What is smaller than in the paper, if anything."""
    _, channels, batch = CASES[run.case]
    smaller = [f"m{run.batch}"] if run.batch < batch else []
    smaller += [f"n{channels // run.shrink}"] if run.shrink > 1 else []
    smaller += [f"side {run.side}"] if run.side < SIDE else []
    return f"timed with {' '.join(smaller)}" if smaller else ""


def make_table(results: Results) -> Comparison:
    def ratio(case: str, name: str) -> Quantity:
        interval = ratio_interval(results, case, name)
        return Quantity(interval.value, (interval.high - interval.low) / 2, digits=3)

    cells: list[list[str | Quantity]] = []
    for run in results:
        case = run.parameters.case
        printed = [Quantity(printed_ratio(case, steps), digits=3) for steps in STEPS]
        cells.append([case, "paper", Quantity(PRINTED[case][0], digits=None), *printed, ""])
        plain = Quantity(run.measured["plain_at_full_batch"][1], digits=0)
        ours, theirs = ([ratio(case, f"{name} T={steps}") for steps in STEPS] for name in ("oni", "authors"))
        cells.append([describe_sizes(run.parameters), "oni", plain, *ours, ratio(case, "spectral norm")])
        cells.append(["", "authors' form", plain, *theirs, ""])
    note = (
        "T, SN: time relative to the plain convolution on the same machine, at the paper's batch: 1 + time added, "
        "measured with the batch given, / time of the plain convolution at the paper's batch; ± half of its 90 % "
        "interval. Paper: on a TITAN Xp. SN: torch's spectral norm."
    )
    return Comparison(["case", "", "plain ms", *(f"T={steps}" for steps in STEPS), "SN"], cells, note)


def draw(results: Results) -> Figure:
    """The ratios to the plain convolution, one panel for each case."""
    from matplotlib.figure import Figure

    from oni.style import COLOURS, PAGE_WIDTH, tint

    figure = Figure(figsize=(PAGE_WIDTH, 3.6))
    panels = figure.subplots(2, 3, sharex=True).flat
    lines = (("oni", "oni", COLOURS["oni"]), ("authors", "authors' form", COLOURS["literal"]))
    for axes, run in zip(panels, results, strict=False):
        case = run.parameters.case
        for name, label, colour in lines:
            ratios = [ratio_interval(results, case, f"{name} T={steps}") for steps in STEPS]
            axes.plot(STEPS, [ratio.value for ratio in ratios], color=colour, marker="o", label=label)
            low, high = [ratio.low for ratio in ratios], [ratio.high for ratio in ratios]
            axes.fill_between(STEPS, low, high, color=colour, alpha=0.15, linewidth=0)
        printed = [printed_ratio(case, steps) for steps in STEPS]
        axes.plot(STEPS, printed, "kD", linestyle=":", markerfacecolor="none", label="printed in the paper (GPU)")
        spectral_norm = ratio_interval(results, case, "spectral norm").value
        axes.axhline(spectral_norm, color=COLOURS["spectral norm"], label="spectral norm")
        axes.axhline(1, color=tint(COLOURS["plain"], 1.0), linewidth=0.8, label="plain convolution")
        axes.set(xticks=STEPS)
        axes.set_title(case)
    figure.supxlabel("steps T", fontsize=8)
    figure.supylabel("time / plain convolution", fontsize=8)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=5, loc="outside upper center")
    return figure


SMALL_BATCHES = {
    case: 1 if channels == 1024 else 2 if kernel == 3 else 8 for case, (kernel, channels, _) in CASES.items()
}
"""Batches at which the plain convolution takes no longer than orthogonalisation."""
SECONDS = {case: 60.0 if channels == 1024 else 25.0 for case, (_, channels, _) in CASES.items()}

EXPERIMENT = Experiment(
    id="tableA1",
    title="Wall-clock time of a convolution with ONI",
    shows="Forward and backward of a convolution on 32 x 32 inputs: the overhead of ONI is negligible for k3 n256 "
    "m256, and the time is 1.48 times that of the plain convolution in the worst case, k1 n1024 m32, with T = "
    "5.",
    choices="k is the kernel, n the number of input and output channels, m the batch. The paper timed a GPU. Only "
    "ratios to the plain convolution on the same device can be compared. The time that orthogonalisation adds "
    "is the median difference within rounds at a small batch, with a 90 % bootstrap interval over rounds; a claim "
    "that the intervals do not decide is undecided. A CPU can't show what a GPU takes: these are questions of our own.",
    presets={
        "smoke": {
            "batches": dict.fromkeys(CASES, 2),
            "side": 8,
            "shrink": 8,
            "seconds": dict.fromkeys(CASES, 0.0),
            "rounds": 2,
        },
        "laptop": {"batches": SMALL_BATCHES, "side": SIDE, "shrink": 1, "seconds": SECONDS, "rounds": 5},
        "paper": {
            "batches": SMALL_BATCHES,
            "side": SIDE,
            "shrink": 1,
            "seconds": {case: 10 * seconds for case, seconds in SECONDS.items()},
            "rounds": 20,
        },
    },
    parameters=(ConvolutionTimes,),
    plan=plan,
    measure=measure,
    paper={
        case: dict(zip(["plain", *(f"T={steps}" for steps in STEPS)], row, strict=True))
        for case, row in PRINTED.items()
    },
    claims=CLAIMS,
    table=make_table,
    draw=draw,
)
