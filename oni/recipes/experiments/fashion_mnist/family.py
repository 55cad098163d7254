"""What the Fashion-MNIST figures share: deep MLPs, their presets and plan, names, tables and texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.errors import (
    COST_COLUMNS,
    COST_NOTE,
    count_test_images,
    errors_at,
    find_runs,
    list_rates,
    mean_and_deviation,
    row_errors,
    summarise_cost,
)
from oni.recipes.experiments.errors import style_rows as style_in_colours
from oni.recipes.experiments.experiment import Comparison, Experiment, Quantity, Results
from oni.recipes.experiments.runs import Row, Training, describe_sweeps, measure, plan_rows
from oni.recipes.experiments.search import HELD_OUT
from oni.recipes.experiments.verdicts import Judgement, judge_lower

if TYPE_CHECKING:
    from oni.recipes.charts.curves import Styles
    from oni.recipes.data.images import Dataset
    from oni.recipes.run_files.config import Config
    from oni.recipes.training.loop import Watch

__all__ = [
    "BATCH",
    "COLOURS",
    "CONVERGED",
    "GRID",
    "ISOMETRIC",
    "LONG",
    "NOTABLE",
    "PRESETS",
    "PRINTED",
    "SPECTRUM_STEP",
    "START",
    "TRAINS",
    "TWO_SEEDS",
    "WIDTH",
    "judge_practice",
    "make_config",
    "make_figure",
    "make_plan",
    "mlp",
    "spectra",
    "style_rows",
    "watch_network",
]

GRID = (0.05, 0.1, 0.5, 1.0)
"""The paper's learning rates."""
PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {"data": "fashion-mnist-sample", "samples": 256, "epochs": 2, "seeds": 1, "width": 64},
    "laptop": {"data": "fashion-mnist-sample", "samples": 0, "epochs": 10, "seeds": 1},
    "full": {
        "data": "fashion-mnist",
        "samples": 0,
        "epochs": 10,
        "seeds": 2,
        "grid": GRID,
        "select_epochs": 2,
        "sparing": True,
    },
    "paper": {"data": "fashion-mnist", "samples": 0, "epochs": 80, "seeds": 5, "grid": GRID, "select_epochs": 80},
}
LONG = {"steps": 2000}
"""What a claim about the end of training needs: ten epochs of the embedded sample are a sixth of that."""
TWO_SEEDS = {**LONG, "seeds": 2}
BATCH = 256
WIDTH = 256
WATCHED = ("signal", "spectrum")
"""What is recorded while each network trains."""
SPECTRUM_STEP = 200
"""The step at which the paper looks at weights."""
SPECTRUM_LAYERS = (1, 5)
"""Which layers it looks at, counted from 1."""
NOTABLE = 1.0
"""A difference of so many percentage points counts as notable: a few times the spread over seeds."""
TRAINS = 50.0
"""A network trains if its training error in percent is below this; guessing has 90."""
CONVERGED = 20.0
"""Training has converged if the training error in percent is below this after ten epochs."""

PRINTED = {"start": "given", "center": True}
"""ONI as in the paper: the entries of Z start independent and random, rows are centred."""
ISOMETRIC = {"start": "orthogonal", "center": False}
"""ONI that preserves the signal best: Z starts orthogonal, rows are not centred."""


# Rows.

NAMES = {
    "plain": "plain, torch's start",
    "lecun": "plain",
    "he": "He initialisation",
    "orth-init": "OrthInit",
    "oni": "ONI",
    "oni-ns": "ONI-NS",
    "olm": "OLM",
    "olm-ns": "OLM-NS",
}
STARTS = {"given": "Z random", "orthogonal": "Z orthogonal"}


def mlp(
    depth: int,
    method: str,
    options: Mapping[str, Any] | None = None,
    rate: float = 0.0,
    *,
    network_options: Mapping[str, Any] | None = None,
    seeds: int | None = None,
    trial: Mapping[str, Any] | None = None,
) -> Row:
    """A network of a figure.

    >>> mlp(20, "oni", {**ISOMETRIC, "steps": 3}).name, mlp(20, "he", network_options={"norm": "batch"}).title
    ('20 layers, ONI, Z orthogonal, not centred, T = 3', 'batch norm')

    Args:
        depth: hidden layers.
        method, options: what is done to their weights.
        rate: chosen on the full data; presets without a search train with it.
        network_options: besides the depth.
        seeds: the largest number in a sparing preset.
        trial: the method's options in the trials of a sparing preset, where they differ.
    """
    options, network_options = options or {}, network_options or {}
    title = name_network(method, options, network_options)
    changes = {
        "network_options.depth": depth,
        **{f"network_options.{name}": value for name, value in network_options.items()},
        "method": method,
        **{f"method_options.{name}": value for name, value in options.items()},
    }
    differing = {f"method_options.{name}": value for name, value in (trial or {}).items()}
    return Row(f"{depth} layers, {title}", title, changes, rate=rate, seeds=seeds, trial=differing)


