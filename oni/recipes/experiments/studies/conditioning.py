"""How well-conditioned proxies stay that start orthogonal, and what asking for a smallest singular value gives."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments import runs
from oni.recipes.experiments.cifar10 import family as cifar10
from oni.recipes.experiments.errors import (
    COST_COLUMNS,
    COST_NOTE,
    errors_at,
    find_runs,
    groups_of,
    mean_and_deviation,
    summarise_cost,
)
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity, Results, Run
from oni.recipes.experiments.fashion_mnist import family as fashion_mnist
from oni.recipes.experiments.runs import COLOURS, Row, Training, describe_sweeps, plan_rows
from oni.recipes.experiments.verdicts import (
    Judgement,
    Kind,
    all_hold,
    format_rows,
    is_below_limit,
    judge_equal,
    judge_lower,
)

if TYPE_CHECKING:
    from oni.recipes.charts.chart import Chart
    from oni.recipes.run_files.config import Config

__all__ = ["EXPERIMENT"]

WATCHED = "conditioning"
SIGMA_MIN = 0.9
NEAR = 3.0
"""A condition number near 2 is below this."""
CLOSE = 3.0
"""Percentage points of test error that are called the same: about twice what three seeds and 10,000 images tell."""
GIVEN = Row("as built", "5 steps, Z as built", {"method_options.start": "given"})
FIVE = Row("5 steps", "5 steps", {"method_options.start": "polar"})
TARGET = Row("0.9", f"sigma_min={SIGMA_MIN:g}", {**FIVE.changes, "method_options.sigma_min": SIGMA_MIN})
ROWS = (GIVEN, FIVE, TARGET)
ORTHOGONAL = (FIVE, TARGET)
"""The rows that start orthogonal."""
WITH_GIVEN = ("mlp20", "vgg")
"""Where the start as built is trained too."""
NETWORKS = {
    "mlp20": "MLP of 20 layers",
    "vgg": "VGG-style, g = 1, k = 1",
    "resnet20": "ResNet-20 with batch norm",
}


# From presets to runs.


def make_config(
    network: str, *, data: str, mnist: str, epochs: int, width: int = fashion_mnist.WIDTH, **sizes: Any
) -> tuple[Config, float]:
    """What the rows of a network share, and their learning rate: those of Figure 6, Table 1 and Table 2."""
    if network == "mlp20":
        # Its batches are twice as large, so it trains for as many steps.
        sizes |= {"measure_every": 2 * epochs}
        config = fashion_mnist.make_config(data=mnist, epochs=2 * epochs, width=width, **sizes)
        changes: dict[str, Any] = {"network_options.depth": 20, "method_options.center": False}
        return runs.apply_changes(replace(config, method="oni"), changes), 0.1
    name, rate = ("g1k1", 0.05) if network == "vgg" else ("resnet20", 0.1)
    config = cifar10.make_config(name, data=data, epochs=epochs, **sizes)
    changes = {"method_options.center": "auto"}
    if network == "resnet20":
        changes["network_options.norm"] = "batch"
    return runs.apply_changes(replace(config, method="oni"), changes), rate


def plan(seed: int, *, seeds: int, epochs: int, networks: tuple[str, ...] = tuple(NETWORKS), **sizes: Any) -> list[Any]:
    """Every network with its rows and every seed."""
    planned: list[Training] = []
    for network in networks:
        config, rate = make_config(network, epochs=epochs, watch=(WATCHED,), measure_every=epochs, **sizes)
        rows = [replace(row, rate=rate) for row in (ROWS if network in WITH_GIVEN else ORTHOGONAL)]
        planned += plan_rows(rows, config, range(seed, seed + seeds), group=network)
    return planned


# Reading the results.


def epochs_of(run: Run) -> list[dict[str, Any]]:
    """What was seen at the end of each epoch; none of a run that diverged in its first."""
    steps = {int(step): seen for step, seen in run.measured[WATCHED].items()}
    return [steps[step] for step in sorted(steps) if step]


def typical_condition(run: Run) -> float:
    """The condition number of the median weight, at its highest."""
    return max(statistics.median(seen["condition"]) for seen in epochs_of(run))


def worst_condition(run: Run) -> float:
    """The highest of all weights and epochs."""
    return max(max(seen["condition"]) for seen in epochs_of(run))


def smallest_value(run: Run) -> float:
    """The smallest singular value of all weights and epochs."""
    return min(min(seen["smallest"]) for seen in epochs_of(run))


def mean_delta(run: Run) -> float:
    """The mean over weights and epochs."""
    return statistics.fmean(value for seen in epochs_of(run) for value in seen["delta"])


def retune_part(run: Run) -> float:
    """Percent of the time of training that retune takes, once an epoch."""
    return 100 * sum(seen["retune_seconds"] for seen in epochs_of(run)) / float(run.measured["cost"]["seconds"])


def describe_steps(found: Results) -> str:
    """The steps that weights had, from the fewest to the most."""
    counts = {count for run in found for seen in epochs_of(run) for count in seen["steps"]}
    return f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} - {max(counts)}"


def table(results: Results) -> Comparison:
    cells: list[list[str | Quantity]] = []
    for network in groups_of(results):
        for row in ROWS:
            if found := find_runs(results, row, network):
                has_target = "retuned" in epochs_of(found[0])[0]
                summarised = (typical_condition, worst_condition, smallest_value, mean_delta)
                cells.append(
                    [
                        f"{NETWORKS[network]}, {row.title}",
                        *(mean_and_deviation(errors_at(found, part)) for part in ("train", "test")),
                        *(mean_and_deviation([summarise(run) for run in found]) for summarise in summarised),
                        describe_steps(found),
                        mean_and_deviation([retune_part(run) for run in found]) if has_target else "",
                        Quantity(len(found), digits=0),
                        *summarise_cost(found),
                    ]
                )
    columns = ["network", "train", "test", "condition", "worst", "smallest", "delta", "steps", "retune, %", "seeds"]
    note = (
        "Errors in percent at the end, means over seeds ± their standard deviation. Of the proxies, at the ends of "
        "epochs: the condition number of the median weight, at its highest, and that of the worst weight. Of the "
        "weights: the smallest singular value of all, the mean delta, the steps they had. Retune: the part of the time "
        f"of training that it takes once an epoch. {COST_NOTE}"
    )
    return Comparison([*columns, *COST_COLUMNS], cells, note)


# Claims, all of our own.


def measure_rows(
    results: Results, network: str, summarise: Callable[[Run], float], rows: Sequence[Row] = ORTHOGONAL
) -> dict[str, list[float]]:
    """A number of each seed, by row."""
    return {row.title: [summarise(run) for run in find_runs(results, row, network)] for row in rows}


def stays_near_2(results: Results, network: str) -> Judgement:
    conditions = measure_rows(results, network, typical_condition)
    verdicts = [is_below_limit(values, NEAR) for values in conditions.values()]
    worst = format_rows(measure_rows(results, network, worst_condition), "")
    return all_hold(verdicts), f"{format_rows(conditions, '')}; the worst weight: {worst}"


def reaches_target(results: Results, network: str) -> Judgement:
    values = measure_rows(results, network, smallest_value)
    verdict = is_below_limit([-value for value in values[TARGET.title]], -SIGMA_MIN)
    return verdict, format_rows(values, "", 3)


def has_lower_delta(results: Results, network: str, than: Row = FIVE) -> Judgement:
    own, other = (measure_rows(results, network, mean_delta, [row]) for row in (TARGET, than))
    return judge_lower(own, other, unit="")


def has_same_error(results: Results, network: str) -> Judgement:
    from oni.recipes.data.datasets import DATASETS

    first, second = (errors_at(find_runs(results, row, network), "test") for row in (TARGET, FIVE))
    images = DATASETS[find_runs(results, TARGET, network)[0].parameters.data].test_images
    return judge_equal(
        {f"{TARGET.title} and {FIVE.title}": (first, second)}, CLOSE, trains=cifar10.TRAINS, images=images
    )


def of_network(results: Results, network: str) -> Results:
    return results.where(group=network)


SMALLER = f"sigma_min={SIGMA_MIN:g} leaves a smaller delta than 5 steps"
JUDGES: dict[str, Callable[..., Judgement]] = {
    f"from an orthogonal start, the condition number of the median weight stays below {NEAR:g}": stays_near_2,
    f"every weight meets sigma_min={SIGMA_MIN:g} at the end of every epoch": (reaches_target),
    f"{SMALLER} from the same start": has_lower_delta,
    f"{SMALLER} with Z as built": partial(has_lower_delta, than=GIVEN),
    f"sigma_min={SIGMA_MIN:g} has the test error of 5 steps, within {CLOSE:g} points": has_same_error,
}
CLAIMS = [
    Claim(
        Kind.OURS,
        f"{title}: {text}",
        partial(judge, network=network),
        {"seeds": 3, "steps": 300},
        partial(of_network, network=network),
    )
    for text, judge in JUDGES.items()
    for network, title in NETWORKS.items()
    if network in WITH_GIVEN or "as built" not in text
]


# Pictures.


def charts(results: Results) -> list[Chart]:
    """The condition numbers of each network, by epoch."""
    from oni.recipes.charts.chart import Chart
    from oni.recipes.charts.curves import mean_and_band

    pictures = []
    for network in groups_of(results):
        series = []
        for row, colour in zip(ORTHOGONAL, (COLOURS["plain"], COLOURS["oni"]), strict=True):
            epochs = list(zip(*map(epochs_of, find_runs(results, row, network)), strict=False))
            for summarise, dash in ((statistics.median, "solid"), (max, "dash")):
                columns = [[summarise(seen["condition"]) for seen in column] for column in epochs]
                series.append(mean_and_band(row.title, list(range(1, len(epochs) + 1)), columns, colour, dash))
        dashes = {"solid": "median weight", "dash": "worst weight"}
        pictures.append(Chart(NETWORKS[network], "epoch", "condition number of the proxy", series, dashes=dashes))
    return pictures


SMALL = {
    "data": "generated",
    "mnist": "fashion-mnist-sample",
    "samples": 32,
    "epochs": 1,
    "batch_size": 16,
    "width": 32,
}
LARGE = {"data": "cifar10", "samples": 10_000, "epochs": 4}
EXPERIMENT = Experiment(
    id="conditioning",
    title="Condition numbers in training, and sigma_min=0.9 against 5 steps",
    shows="After an orthogonal initialisation, training keeps the condition numbers of the proxies near 2. So "
    "sigma_min=0.9, with steps chosen again once per epoch, needs two or three steps. Is its delta smaller than "
    "that of 5 Newton steps, and does it train as well?",
    findings="The condition number of the median weight stays at 1.3 (MLP), 1.7 (VGG-style) and 1.5 (ResNet-20) or "
    "below; that of the worst weight reaches 2.3. sigma_min=0.9 takes two steps everywhere, and every weight meets it "
    "at the end of every epoch: oni.retune, once an epoch, found nothing to change. It takes 0.1 % of the time in the "
    "convolutional networks, 3 % in the MLP. There, where weights are square, a step takes less than half the time of "
    "5 steps in the benchmark; the mean delta is smaller, not significantly. The wide weights of the convolutional "
    "networks are different: from an orthogonal start, 5 Newton steps make them nearly exact, and two steps give what "
    "was asked, 0.9, and no more. "
    "The mean test errors differ by less than a point, but three short runs each cannot show that they are the same "
    "within three points. With Z as it is built, the MLP has condition numbers above 1000 and three times the test "
    "error.",
    choices="A 20-layer MLP on Fashion-MNIST (as in Figure 6, not centred), a VGG-style network (as in Table 1) and a "
    "ResNet-20 with batch normalisation (as in Table 2) on CIFAR-10. Two rows start from the polar factor of the same "
    'weights (start="orthogonal"), the third from these weights as the network is built; all train alike. Preset '
    "full: 10,000 images, 312 steps, three seeds.",
    presets={
        "smoke": {**SMALL, "networks": ("mlp20", "resnet20"), "seeds": 1},
        "laptop": {**LARGE, "mnist": "fashion-mnist-sample", "samples": 2000, "epochs": 4, "seeds": 1},
        "full": {**LARGE, "mnist": "fashion-mnist", "seeds": 3},
    },
    plan=plan,
    measure=partial(runs.measure, keep=(WATCHED,)),
    paper={},
    claims=CLAIMS,
    table=table,
    charts=charts,
    trains=True,
    sweeps=describe_sweeps(
        ROWS,
        data="trains on two data sets",
        network="compares three networks",
        learning_rate="has one of its own for each network",
    ),
)
