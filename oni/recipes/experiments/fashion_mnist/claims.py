"""What the paper claims of its Fashion-MNIST figures, as functions of the measured results; and their table."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from oni.recipes.charts.curves import percent
from oni.recipes.experiments.experiment import Comparison, Results
from oni.recipes.experiments.fashion_mnist.networks import ISOMETRIC, PRINTED, with_steps
from oni.recipes.experiments.synthetic.family import span
from oni.recipes.training.setting import SPECTRUM_AT

__all__ = ["summary"]

Verdict = tuple[bool, str]

NOTABLE = 1.0
"""Percentage points that this text calls a notable difference: a few times the spread over seeds."""
CONVERGED = 50.0
"""Percent of training errors below which a run has converged."""
VANISHED = 1e-3
"""Of the largest layer's signal."""


def errors(runs: Results, part: str = "train", epoch: int = -1) -> list[float]:
    """In percent, of every seed."""
    return [percent(run.measured[f"{part}_error"], run.parameters["epochs"])[epoch] for run in runs]


def mean(runs: Results, part: str = "train", epoch: int = -1) -> float:
    return statistics.fmean(errors(runs, part, epoch))


def oni(results: Results, options: Mapping[str, Any] = PRINTED, method: str = "oni", **more: Any) -> Results:
    return results.where(method=method, options=dict(options), **more)


def below(lower: list[float], higher: list[float]) -> bool:
    """Whether every seed of the one is below every seed of the other."""
    return max(lower) < min(higher)


def listed(values: list[float]) -> str:
    return " and ".join(f"{value:.2f} %" for value in values)


def summary(networks: Mapping[str, Results]) -> Comparison:
    """A line for each network."""

    def spread(values: list[float]) -> str:
        about = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
        return f"{statistics.fmean(values):.2f}{about}"

    rows = []
    for name, runs in networks.items():
        rate = f"{runs[0].measured['learning_rate']:g}"
        cells = [spread(errors(runs, "train", 0)), spread(errors(runs)), spread(errors(runs, "test"))]
        rows.append([name, rate, *cells, str(len(runs))])
    return Comparison(
        ["network", "learning rate", "train, epoch 1", "train, end", "test, end", "seeds"],
        rows,
        "Errors in percent, means over seeds ± their standard deviation. The paper draws this and prints no numbers.",
    )


# Figure 5.


def faster_at_first(results: Results) -> Verdict:
    start, plain = results.where(method="orth-init"), results.where(method="lecun")
    said = []
    for epoch, name in ((0, "first"), (1, "second")):
        said.append(f"{name} epoch {listed(errors(start, epoch=epoch))}, plain {listed(errors(plain, epoch=epoch))}")
    return below(errors(start, epoch=0), errors(plain, epoch=0)), f"training error over the {'; '.join(said)}"


def overtaken(results: Results) -> Verdict:
    ours, start = errors(oni(results)), errors(results.where(method="orth-init"))
    plain = mean(results.where(method="lecun"))
    other = errors(oni(results, ISOMETRIC))
    held = below(ours, start) and statistics.fmean(start) > plain - NOTABLE
    return held, (
        f"at the end OrthInit has {listed(start)}, plain {plain:.2f} %, ONI {listed(ours)}; ONI with Z orthogonal and "
        f"not centred {listed(other)}"
    )


def lowest_at_the_end(results: Results) -> Verdict:
    found = {
        "plain": mean(results.where(method="lecun")),
        "plain with torch's start": mean(results.where(method="plain")),
        "OrthInit": mean(results.where(method="orth-init")),
        "ONI": mean(oni(results)),
    }
    said = ", ".join(f"{name} {value:.2f} %" for name, value in found.items())
    isometric = mean(oni(results, ISOMETRIC))
    return min(found, key=lambda name: found[name]) == "ONI", (
        f"{said}; ONI with Z orthogonal and not centred {isometric:.2f} %"
    )


def spectra(runs: Results, layer: int) -> list[tuple[list[float], list[float]]]:
    """At the start and after 200 steps (or at the end, if there are fewer), of every seed."""
    found = []
    for run in runs:
        every = run.measured["spectrum"]
        later = min(SPECTRUM_AT, max(map(int, every)))
        found.append((every["0"][str(layer)], every[str(later)][str(layer)]))
    return found


def spread_out(results: Results) -> Verdict:
    pairs = spectra(results.where(method="orth-init"), 5)
    before = max(statistics.pstdev(start) for start, _ in pairs)
    after = min(statistics.pstdev(later) for _, later in pairs)
    edges = f"{min(min(later) for _, later in pairs):.3f} to {max(max(later) for _, later in pairs):.3f}"
    # Ten times what there was, and more than a hundredth of their size: more than rounding.
    return after > max(10 * before, 0.01), (
        f"the singular values, all 1 at the start, reach from {edges}; their standard deviation is {after:.3f}"
    )


