"""Every experiment under its id. A new one is a file with ``EXPERIMENT`` and a line in ``MODULES``."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from oni.names import unknown_name
from oni.recipes.experiments.experiment import Experiment
from oni.recipes.own import import_own, is_own

__all__ = ["MEASURED", "MODULES", "PAPER", "load_all", "load_experiment", "paper_order"]

MODULES = {
    "demo": "studies.demo",
    "practice": "studies.practice",
    "certified": "studies.certified",
    "conditioning": "studies.conditioning",
    "fig1": "synthetic.fig1",
    "fig2": "synthetic.fig2",
    "fig3": "synthetic.fig3",
    "fig4": "synthetic.fig4",
    "fig5": "fashion_mnist.fig5",
    "fig6": "fashion_mnist.fig6",
    "fig7a": "fashion_mnist.fig7a",
    "fig7b": "cifar10.fig7b",
    "fig7c": "imagenet.fig7c",
    "fig8a": "gan.fig8a",
    "fig8b": "gan.fig8b",
    "fig9": "gan.fig9",
    "table1": "cifar10.table1",
    "table2": "cifar10.table2",
    "table3": "imagenet.table3",
    "table4": "imagenet.table4",
    "table5": "imagenet.table5",
    "theorem1": "theorems.theorem1",
    "theorem2": "theorems.theorem2",
    "figA1": "synthetic.figA1",
    "figA2": "fashion_mnist.figA2",
    "figA3": "fashion_mnist.figA3",
    "figA4": "cifar10.figA4",
    "figA5": "cifar10.figA5",
    "figA6": "fashion_mnist.figA6",
    "figA7": "gan.figA7",
    "figA8": "gan.figA8",
    "figA9": "gan.figA9",
    "figA10": "gan.figA10",
    "figA11": "gan.figA11",
    "tableA1": "timing.tableA1",
    "tableA2": "synthetic.tableA2",
}
"""By id, our own first and then in the paper's order: the file below this folder."""
OWN = ("demo", "practice", "certified", "conditioning")
"""Our own."""
PAPER = tuple(id for id in MODULES if id not in OWN)
MEASURED = ("practice", "certified", "conditioning", *PAPER)
"""Those with committed results."""


def load_experiment(id: str) -> Experiment:
    """The experiment of an id, or of the user's own name for one, ``package.module:EXPERIMENT``."""
    if is_own(id):
        own: Experiment = import_own("experiment", id, is_experiment, "an Experiment")
        return replace(own, id=id)
    if id not in MODULES:
        raise ValueError(unknown_name("experiment", id, MODULES))
    experiment: Experiment = import_module(f"{__package__}.{MODULES[id]}").EXPERIMENT
    return experiment


def is_experiment(value: object) -> bool:
    return isinstance(value, Experiment)


def load_all() -> dict[str, Experiment]:
    """Every experiment by its id."""
    return {id: load_experiment(id) for id in MODULES}


def paper_order(id: str) -> int:
    """The position of an experiment among all, as a key for sorting."""
    return list(MODULES).index(id) if id in MODULES else len(MODULES)
