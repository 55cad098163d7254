"""A run of an experiment: a configuration, and the search for what it leaves open.

The rows of a table share a configuration, and each says how it differs from it. A plan makes a `Training` of each row
and seed. `measure` trains it, or reads the result if it is finished.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

from oni.recipes.experiments.search import Changes, Search, choose, describe_choice, lower_rates
from oni.recipes.experiments.texts import format_override

if TYPE_CHECKING:
    from oni.recipes.data.images import Dataset
    from oni.recipes.experiments.setting import Setting
    from oni.recipes.run_files.config import Config
    from oni.recipes.training.loop import Watch
    from oni.recipes.training.run import Result

    BuildWatchers = Callable[[Config, Dataset], Mapping[str, Watch]]

R = TypeVar("R", bound="Result | None")

__all__ = [
    "COLOURS",
    "Row",
    "Training",
    "apply_changes",
    "count_steps",
    "describe_sweeps",
    "measure",
    "plan_rows",
    "read_finished",
]

SIZES = ("data", "samples", "epochs")
"""Sizes, which the preset sets for all runs."""


@dataclass(frozen=True)
class Row:
    """A row of a table or a line of a figure: how its runs are trained."""

    name: str
    """For the command line and ``results.json``."""
    title: str
    """For tables and legends."""
    changes: Changes = field(default_factory=dict)
    candidates: tuple[Changes, ...] = ({},)
    """The best of these is reported; short presets take the first."""
    rates: tuple[float, ...] = ()
    """The learning rates to choose from."""
    rate: float = 0.0
    """The learning rate of presets without a search."""
    ours: bool = False
    """Whether it is our own, not the paper's."""
    seeds: int | None = None
    """The largest number of seeds in a sparing preset."""
    trial: Changes = field(default_factory=dict)
    """Changes for the trials of a sparing preset."""


@dataclass(frozen=True)
class Training:
    """One run: a configuration, complete but for what trials choose."""

    row: str
    config: Config
    search: Search | None = None
    group: str = ""
    """What it belongs to, such as a network; rows are compared within a group."""
    images: int = 0
    """How many images a generator makes for its measurement."""
    real_images: int = 0
    """How many real images they are compared with."""
    variant: str = ""
    """Tells runs of one row and seed apart, if each candidate is trained to the end."""

    @property
    def seed(self) -> int:
        return self.config.seed

    @property
    def epochs(self) -> int:
        return self.config.epochs

    @property
    def batch_size(self) -> int:
        return self.config.batch_size

    @property
    def learning_rate(self) -> float:
        return self.config.learning_rate

    @property
    def data(self) -> str:
        return self.config.data

    @property
    def width(self) -> int:
        """The width of the network, where it has one; 0 elsewhere."""
        return self.config.network_options.get("width", 0)

    @property
    def steps(self) -> int:
        """The number of updates; for a GAN, those of the generator."""
        return count_steps(self.config)

    @property
    def trial_epochs(self) -> int:
        """The length of its trials."""
        return int(self.search.trial.get("epochs", self.epochs)) if self.search else 0

    def trials(self) -> list[Config]:
        """The configurations of its trials."""
        if self.search is None:
            return []
        return [apply_changes(self.config, {**self.search.trial, **chosen}) for chosen in self.search.candidates]

    def with_choice(self, chosen: Changes) -> Config:
        """The configuration with the chosen candidate."""
        config = apply_changes(self.config, chosen)
        factor = self.search.rate_factor if self.search else 1.0
        return config if factor == 1 else replace(config, learning_rate=config.learning_rate * factor)

    def override(self, overrides: Changes) -> Training:
        """The run with the user's changes to its configuration; sizes are changed in the preset."""
        own = {key: value for key, value in overrides.items() if key not in SIZES}
        search = None if "learning_rate" in own else self.search
        if search is not None:
            # The user's changes apply to trials too; a batch size is then the same for all.
            trial = {key: value for key, value in search.trial.items() if key not in own}
            search = replace(search, trial=trial, rate_factor=1.0 if "batch_size" in own else search.rate_factor)
        return replace(self, config=apply_changes(self.config, own), search=search)

    def describe(self) -> str:
        """The run in a few words, first what ``--only g2k1/oni`` matches: the group, up to its comma, and the row."""
        group, _, more = self.group.partition(", ")
        words = [f"{group}/{self.row}" if group else self.row, *filter(None, [more, self.variant])]
        if self.search:
            words.append(f"best of {len(self.search.candidates)} trials")
        return ", ".join([*words, f"seed {self.seed}"])

    def as_record(self) -> dict[str, Any]:
        """The run as in ``results.json``: fields of the configuration with their default value are left out."""
        from oni.recipes.run_files.config import Config

        defaults = Config().as_dict()
        config = {name: value for name, value in self.config.as_dict().items() if value != defaults[name]}
        own = {name: value for name, value in asdict(replace(self, config=None)).items() if value}  # type: ignore[arg-type]
        if self.search and self.search.radius is None:
            del own["search"]["radius"]
        return {**own, "config": config}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Training:
        """The run that a ``results.json`` holds."""
        from oni.recipes.run_files.config import Config

        known = {item.name for item in fields(cls)}
        if "config" not in record or not record.keys() <= known:
            raise ValueError(f"a run has {', '.join(sorted(known))}; got {', '.join(sorted(record))}")
        values = {**record, "config": Config(**record["config"])}
        if search := record.get("search"):
            # JSON has no tuples.
            trial = {key: tuple(value) if isinstance(value, list) else value for key, value in search["trial"].items()}
            values["search"] = Search(**{**search, "candidates": tuple(search["candidates"]), "trial": trial})
        return cls(**values)


