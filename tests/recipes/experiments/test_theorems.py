"""The theorems: what theory says of gains, and that a covariance that is not isotropic is noticed."""

import math

import pytest
import torch

from oni.recipes.experiments.theorems.family import confidence_limit
from oni.recipes.experiments.theorems.theorem1 import measure_isotropy
from oni.recipes.experiments.theorems.theorem2 import ISOMETRIC, SCALES, predict_gain


@pytest.mark.parametrize(
    ("center", "scale", "expected"),
    [(False, "1", 0.5), (False, "sqrt 2", 1.0), (True, "1", 0.3408), (True, "sqrt 2", 0.6817), (True, "1.7129", 1.0)],
)
def test_theory_of_gains(center, scale, expected):
    assert predict_gain(center, scale, "forward") == pytest.approx(expected, abs=5e-5)
    assert predict_gain(center, scale, "backward") == pytest.approx(SCALES[scale] ** 2 / 2)


def test_the_isometric_scale():
    assert pytest.approx(1.7129, abs=5e-5) == ISOMETRIC


def test_isotropy_finds_what_is_not():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, 8, generator=generator, dtype=torch.float64)
    assert measure_isotropy(x, 1.0)["largest_deviation"] < confidence_limit(44)
    assert measure_isotropy(x, 1.0)["entries"] == 44
    assert measure_isotropy(1.05 * x, 1.0)["largest_deviation"] > 2 * confidence_limit(44)
    assert measure_isotropy(x + 0.1, 1.0)["largest_deviation"] > 2 * confidence_limit(44)
    mixed = x.clone()
    mixed[:, 0] = (x[:, 0] + 0.2 * x[:, 1]) / math.sqrt(1.04)
    assert measure_isotropy(mixed, 1.0)["largest_deviation"] > 2 * confidence_limit(44)
