import re
from itertools import combinations
from pathlib import Path

import pytest

from oni.recipes.charts.colours import decode, distance, for_dark, from_polar, ramp, shades, to_oklab, to_polar
from oni.recipes.report import page
from oni.recipes.report.labels import OTHER_COLOURS
from oni.style import COLOURS

CSS = Path(page.__file__).with_name("report.css").read_text()
LIGHT, DARK = re.search(r"--page: light-dark\((#\w+), (#\w+)\)", CSS).groups()


def luminance(colour):
    red, green, blue = (decode(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    low, high = sorted([luminance(first), luminance(second)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [*COLOURS.values(), "#000000"])
def test_contrast_on_dark(colour):
    assert contrast(for_dark(colour), DARK) >= 3.0  # what WCAG 2 asks of lines in a chart


def test_methods_can_be_told_apart_on_dark():
    """Two colours that differ clearly on light still do; vermilion and brown, for one, both became a light orange."""
    colours = {*COLOURS.values(), *OTHER_COLOURS, "#8B5A2B", "#7A5195"}
    clear = [pair for pair in combinations(sorted(colours), 2) if distance(*pair) > 0.13]
    assert len(clear) > 20
    assert min(distance(for_dark(first), for_dark(second)) for first, second in clear) > 0.1


@pytest.mark.parametrize("count", [2, 4, 7])
def test_a_ramp_can_be_told_apart_and_seen_on_both_backgrounds(count):
    light = ramp(COLOURS["oni"], count)
    dark = [for_dark(colour) for colour in light]
    for colours, background in ((light, LIGHT), (dark, DARK)):
        assert min(contrast(colour, background) for colour in colours) >= 3.0
        # 0.02 is just noticeable between two patches side by side; lines are thin and apart.
        assert min(distance(first, second) for first, second in combinations(colours, 2)) > 0.05


def test_a_ramp_on_dark_is_not_white():
    assert min(distance(for_dark(colour), "#ffffff") for colour in ramp(COLOURS["oni"], 7)) > 0.2


def test_shades_go_from_dark_to_light():
    lightness = [to_oklab(colour)[0] for colour in shades(COLOURS["oni"], 4)]
    assert lightness == sorted(lightness)


@pytest.mark.parametrize("name", ["oni", "olm"])
def test_four_shades_can_be_told_apart_in_light_and_dark(name):
    light = shades(COLOURS[name], 4)
    for colours in (light, [for_dark(colour) for colour in light]):
        assert min(distance(first, second) for first, second in combinations(colours, 2)) > 0.05


@pytest.mark.parametrize("colour", ["#000000", "#ffffff", "#0072b2", "#d55e00", "#123456"])
def test_there_and_back(colour):
    assert from_polar(*to_polar(to_oklab(colour))) == colour


def test_a_colour_without_its_code_is_refused():
    with pytest.raises(ValueError, match="must be written #rrggbb, got 'blue'"):
        for_dark("blue")
