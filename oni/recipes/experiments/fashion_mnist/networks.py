"""The networks of the Fashion-MNIST figures: what each figure trains, and how it is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oni.recipes.charts.curves import Styles, ramp
from oni.recipes.experiments.experiment import Results
from oni.style import COLOURS

__all__ = [
    "FIG5",
    "FIG6",
    "FIG7A",
    "FIG_A2",
    "FIG_A3",
    "FIG_A6",
    "ISOMETRIC",
    "PRINTED",
    "along",
    "name_of",
    "of",
    "runs",
]

PRINTED = {"start": "given", "center": True}
"""As the paper has it: the entries of Z independent and random, rows centred."""
ISOMETRIC = {"start": "orthogonal", "center": False}
"""What keeps the signal best: Z starts orthogonal, rows are not centred."""
MIXED = (({"start": "given", "center": False}, PRINTED), ({"start": "orthogonal", "center": True}, ISOMETRIC))
"""The other two, and with which the learning rate is chosen."""


def network(
    depth: int, method: str, options: Mapping[str, Any], seeds: int | None = None, like: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What is trained; where runs are spared, with how many seeds, and with which options the rate is chosen."""
    select = options if like is None else like
    return {"depth": depth, "method": method, "options": dict(options), "seeds": seeds, "select_options": dict(select)}


FIG5 = [
    network(10, "plain", {}),
    network(10, "lecun", {}),
    network(10, "orth-init", {}),
    network(10, "oni", PRINTED),
    network(10, "oni", ISOMETRIC),
    *(network(10, "oni", options, seeds=1, like=like) for options, like in MIXED),
]
FIG6 = [
    *(
        network(depth, method, PRINTED if "oni" in method else {})
        for depth in (6, 20)
        for method in ("oni", "oni-ns", "olm", "olm-ns")
    ),
    network(6, "oni", ISOMETRIC, seeds=1, like=PRINTED),
    network(6, "oni-ns", ISOMETRIC, seeds=1, like=PRINTED),
    network(20, "oni", ISOMETRIC),
    network(20, "oni-ns", ISOMETRIC, seeds=1, like=PRINTED),
]
FIG_A2 = [each for each in FIG6 if each["depth"] == 20 and each["method"] in ("oni", "oni-ns")]


def with_steps(T: int) -> dict[str, Any]:
    return {**PRINTED, "steps": T}


FIG7A = [network(6, "oni", with_steps(T)) for T in range(1, 8)]
FIG_A3 = [network(10, "oni", {**PRINTED, "groups": 256 // size}) for size in (16, 32, 64, 128, 256)]
FIG_A6 = FIG7A + [network(10, "oni", with_steps(T), seeds=1, like=with_steps(5)) for T in (1, 3, 5, 7)]


NAMES = {
    "plain": "plain, torch's start",
    "lecun": "plain",
    "orth-init": "OrthInit",
    "oni": "ONI",
    "oni-ns": "ONI-NS",
    "olm": "OLM",
    "olm-ns": "OLM-NS",
}
STARTS = {"given": "Z random", "orthogonal": "Z orthogonal"}
STYLES = {
    "plain": "#999999",
    "lecun": COLOURS["plain"],
    "orth-init": "#E69F00",
    "oni": COLOURS["oni"],
    "oni-ns": "#56B4E9",
    "olm": COLOURS["olm"],
    "olm-ns": "#D55E00",
}
VARIANTS = {
    ("oni", "orthogonal", False): "#009E73",
    ("oni-ns", "orthogonal", False): "#8ED1B8",
    ("oni", "given", False): "#7A5195",
    ("oni", "orthogonal", True): "#B07AA1",
}


def name_of(network: Mapping[str, Any]) -> str:
    """For the legend, without the depth."""
    options = network["options"]
    words = [NAMES[network["method"]]]
    if "start" in options and {key: options[key] for key in PRINTED} != PRINTED:
        words.append(f"{STARTS[options['start']]}, {'centred' if options['center'] else 'not centred'}")
    if "steps" in options:
        words.append(f"T = {options['steps']}")
    if "groups" in options:
        words.append(f"G = {256 // options['groups']}")
    return ", ".join(words)


def of(results: Results, networks: list[dict[str, Any]]) -> Styles:
    """Colour and runs of each network by its name."""
    found: dict[str, tuple[str, Results]] = {}
    for each in networks:
        method, options = each["method"], each["options"]
        colour = VARIANTS.get((method, options.get("start"), options.get("center")), STYLES[method])
        found[name_of(each)] = (colour, runs(results, each))
    return found


def runs(results: Results, each: Mapping[str, Any]) -> Results:
    """Those of one network."""
    return results.where(depth=each["depth"], method=each["method"], options=each["options"])


def along(results: Results, networks: list[dict[str, Any]]) -> Styles:
    """As `of`, in shades of one colour."""
    shades = ramp(COLOURS["oni"], len(networks))
    return {name_of(each): (shade, runs(results, each)) for each, shade in zip(networks, shades, strict=True)}