# From rows to runs.


def apply_changes(config: Config, changes: Changes) -> Config:
    """The configuration with changes; options that only other methods have are ignored."""
    from oni.recipes.methods import METHODS
    from oni.recipes.run_files import overrides

    every_option = {option for method in METHODS.values() for option in method.options}
    method = changes.get("method", config.method)
    known = METHODS[method].options if method in METHODS else {}

    def concerns(key: str) -> bool:
        owner, _, option = key.partition(".")
        return owner != "method_options" or option in known or option not in every_option

    return overrides.apply_changes(
        config, [format_override(key, value) for key, value in changes.items() if concerns(key)]
    )


def plan_rows(
    rows: Iterable[Row],
    config: Config,
    seeds: Sequence[int],
    *,
    group: str = "",
    trial: Changes | None = None,
    rates: Sequence[float] = (),
    every_candidate: bool = True,
    rate_factor: float = 1.0,
    images: tuple[int, int] = (0, 0),
    radius: float | None = None,
) -> list[Training]:
    """Make a run of every row with every seed.

    Args:
        rows: of the table.
        config: what they share, without seed and learning rate.
        seeds: of the runs; a row may have fewer.
        group: of the runs.
        trial: what differs in trials; without it, each row has its own rate and first candidate.
        rates: to choose from in trials, instead of the row's own.
        every_candidate: whether trials choose among the row's candidates too.
        rate_factor, radius: see `Search`.
        images: how many generated and real images generators are measured with.
    """
    runs = []
    for seed in seeds:
        for row in rows:
            if row.seeds is not None and seed - seeds[0] >= row.seeds:
                continue
            options = row.candidates if every_candidate and trial is not None else row.candidates[:1]
            tried = (rates or row.rates) if trial is not None else (row.rate,)
            if not any(tried):
                raise ValueError(f"{row.name} has no learning rate; give its row a rate, or rates to choose from")
            candidates = tuple({**option, "learning_rate": rate} for option in options for rate in tried)
            base = apply_changes(replace(config, seed=seed), row.changes)
            search = None
            if len(candidates) > 1:
                search = Search(candidates, {**(trial or {}), **row.trial}, rate_factor, radius)
            training = Training(row.name, base, search, group, *images)
            if search is None:
                rate = candidates[0]["learning_rate"] * rate_factor
                training = replace(training, config=apply_changes(base, {**candidates[0], "learning_rate": rate}))
            runs.append(training)
    return runs


def describe_sweeps(rows: Sequence[Row], **more: str) -> dict[str, str]:
    """The keys that the rows vary, each with the reason why it can't be overridden."""
    titles = f"compares {', '.join(dict.fromkeys(row.title for row in rows))}"
    changes = [{**row.changes, **{key: None for chosen in row.candidates for key in chosen}} for row in rows]
    keys = {key for change in changes for key in change}
    varied = {key for key in keys if len({json.dumps(change.get(key)) for change in changes}) > 1}
    chosen = {key for row in rows for candidate in row.candidates for key in candidate}
    searched = {"validation": "holds samples out to choose learning rates by"} if any(row.rates for row in rows) else {}
    return {**dict.fromkeys(sorted(varied | chosen | (keys & {"method"})), titles), **searched, **more}


# Training.

CURVES = ("train_error", "validation_error", "test_error", "train_loss", "test_loss")
TOP5 = "test_top5_error"
"""Recorded where there are enough classes."""