def drift(runs: Results, layer: int = 5) -> list[float]:
    return [
        statistics.fmean(abs(a - b) for a, b in zip(start, later, strict=True)) for start, later in spectra(runs, layer)
    ]


def drifts_less(results: Results) -> Verdict:
    start = drift(results.where(method="orth-init"))
    ours, other = drift(oni(results)), drift(oni(results, ISOMETRIC))
    largest = [
        max(max(later) for _, later in spectra(runs, 5)) for runs in (results.where(method="orth-init"), oni(results))
    ]
    return below(ours, start), (
        f"mean change of a singular value: OrthInit {span(start)}, ONI {span(ours)}, ONI with Z orthogonal and not "
        f"centred {span(other)}; the largest is then {largest[0]:.2f} under OrthInit and {largest[1]:.2f} under ONI"
    )


def choice_matters(results: Results) -> Verdict:
    printed, other = oni(results), oni(results, ISOMETRIC)
    first = mean(printed, epoch=0), mean(other, epoch=0)
    last = mean(printed), mean(other)
    test = mean(printed, "test"), mean(other, "test")
    return abs(first[0] - first[1]) > NOTABLE or abs(last[0] - last[1]) > NOTABLE, (
        f"as printed / Z orthogonal and not centred: training error over the first epoch {first[0]:.2f} / "
        f"{first[1]:.2f} %, at the end {last[0]:.2f} / {last[1]:.2f} %, test error {test[0]:.2f} / {test[1]:.2f} %"
    )


# Figure 6.


def scale_makes_no_difference(results: Results) -> Verdict:
    held, said = True, []
    for scaled in ("oni", "olm"):
        options = PRINTED if scaled == "oni" else {}
        pair = [oni(results, options, method, depth=6) for method in (scaled, f"{scaled}-ns")]
        for part in ("train", "test"):
            with_scale, without = (mean(runs, part) for runs in pair)
            held &= abs(with_scale - without) < NOTABLE
            said.append(f"{scaled.upper()} {part} {with_scale:.2f} % and {without:.2f} %")
    return held, f"errors at the end with and without: {'; '.join(said)} (notable is {NOTABLE:g} point)"


def at_20(results: Results, suffix: str, options: Mapping[str, Any] = PRINTED) -> dict[str, list[float]]:
    return {
        "ONI": errors(oni(results, options, f"oni{suffix}", depth=20)),
        "OLM": errors(results.where(method=f"olm{suffix}", depth=20)),
    }


def no_convergence(results: Results) -> Verdict:
    found = at_20(results, "-ns")
    said = "; ".join(f"{name}-NS {listed(values)}" for name, values in found.items())
    return min(map(min, found.values())) >= CONVERGED, f"training error at the end: {said}"


def convergence(results: Results) -> Verdict:
    found = at_20(results, "")
    said = "; ".join(f"{name} {listed(values)}" for name, values in found.items())
    return max(map(max, found.values())) < CONVERGED, f"training error at the end: {said}"


def same_as_olm(results: Results) -> Verdict:
    held, said = True, []
    for depth in (6, 20):
        pair = oni(results, depth=depth), results.where(method="olm", depth=depth)
        for part in ("train", "test"):
            ours, theirs = mean(pair[0], part), mean(pair[1], part)
            held &= abs(ours - theirs) < NOTABLE
            said.append(f"{depth} layers, {part}: {ours:.2f} % and {theirs:.2f} %")
    return held, f"ONI and OLM at the end: {'; '.join(said)}"


def isometric_too(results: Results) -> Verdict:
    scaled = errors(oni(results, ISOMETRIC, depth=20))
    without = errors(oni(results, ISOMETRIC, "oni-ns", depth=20))
    shallow = mean(oni(results, ISOMETRIC, depth=6)), mean(oni(results, ISOMETRIC, "oni-ns", depth=6))
    held = max(scaled) < CONVERGED <= min(without) and abs(shallow[0] - shallow[1]) < NOTABLE
    return held, (
        f"20 layers: {listed(scaled)} with the scale, {listed(without)} without; 6 layers: {shallow[0]:.2f} % and "
        f"{shallow[1]:.2f} %"
    )


# Figure 7a.


def by_steps(results: Results, part: str) -> dict[int, float]:
    return {T: mean(oni(results, with_steps(T)), part) for T in range(1, 8)}


def told(found: Mapping[int, float]) -> str:
    return ", ".join(f"{value:.2f}" for value in found.values())


def worse_than_best(results: Results, steps: int) -> Verdict:
    """Whether the seeds with so many steps all have a larger test error than those with the best number."""
    train, test = by_steps(results, "train"), by_steps(results, "test")
    best = min(test, key=lambda T: test[T])
    ours, theirs = (errors(oni(results, with_steps(T)), "test") for T in (steps, best))
    said = (
        f"test error of the seeds {listed(ours)}, with {best} steps {listed(theirs)}" if steps != best else "the best"
    )
    # Ten of the test samples are the least that counts.
    return min(ours) > max(theirs) + 0.1, (
        f"{steps} steps: {said}; means for 1 to 7: test {told(test)} %, train {told(train)} %"
    )


