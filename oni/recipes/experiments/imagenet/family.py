"""What the ImageNet tables and the figure share: their runs, presets and names.

The paper trains each candidate (a learning rate, a weight decay) to its end and reports the best. Where time is short,
a run chooses between its candidates by short *trials* with images held out, and is trained once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from oni.names import unknown_name
from oni.recipes.experiments.rows import Options, Row, format_options

__all__ = [
    "AGAIN",
    "CLASSES",
    "IMAGES",
    "LONG",
    "PRESETS",
    "SHORT",
    "Training",
    "describe_run",
    "describe_sweeps",
    "drop_epochs",
    "estimate_cost",
    "make_runs",
]

IMAGES = {"imagenet": 1_281_167, "tiny-imagenet-20": 5000, "generated-folder": 80}
AGAIN = "Also in short training on few classes: "
"""How claims begin that are judged on less than all of ImageNet."""
TEST_IMAGES = {"imagenet": 50_000, "tiny-imagenet-20": 1000, "generated-folder": 32}
CLASSES = {"imagenet": 1000, "tiny-imagenet-20": 20, "generated-folder": 8}
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
"""Of every table; each adds its networks and what is searched."""


@dataclass(frozen=True)
class Training:
    """A network trained from one seed, with what is best of its candidates."""

    row: str
    network: str
    """As ``vgg16``, ``resnet18``."""
    options: Options
    """Of its size, and what a figure varies; over those of the row and the candidate."""
    rates: tuple[float, ...]
    """Learning rates to choose from; one alone is taken as it is."""
    candidates: tuple[Options, ...]
    """What else to choose from."""
    batch_size: int
    seed: int
    data: str
    samples: int
    epochs: int
    trial_seed: int = 0
    trial_epochs: int = 0
    trial_validation: int = 0
    """How many images are held out in trials."""
    overrides: Options = field(default_factory=dict)
    """What the user changed of its configuration."""

    @property
    def steps(self) -> int:
        """How many updates it trains, without trials."""
        return self.epochs * (self.images // self.batch_size)

    @property
    def images(self) -> int:
        """How many it trains on."""
        if self.data not in IMAGES:
            raise ValueError(unknown_name("data", self.data, IMAGES))
        return self.samples or IMAGES[self.data]

    def trials(self) -> list[tuple[float, Options]]:
        """Every learning rate with every candidate, if there is something to choose."""
        tried = [(rate, candidate) for candidate in self.candidates for rate in self.rates]
        return tried if len(tried) > 1 else []

    def override(self, overrides: Options) -> Training:
        """The run with the overrides that are not sizes of the preset."""
        rest = {key: value for key, value in overrides.items() if key not in ("data", "samples", "epochs")}
        changes: dict[str, Any] = {key: rest.pop(key) for key in ("batch_size",) if key in rest}
        own = {key: rest[key] for key in self.options if key in rest}
        return replace(self, **changes, options={**self.options, **own}, overrides=rest)


def make_runs(
    rows: Sequence[Row],
    network: str,
    seeds: Sequence[int],
    *,
    data: str,
    samples: int,
    epochs: int,
    batch_size: int,
    options: Options | None = None,
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
    runs = []
    for seed in seeds:
        for row in rows:
            common: dict[str, Any] = {
                "row": row.name, "network": network, "options": options or {}, "batch_size": batch_size, "seed": seed,
                "data": data, "samples": samples, "epochs": epochs,
            }  # fmt: skip
            if each:
                runs += [
                    Training(**common, rates=(rate,), candidates=(candidate,))
                    for rate in row.rates
                    for candidate in row.candidates
                ]
            elif trial_epochs:
                held_out = (samples or IMAGES.get(data, 0)) // 10
                runs.append(
                    Training(
                        **common,
                        rates=rates or row.rates,
                        candidates=row.candidates[:1],
                        trial_seed=seeds[0],
                        trial_epochs=trial_epochs,
                        trial_validation=held_out,
                    )
                )
            else:
                runs.append(Training(**common, rates=(row.rate,), candidates=row.candidates[:1]))
    return runs


def drop_epochs(epochs: int, data: str = "imagenet") -> tuple[int, ...]:
    """After which epochs the learning rate drops: as 30, 60 and 90 of 100.

    On few images the first is left out: by then a network would have made some hundred steps, and many have not begun
    to learn.

    >>> drop_epochs(100), drop_epochs(10), drop_epochs(12, "tiny-imagenet-20"), drop_epochs(1)
    ((30, 60, 90), (3, 6, 9), (7, 10), ())
    """
    parts = (3, 6, 9) if data == "imagenet" else (6, 9)
    return tuple(sorted({epochs * part // 10 for part in parts} - {0}))


# Names and times.


def describe_run(run: Training) -> str:
    """A run in a few words; network and row first, which ``--only vgg16/oni`` chooses."""
    words = [f"{run.network}/{run.row}"]
    varied = {key: value for key, value in run.options.items() if not key.startswith("network_options.")}
    if run.trials():
        words.append(f"best of {len(run.trials())} short trials")
    else:
        words += filter(None, [f"learning rate {run.rates[0]:g}", format_options(run.candidates[0])])
    return ", ".join([*words, *filter(None, [format_options(varied)]), f"seed {run.seed}"])


COSTS = {"vgg16": 15.5, "resnet18": 1.8, "resnet50": 4.1, "resnet101": 7.8}
"""Multiplications and additions for an image of 224 x 224, in thousands of millions."""
USUAL_WIDTH = 64


def estimate_cost(run: Training) -> float:
    """How long a run takes beside others, its trials included."""
    width = run.options.get("network_options.width", USUAL_WIDTH)
    image = COSTS[run.network] * (width / USUAL_WIDTH) ** 2 * (1 if run.data == "imagenet" else (64 / 224) ** 2)
    epochs = run.epochs + len(run.trials()) * run.trial_epochs
    return epochs * run.images * image * (1.4 if "oni" in run.row else 1.0)


def describe_sweeps(rows: Sequence[Row], **more: str) -> dict[str, str]:
    """What a table varies, so that nobody overrides it."""
    titles = f"compares {', '.join(row.title for row in rows)}"
    keys = {key for row in rows for options in (row.options, *row.candidates) for key in options}
    return {
        "method": titles,
        "network": "has networks of its own",
        "network_options.classes": "has as many as the data",
        "learning_rate": "has those of the paper for each method",
        "validation": "holds images out in trials",
        **dict.fromkeys(sorted(keys), titles),
        **more,
    }