def name_network(method: str, options: Mapping[str, Any], network_options: Mapping[str, Any]) -> str:
    """The name for legends and tables, without the depth."""
    if network_options.get("norm") == "batch":
        return "batch norm"
    words = [NAMES[method]]
    if options.get("gain") == "relu":
        words[0] += " x sqrt 2"
    if "start" in options and {key: options[key] for key in PRINTED} != PRINTED:
        words.append(f"{STARTS[options['start']]}, {'centred' if options['center'] else 'not centred'}")
    if "steps" in options:
        words.append(f"T = {options['steps']}")
    if "groups" in options:
        words.append(f"G = {WIDTH // options['groups']}")
    if "learn_scale" in options:
        words.append("learnable scale" if options["learn_scale"] else "fixed scale")
    if "bound" in options:
        words.append(f"{options['bound']} bound")
    return ", ".join(words)


def is_orthogonalised(row: Row) -> bool:
    """Whether its method orthogonalises weights in every step, which makes a step ten times slower."""
    return str(row.changes["method"]).startswith(("oni", "olm"))


# From rows to runs.


def make_config(*, data: str, samples: int, epochs: int, width: int = WIDTH, **changes: Any) -> Config:
    """What all rows share."""
    from oni.recipes.run_files.config import Config

    return Config(
        network="mlp",
        network_options={"depth": 1, "width": width, "bias": False},
        method="plain",
        data=data,
        samples=samples,
        epochs=epochs,
        # As in the code of the authors' earlier paper.
        drops=halfway(epochs),
        drop_factor=0.5,
        **changes,
    )