def measure(
    training: Training, setting: Setting, *, keep: Sequence[str] = (), watchers: BuildWatchers | None = None
) -> dict[str, Any]:
    """Search and train, or read the results of finished runs: curves by epoch, and what was tried.

    A short trial can pass at a learning rate at which the whole run diverges. Such a run is trained again at the next
    lower one.

    Args:
        training, setting: what to train, and where.
        keep: the names of watchers whose records to return.
        watchers: builds the watchers, instead of `oni.recipes.training.watch.build_watchers`.
    """
    tried = [train(config, setting, watchers) for config in training.trials()]
    chosen, errors = choose(training.search, tried)
    attempts, result = lower_until_it_trains(training, chosen, lambda config: train(config, setting, watchers))
    return {**read_result(result, keep), **describe_choice(training.search, attempts, errors)}


def read_finished(training: Training, setting: Setting) -> list[Result] | None:
    """The results of the trials and of the run, which is last; ``None`` if one of them is not finished."""
    tried = [find(config, setting) for config in training.trials()]
    if None in tried:
        return None
    results = [result for result in tried if result is not None]
    chosen, _ = choose(training.search, results)
    _, last = lower_until_it_trains(training, chosen, lambda config: find(config, setting))
    return None if last is None else [*results, last]


def lower_until_it_trains(
    training: Training, chosen: Changes, get_result: Callable[[Config], R]
) -> tuple[list[Changes], R]:
    """The choices that were trained, from the given one to the first that does not diverge, and its result."""
    attempts, result = [chosen], get_result(training.with_choice(chosen))
    for lower in lower_rates(training.search, chosen):
        if result is None or not result.diverged:
            break
        attempts, result = [*attempts, lower], get_result(training.with_choice(lower))
    return attempts, result


def read_result(result: Result, keep: Sequence[str] = ()) -> dict[str, Any]:
    """The measurements of a finished run."""
    names = [*CURVES, *([TOP5] if TOP5 in result.metrics else [])]
    curves = {name: [row.get(name) for row in result.epochs] for name in names}
    config = result.config
    return {
        "run": result.folder.name,
        "status": result.metrics["status"],
        "learning_rate": config.learning_rate,
        "cost": read_cost(result),
        **{name: values for name, values in curves.items() if name != "validation_error" or config.validation},
        **{name: values for name, values in result.watched.items() if name in keep},
    }


def read_cost(result: Result) -> dict[str, Any]:
    """The cost of a run: steps and seconds, with the number of threads and the precision."""
    sessions = json.loads((result.folder / "run.json").read_text(encoding="utf-8"))["sessions"]
    return {
        "steps": result.metrics["steps"],
        "seconds": result.metrics["seconds"],
        "threads": sessions[-1]["machine"]["threads"],
        "precision": result.config.precision,
    }


def train(config: Config, setting: Setting, watchers: BuildWatchers | None = None) -> Result:
    """Train a configuration, or read its result if it is finished."""
    from oni.recipes.training import run
    from oni.recipes.training.watch import build_watchers

    dataset = setting.load_dataset(config)
    return run.train(
        config,
        setting.runs,
        data=dataset,
        hardware=setting.hardware,
        watch=(watchers or build_watchers)(config, dataset) if config.watch else None,
        progress=setting.reporter or setting.progress,
        resume=setting.resume,
    )


def find(config: Config, setting: Setting) -> Result | None:
    """The result of a configuration, if it is finished."""
    from oni.recipes.training.run import find_result

    return find_result(config, setting.runs, setting.load_dataset(config).sha256)


# How long runs are.


def count_steps(config: Config) -> int:
    """The number of updates of a configuration; for a GAN, those of the generator."""
    from oni.recipes.data.datasets import DATASETS

    images = config.samples or DATASETS[config.data].train_images - config.validation
    per_epoch = config.task_options.get("updates") or images // config.batch_size
    return config.epochs * int(per_epoch)


COLOURS: Mapping[str, str] = {
    "plain": "#666666",
    "xavier": "#666666",
    "xavier-released": "#8B5A2B",
    "wn": "#8B5A2B",
    "orth-init": "#E69F00",
    "orth-init-sqrt2": "#B8A000",
    "orth-init-released": "#B8A000",
    "orth-reg": "#7A5195",
    "olm-1": "#D55E00",
    "olm-sqrt2": "#CC79A7",
    "bn": "#56B4E9",
    "gn": "#E69F00",
    "oni": "#0072B2",
    "oni-searched": "#009E73",
    "oni-released": "#CC79A7",
    "oni-uncentred": "#009E73",
    "centred-wn": "#003f5c",
    "oni-start-released": "#D55E00",
    "oni-released-uncentred": "#009E73",
    "oni-small-branches": "#7A5195",
    "gn-released": "#D55E00",
}
"""The colours of lines in charts, by the name of the row."""
