"""What experiments are called in the navigation and in the gallery."""

from __future__ import annotations

import re

from oni.recipes.experiments.catalogue import CATALOGUE

__all__ = ["SHORT_TITLES", "name_experiment", "nav_title"]

SHORT_TITLES = {
    "practice": "ONI and common practice",
    "certified": "certified networks",
    "conditioning": "conditioning in training",
    "fig1": "singular values by step",
    "fig2": "convergence",
    "fig3": "centring and compact bound",
    "fig4": "rows and columns",
    "fig5": "ten-layer MLP",
    "fig6": "scaling by sqrt 2",
    "fig7a": "steps, six-layer MLP",
    "fig7b": "steps, VGG style",
    "fig7c": "steps, ResNet-18",
    "fig8a": "DCGAN by steps",
    "fig8b": "DCGAN, six settings",
    "fig9": "ResNet GAN",
    "table1": "VGG style, CIFAR-10",
    "table2": "ResNet-110 without BN",
    "table3": "VGG-16, ImageNet",
    "table4": "ResNet-18, ImageNet",
    "table5": "ResNet-50 and 101",
    "theorem1": "orthogonal layers",
    "theorem2": "sqrt 2 and ReLU",
    "figA1": "OLM in groups",
    "figA2": "signal by layer",
    "figA3": "groups of rows",
    "figA4": "VGG style, training",
    "figA5": "ResNet-110 by epoch",
    "figA6": "training by steps",
    "figA7": "DCGAN, Inception score",
    "figA8": "ResNet GAN, Inception score",
    "figA9": "DCGAN images by steps",
    "figA10": "DCGAN images by setting",
    "figA11": "ResNet GAN images",
    "tableA1": "wall-clock time",
    "tableA2": "orthogonality in groups",
}
"""A few words for each, as a menu is narrow; the title of the experiment stands in for what is missing here."""


def name_experiment(id: str) -> str:
    """What the paper calls a figure, table or theorem; empty for studies that are not the paper's.

    >>> name_experiment("fig7a"), name_experiment("tableA1"), name_experiment("practice")
    ('Fig. 7a', 'Table A1', '')
    """
    match = re.fullmatch(r"(fig|table|theorem)(A?\d+[a-z]?)", id)
    return f"{match[1].replace('fig', 'fig.').capitalize()} {match[2]}" if match else ""


def nav_title(id: str) -> str:
    """The title in the navigation.

    >>> nav_title("fig5"), nav_title("practice")
    ('Fig. 5: ten-layer MLP', 'ONI and common practice')
    """
    name, short = name_experiment(id), SHORT_TITLES.get(id, CATALOGUE[id][0])
    return f"{name}: {short}" if name else short[0].upper() + short[1:]