def halfway(epochs: int) -> tuple[int, ...]:
    """After which epoch the learning rate is halved."""
    return (epochs // 2,) if epochs > 1 else ()


def make_plan(rows: Sequence[Row], at_other_rates: Sequence[Row] = ()) -> Callable[..., list[Training]]:
    """The plan of a figure: every network with every seed, in the sizes of a preset.

    ``at_other_rates``: rows for presets with ``every_rate`` alone, each with the learning rate that it has.
    """

    def plan(
        seed: int,
        *,
        seeds: int,
        epochs: int,
        grid: tuple[float, ...] = (),
        select_epochs: int = 0,
        sparing: bool = False,
        every_rate: bool = False,
        **sizes: Any,
    ) -> list[Training]:
        config = make_config(epochs=epochs, watch=WATCHED, **sizes)
        runs: list[Training] = []
        for row in (*rows, *(at_other_rates if every_rate else ())):
            own = row if sparing else replace(row, seeds=None, trial={})
            # Networks without orthogonalisation are ten times faster, so their trials are whole runs.
            length = select_epochs if is_orthogonalised(row) else epochs
            trial = {"epochs": length, "validation": HELD_OUT, "seed": seed, "watch": ()} if grid else None
            runs += plan_rows([own], config, range(seed, seed + seeds), trial=trial, rates=own.rates or grid)
        return runs

    return plan


def watch_network(config: Config, dataset: Dataset) -> dict[str, Watch]:
    """The watchers of a run, for the steps and layers that the paper shows."""
    from oni.recipes.training.watch import build_watchers

    return build_watchers(config, dataset, step=SPECTRUM_STEP, layers=SPECTRUM_LAYERS)


# Reading the results.

COLOURS = {
    "plain, torch's start": "#999999",
    "plain": "#666666",
    "He initialisation": "#8B5A2B",
    "OrthInit": "#E69F00",
    "OrthInit x sqrt 2": "#D55E00",
    "batch norm": "#CC79A7",
    "ONI": "#0072B2",
    "ONI-NS": "#56B4E9",
    "OLM": "#CC79A7",
    "OLM-NS": "#D55E00",
    "ONI, Z orthogonal, not centred": "#009E73",
    "ONI-NS, Z orthogonal, not centred": "#8ED1B8",
    "ONI, Z random, not centred": "#7A5195",
    "ONI, Z orthogonal, centred": "#B07AA1",
    "OLM, learnable scale": "#E8B4D0",
    "ONI, G = 64": "#56B4E9",
    "ONI, G = 64, fixed scale": "#0072B2",
    "ONI, T = 9, G = 64": "#8ED1B8",
    "ONI, T = 9, G = 64, fixed scale": "#009E73",
}
"""The colours of lines, by name. Other variants of a method are drawn in shades of one colour."""


def style_rows(results: Results, rows: Sequence[Row], *, shades: bool = False) -> Styles:
    """Colour and runs of each row that has runs, by its title; with ``shades``, all in shades of one colour."""
    from oni.recipes.charts.colours import ramp

    colours = ramp(COLOURS["ONI"], len(rows)) if shades else [COLOURS[row.title] for row in rows]
    return style_in_colours(results, rows, colours=colours)


def make_table(rows: Sequence[Row], optional: Sequence[Row] = ()) -> Callable[[Results], Comparison]:
    """A function that makes a table with a line for each network; the optional ones only if they have runs."""

    def table(results: Results) -> Comparison:
        cells: list[list[str | Quantity]] = []
        for row in (*rows, *(row for row in optional if find_runs(results, row))):
            runs = find_runs(results, row)
            depth = runs[0].parameters.config.network_options["depth"] if runs else row.changes["network_options.depth"]
            name = f"{depth} layers, {row.title}"
            if not runs:
                cells.append([name, *4 * ["not yet measured"], "0", *2 * ["-"]])
                continue
            errors = [errors_at(runs, "train", 0), errors_at(runs), errors_at(runs, "test")]
            seeds = Quantity(len(runs), digits=0)
            cells.append([name, list_rates(runs), *map(mean_and_deviation, errors), seeds, *summarise_cost(runs)])
        return Comparison(
            ["network", "learning rate", "train, epoch 1", "train, end", "test, end", "seeds", *COST_COLUMNS],
            cells,
            "Errors in percent, means over seeds ± their standard deviation. The paper shows a plot and no numbers. "
            f"{COST_NOTE}",
        )

    return table


def spectra(runs: Results, layer: int) -> list[tuple[list[float], list[float]]]:
    """For each seed, the spectrum at the start and after 200 steps, or at the end if there are fewer."""
    pairs = []
    for run in runs:
        by_step = run.measured["spectrum"]
        later = min(SPECTRUM_STEP, max(map(int, by_step)))
        pairs.append((by_step["0"][str(layer)], by_step[str(later)][str(layer)]))
    return pairs


def judge_practice(rows: Sequence[Row], ours: Row) -> Callable[[Results], Judgement]:
    """Whether our network ends with a lower test error than each of the practitioners' networks."""

    def judge(results: Results) -> Judgement:
        own, others = (row_errors(results, chosen) for chosen in ([ours], rows))
        return judge_lower(own, others, images=count_test_images(results))

    return judge


def make_figure(
    rows: Sequence[Row],
    *,
    text: str,
    presets: Mapping[str, Any] = PRESETS,
    at_other_rates: Sequence[Row] = (),
    keep: Sequence[str] = (),
    **fields: Any,
) -> Experiment:
    """A figure of these rows.

    Args:
        rows: its networks.
        text: what was chosen for this figure where the paper leaves something open.
        presets: if they are its own.
        at_other_rates: see `make_plan`.
        keep: the watchers whose records it needs.
        fields: of the experiment, which only this figure knows.
    """
    depths = " or ".join(map(str, sorted({row.changes["network_options.depth"] for row in rows})))
    return Experiment(
        choices=SHARED.format(depths=depths) + text,
        presets=presets,
        plan=make_plan(rows, at_other_rates),
        measure=partial(measure, keep=keep, watchers=watch_network),
        table=make_table(rows, at_other_rates),
        trains=True,
        sweeps={
            **describe_sweeps(rows),
            **({"learning_rate": "trains some networks at every learning rate"} if at_other_rates else {}),
        },
        **fields,
    )


# Texts.


SHARED = (
    "{depths} hidden layers of width 256 with ReLU and an ordinary output layer. From the code of the authors' "
    "earlier paper: no biases in hidden layers, SGD without momentum or weight decay, pixels divided by 255 minus "
    "their mean, the learning rate halved halfway, incomplete batches dropped. The learning rate is the best of "
    "{{.05, .1, .5, 1}} on 5,000 held-out samples with the first seed, in runs of 2 epochs (complete runs for "
    "networks without orthogonalisation, which are fast; preset paper: complete runs for all); the final runs train "
    "on all samples. Presets: full uses all 60,000 images, 10 epochs, 2 seeds; paper 80 epochs, 5 seeds; smoke and "
    "laptop use the embedded sample and the learning rates chosen on the full data. ONI with 5 steps, centred, "
    "compact bound, a learnable scale per row initialised to sqrt 2 (NS: 1). "
)
START = (
    "The paper uses LeCun's random initialisation. For ONI this leaves the spectrum of Z wide, so 5 steps do not make "
    "W orthogonal, and centring removes a third of the signal's mean square in each layer. So we also run ONI with an "
    "orthogonal initialisation of Z and uncentred rows."
)