def too_few_hurt(results: Results) -> Verdict:
    return worse_than_best(results, 1)


def too_many_hurt(results: Results) -> Verdict:
    return worse_than_best(results, 7)


def five_is_best(results: Results) -> Verdict:
    worse, said = worse_than_best(results, 5)
    return not worse, said


def plateau(results: Results) -> Verdict:
    found = {part: [value for T, value in by_steps(results, part).items() if T >= 5] for part in ("train", "test")}
    apart = {part: max(values) - min(values) for part, values in found.items()}
    return max(apart.values()) < NOTABLE, ", ".join(
        f"{part} errors within {value:.2f} points" for part, value in apart.items()
    )


# Figure A2.


def signal(runs: Results, at: str) -> list[dict[str, list[float]]]:
    every = [run.measured["signal"] for run in runs]
    return [found[str((min if at == "start" else max)(map(int, found)))] for found in every]


def activation_left(runs: Results, at: str) -> list[float]:
    """Input of the output layer over that of the second layer: what 19 hidden layers leave."""
    return [ratio(one["input"][-1], one["input"][1]) for one in signal(runs, at)]


def gradient_left(runs: Results, at: str) -> list[float]:
    """Gradient at the first hidden layer over that at the last one."""
    return [ratio(one["gradient"][0], one["gradient"][-2]) for one in signal(runs, at)]


def ratio(a: float | None, b: float | None) -> float:
    """Not a number where a run diverged: no claim holds of that."""
    return a / b if a is not None and b else math.nan


def vanishes(at: str) -> Callable[[Results], Verdict]:
    def test(results: Results) -> Verdict:
        held, said = True, []
        for options, name in ((PRINTED, "as printed"), (ISOMETRIC, "Z orthogonal, not centred")):
            runs = oni(results, options, "oni-ns")
            activation, gradient = activation_left(runs, at), gradient_left(runs, at)
            if options is PRINTED:
                held = all(left < VANISHED for left in activation + gradient)
            said.append(
                f"{name}: {max(activation):.1e} of the activation and {max(gradient):.1e} of the gradient are left"
            )
        return held, "; ".join(said)

    return test


def gradient_stays(results: Results) -> Verdict:
    held, said = True, []
    for options, name in ((PRINTED, "as printed"), (ISOMETRIC, "Z orthogonal, not centred")):
        start, end = (gradient_left(oni(results, options), at) for at in ("start", "end"))
        if options is PRINTED:
            held = all(left > VANISHED for left in start + end)
        said.append(f"{name}: {min(start):.2g} is left at the start and {min(end):.2g} at the end")
    return held, "; ".join(said)


# Figures A3 and A6.


def by_size(results: Results, part: str) -> dict[int, list[float]]:
    return {size: errors(oni(results, {**PRINTED, "groups": 256 // size}), part) for size in (16, 32, 64, 128, 256)}


def sizes_told(results: Results) -> str:
    found = {
        part: [statistics.fmean(values) for values in by_size(results, part).values()] for part in ("train", "test")
    }
    said = [f"{part} {', '.join(f'{value:.2f}' for value in values)} %" for part, values in found.items()]
    return f"16, 32, 64, 128, 256 rows: {'; '.join(said)}"


def larger_beats_smaller(results: Results) -> Verdict:
    found = by_size(results, "train")
    return below(found[256], found[16]), sizes_told(results)


def falls_with_groups(results: Results) -> Verdict:
    means = [statistics.fmean(values) for values in by_size(results, "train").values()]
    return all(a > b for a, b in itertools.pairwise(means)), sizes_told(results)


def slight(results: Results) -> Verdict:
    means = [statistics.fmean(values) for values in by_size(results, "test").values()]
    return max(means) - min(means) < NOTABLE, f"they reach from {min(means):.2f} to {max(means):.2f} %"


def nearer_one(results: Results) -> Verdict:
    held, said = True, []
    for depth, numbers in ((6, range(1, 8)), (10, (1, 3, 5, 7))):
        off = []
        for T in numbers:
            runs = oni(results, with_steps(T), depth=depth)
            off.append([statistics.fmean(abs(1 - value) for value in later) for _, later in spectra(runs, 1)])
        held &= all(max(more) < min(fewer) for fewer, more in itertools.pairwise(off))
        means = ", ".join(f"{statistics.fmean(values):.3f}" for values in off)
        said.append(f"{depth} layers, T = {', '.join(map(str, numbers))}: {means}")
    return held, f"mean distance of a singular value from 1: {'; '.join(said)}"
