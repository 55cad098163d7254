"""What the ImageNet tables and the figure share: configurations, rows of residual networks, results, demands.

The paper trains each candidate (a learning rate, a weight decay) to the end and reports the best. Shorter presets
choose between the candidates by short trials on held-out images, and train once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oni.names import unknown_name
from oni.recipes.experiments.errors import errors_at, find_runs, list_rates, mean_and_deviation, mean_error, style_rows
from oni.recipes.experiments.experiment import Quantity, Results, Run
from oni.recipes.experiments.runs import COLOURS, Row, Training, plan_rows
from oni.recipes.experiments.search import Changes, format_changes
from oni.recipes.run_files.recorded import percent

if TYPE_CHECKING:
    from oni.recipes.charts.curves import Styles
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.run_files.config import Config

__all__ = [
    "AGAIN",
    "BATCH",
    "CELLS",
    "LONG",
    "NOTE",
    "PRESETS",
    "SHORT",
    "STEPS",
    "SWEEPS",
    "best_errors",
    "describe_differences",
    "find_best",
    "format_choice",
    "lowest_errors",
    "make_cell",
    "make_demand",
    "make_error_cells",
    "name_row",
    "plan_network",
    "style_best",
]

AGAIN = "Also in short training on few classes: "
"""The first words of claims that are judged on part of ImageNet."""
PAPER_DATA, PAPER_EPOCHS = "imagenet", 100
LONG = {"steps": 100_000}
"""What a claim about trained networks needs: a fifth of the paper's half a million steps."""
SHORT = {"steps": 500, "seeds": 2}
"""What a claim about the first epochs needs."""
PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {"data": "generated-folder", "samples": 32, "epochs": 1, "seeds": 1, "batch_size": 16},
    "laptop": {"data": "tiny-imagenet-20", "samples": 0, "epochs": 8, "seeds": 1, "batch_size": 64},
    "full": {"data": "tiny-imagenet-20", "samples": 0, "epochs": 12, "seeds": 2, "batch_size": 64},
    "paper": {"data": "imagenet", "samples": 0, "epochs": 100, "seeds": 1, "each": True},
}
"""The presets of every table, which adds its networks and searches."""
SWEEPS = {
    "network": "has networks of its own",
    "network_options.classes": "has as many as the data",
    "network_options.norm": "says of each row whether it is normalised",
    "learning_rate": "has those of the paper for each method",
    "validation": "holds images out in trials",
}


def plan_network(
    rows: Sequence[Row],
    network: str,
    seeds: Sequence[int],
    *,
    data: str,
    samples: int,
    epochs: int,
    batch_size: int,
    options: Changes | None = None,
    each: bool = False,
    trial_epochs: int = 0,
    rates: tuple[float, ...] = (),
) -> list[Training]:
    """The runs of rows on a network.

    Args:
        rows: of the table.
        network: its name.
        seeds: of the runs; trials have the first.
        data, samples, epochs, batch_size: of every run.
        options: of the network's size.
        each: train each candidate to the end, as the paper does.
        trial_epochs: otherwise choose between them in trials of so many epochs; 0 takes the row's own rate.
        rates: instead of the rows' own, in trials.
    """
    from oni.recipes.data.datasets import DATASETS
    from oni.recipes.run_files.config import Config

    if data not in DATASETS:
        raise ValueError(unknown_name("data", data, DATASETS))
    config = Config(
        data=data,
        network=network,
        network_options={"classes": DATASETS[data].classes},
        method="plain",
        momentum=0.9,
        weight_decay=1e-4,
        batch_size=batch_size,
        epochs=epochs,
        drops=drop_epochs(epochs, data),
        drop_factor=0.1,
        samples=samples,
        normalise="mean-std",
        augment=("resized-crop", "flip"),
    )
    rows = [replace(row, changes={**row.changes, **(options or {})}) for row in rows]
    if each:
        rows = [
            replace(row, rate=rate, candidates=(candidate,))
            for row in rows
            for rate in row.rates
            for candidate in row.candidates
        ]
    trial = None
    if trial_epochs:
        held_out = (samples or DATASETS[data].train_images) // 10
        trial = {
            "epochs": trial_epochs,
            "drops": (),
            "seed": seeds[0],
            "samples": max(0, samples - held_out),
            "validation": held_out,
            "measure_every": trial_epochs,
        }
    runs = plan_rows(rows, config, seeds, group=network, trial=trial, rates=rates, every_candidate=False)
    return [replace(run, variant=name_candidate(run.config)) for run in runs] if each else runs


def name_candidate(config: Config) -> str:
    """What the candidates of all rows differ in."""
    return format_changes({"learning_rate": config.learning_rate, "weight_decay": config.weight_decay})


def drop_epochs(epochs: int, data: str = "imagenet") -> tuple[int, ...]:
    """After which epochs the learning rate drops: as 30, 60 and 90 of 100.

    On few images the first is left out: by then a network would have made some hundred steps, and many have not begun
    to learn.

    >>> drop_epochs(100), drop_epochs(10), drop_epochs(12, "tiny-imagenet-20"), drop_epochs(1)
    ((30, 60, 90), (3, 6, 9), (7, 10), ())
    """
    parts = (3, 6, 9) if data == "imagenet" else (6, 9)
    return tuple(sorted({epochs * part // 10 for part in parts} - {0}))


# Rows of Tables 4 and 5, which Figure 7c shares.

BATCH = 256
RATE = 0.1
STEPS = 2
"""The steps of ONI in residual networks, as in the text."""
KINDS: dict[str, tuple[str, Changes]] = {
    "none": ("ResNet w/o BN", {"network_options.norm": "none"}),
    "bn": ("ResNet", {"network_options.norm": "batch"}),
    "var": ("ResNetVar", {"network_options.norm": "batch", "network_options.variant": True}),
}
"""The three architectures, by the word on the command line: title and options."""


def make_cell(kind: str, method: str, **changes: Any) -> Row:
    """A row: one of ``KINDS``, ``"plain"`` or with ``"oni"``."""
    title, options = KINDS[kind]
    if method == "oni":
        options = {"method": "oni", **options, "method_options.steps": STEPS}
    name = {"plain": "plain", "oni": "ONI"}[method]
    settings = {"name": f"{kind}/{method}", "title": f"{title}, {name}", "rates": (RATE,), "rate": RATE, **changes}
    return Row(changes=options, **settings)


CELLS = {(kind, method): make_cell(kind, method) for kind in KINDS for method in ("plain", "oni")}
"""The six cells of Table 4."""


# Reading the results.

NOTE = (
    "Errors in percent, means over seeds ± their standard deviation. Lowest: in the epoch with the lowest test error, "
    "which the released code reports, so it is compared with the paper's numbers; last: in the last epoch."
)
MORE_COLOURS = ("#666666", "#0072B2", "#E69F00", "#D55E00", "#CC79A7", "#009E73", "#56B4E9", "#8B5A2B", "#7A5195")


def find_best(results: Results, row: Row, network: str | None = None) -> Results:
    """The runs of a row, one for each seed; if every candidate was trained to the end, those of the best one.

    The best has the lowest final test error, as in the paper, which holds out no other images.
    """
    candidates: dict[str, list[Run]] = {}
    for run in find_runs(results, row, network):
        candidates.setdefault(replace(run.parameters.config, seed=0).hash, []).append(run)
    return min(map(Results, candidates.values()), key=lambda runs: mean_error(runs, "test"), default=Results())


def lowest_errors(runs: Results, part: str = "test") -> list[float]:
    """The lowest error in percent over all epochs, for each seed."""
    return [
        min(
            error
            for error in percent(run.measured[f"{part}_error"], run.parameters.epochs, diverged=math.inf)
            if error is not None
        )
        for run in runs
    ]


def best_errors(
    results: Results, rows: Sequence[Row], network: str | None = None, part: str = "test"
) -> dict[str, list[float]]:
    """The final errors of all seeds of the best candidate, by the title of the row."""
    return {row.title: errors_at(find_best(results, row, network), part) for row in rows}


def make_error_cells(runs: Results, printed: float | None, part: str = "test") -> list[str | Quantity]:
    """The paper's error, our lowest, and our final one."""
    lowest, last = mean_and_deviation(lowest_errors(runs, part)), mean_and_deviation(errors_at(runs, part))
    return [Quantity(printed), lowest, last]


def format_choice(runs: Results, row: Row) -> str:
    """The learning rate and, where the row varies it, the weight decay."""
    config: Config = runs[0].parameters.config
    varied = {key: getattr(config, key) for key in row.candidates[0]}
    return ", ".join(filter(None, [str(list_rates(runs)), format_changes(varied)]))


def name_row(row: Row) -> str:
    """The title of a row, with a note if it is not in the paper."""
    return f"{row.title} (not in the paper)" if row.ours else row.title


def describe_differences(results: Results) -> str:
    """How runs differ from the paper's, as a sentence; empty if they do not."""
    from oni.recipes.data.datasets import DATASETS

    if not results:
        return ""
    config: Config = results[0].parameters.config
    whole = DATASETS[PAPER_DATA].train_images
    images = config.samples or DATASETS[config.data].train_images
    words = []
    if config.data != PAPER_DATA:
        words.append(f"{images:,} images of {config.data} instead of {whole:,}")
    elif config.samples:
        words.append(f"{images:,} of {whole:,} images")
    if config.epochs != PAPER_EPOCHS:
        words.append(f"{config.epochs} epochs instead of {PAPER_EPOCHS}")
    names = [name for name in ("width", "hidden", "places", "dropout") if name in config.network_options]
    sizes = {name: config.network_options[name] for name in names}
    words += [f"the network's {format_changes(sizes)}"] if config.data != PAPER_DATA else []
    return f" Unlike the paper: {', '.join(words)}, batches of {config.batch_size}." if words else ""


def style_best(results: Results, rows: Sequence[Row], network: str | None = None) -> Styles:
    """Colour and best runs of each row that has some, by its title."""
    colours = [COLOURS.get(row.name, colour) for colour, row in zip(MORE_COLOURS, rows, strict=False)]
    return style_rows(results, rows, network, colours=colours, find=find_best)


# What runs need.


def make_demand(devices: Mapping[str, str]) -> Callable[[Sequence[Training], Setting], list[str]]:
    """A function that says what the runs of a table need: trainings, images, memory of each device.

    Args:
        devices: what the paper trained each network on.
    """

    def demand(planned: Sequence[Training], setting: Setting) -> list[str]:
        from oni.recipes.experiments.imagenet.memory import describe_memory

        lines = []
        for network in dict.fromkeys(training.group for training in planned):
            runs = [training for training in planned if training.group == network]
            on_what = f" (the paper: {devices[network]})" if network in devices else ""
            memory = describe_memory([training.config for training in runs], setting.hardware)
            lines.append(f"{network}: {count_images(runs)}; {memory}{on_what}")
        return [*lines, "For less memory: accumulate=4, --devices 8 or --precision bf16-mixed."]

    return demand


def count_images(runs: Sequence[Training]) -> str:
    """The numbers of runs, trials and images, in words."""
    from oni.recipes.data.datasets import DATASETS

    trials = {config.hash: config for training in runs for config in training.trials()}.values()
    configs = [training.config for training in runs]
    every = DATASETS[configs[0].data]
    epochs = sum(config.epochs for config in (*configs, *trials))
    trained = sum(config.epochs * (config.samples or every.train_images) for config in (*configs, *trials))
    tested = sum(config.epochs for config in configs) * every.test_images
    more = f" and {len(trials)} short trials" if trials else ""
    return f"{len(runs)} runs{more}, {epochs:,} epochs, {trained:,} training and {tested:,} test images"
