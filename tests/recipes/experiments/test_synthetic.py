"""The experiments against numbers by an independent implementation: means over numpy's default_rng(0) to (4)."""

import math

import numpy as np
import pytest
import torch

from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.synthetic import family, fig1, fig2, groups, tableA2
from oni.recipes.experiments.synthetic.family import Convergence
from oni.recipes.experiments.synthetic.groups import Grouping

SEEDS = range(5)
DELTAS = {
    "ONI": [7.926, 7.910, 7.876, 7.799, 7.632, 7.276, 6.567, 5.325, 3.600, 1.857, 0.621],
    "ONI+Center": [7.875, 7.724, 7.399, 6.745, 5.576, 3.893, 2.113, 0.774, 0.137, 0.006, 0.0],
    "ONI+CSB": [7.924, 7.907, 7.869, 7.785, 7.600, 7.210, 6.442, 5.128, 3.369, 1.665, 0.516],
    "ONI+Center+CSB": [7.122, 6.232, 4.800, 3.028, 1.422, 0.401, 0.043, 0.0007, 0.0, 0.0, 0.0],
}
AT_ONE = {
    "ONI": [0.00092, 0.0032, 0.993],
    "ONI+Center": [0.0092, 0.031, 0.072],
    "ONI+CSB": [0.0010, 0.0035, 1.000],
    "ONI+Center+CSB": [0.065, 0.21, 0.44],
}
COLUMNS = {
    "ONI": [5.482, 5.278, 4.877, 4.186, 3.229, 2.193, 1.251, 0.531, 0.127, 0.010],
    "ONI+CSB": [4.878, 4.204, 3.281, 2.272, 1.333, 0.592, 0.155, 0.0144],
}


@pytest.fixture
def reference(monkeypatch):
    """Draw matrices with numpy's generator."""

    def draw(shape, mean, seed):
        return torch.from_numpy(np.random.default_rng(seed).normal(mean, 1, tuple(shape)))

    for module in (family, fig1, groups):
        monkeypatch.setattr(module, "draw_gaussian", draw)


def run_convergence(shape, mean, variant, form="stable", precision="float64", steps=12, seeds=SEEDS):
    at = (1,) if form == "stable" else ()
    return Results(
        fig2.EXPERIMENT.run(Convergence(seed, shape, mean, variant, form, precision, steps, at)) for seed in seeds
    )


def run_grouping(shape, method, seeds=SEEDS):
    return Results(tableA2.EXPERIMENT.run(Grouping(seed, shape, method)) for seed in seeds)


@pytest.mark.parametrize("variant", DELTAS)
def test_figures_2_and_3(reference, variant):
    results = run_convergence((64, 256), 3.0, variant)
    # Half a unit of the last decimal, and some of the numbers have been rounded twice.
    assert results.mean("delta_row")[:11] == pytest.approx(DELTAS[variant], abs=5.5e-4)
    values = sorted(results.values("eigenvalues")[0]["1"])
    # Two digits are written down: the rounding of .0010 is 5 %.
    assert [values[0], (values[31] + values[32]) / 2, values[-1]] == pytest.approx(AT_ONE[variant], rel=0.05)


@pytest.mark.parametrize("variant", COLUMNS)
def test_figure_4(reference, variant):
    results = run_convergence((64, 32), 0.0, variant)
    expected = COLUMNS[variant]
    assert results.mean("delta_column")[: len(expected)] == pytest.approx(expected, abs=5.5e-4)
    assert results.mean("delta_row")[-1] == pytest.approx(math.sqrt(32), abs=1e-4)
    for row, column in zip(results.values("delta_row"), results.values("delta_column"), strict=True):
        # For any matrix; six digits are recorded.
        assert [a * a - b * b for a, b in zip(row, column, strict=True)] == pytest.approx([32] * len(row), abs=1e-3)
    assert results.values("eigenvalues")[0]["1"][32:] == [0.0] * 32


def test_figure_4_centred(reference):
    results = run_convergence((64, 32), 0.0, "ONI+Center+CSB")
    assert results.mean("delta_column")[-1] == pytest.approx(1, abs=1e-5)
    assert results.mean("delta_row")[-1] == pytest.approx(math.sqrt(33), abs=1e-4)


def test_the_printed_recurrence_diverges_and_the_stable_form_does_not(reference):
    printed = run_convergence((64, 256), 3.0, "ONI", form="literal", precision="float32", seeds=[0])
    stable = run_convergence((64, 256), 3.0, "ONI", precision="float32", seeds=[0])
    exact = run_convergence((64, 256), 3.0, "ONI", seeds=[0])
    (printed,), (stable,), (exact,) = (runs.values("delta_row") for runs in (printed, stable, exact))
    assert printed[:7] == pytest.approx(exact[:7], abs=1e-3)
    assert printed[12] is None or printed[12] > 1e20
    assert stable == pytest.approx(exact, abs=1e-4)


@pytest.mark.parametrize(
    ("method", "row", "column"),
    [
        ("ONI", math.sqrt(32), 0),
        ("OLM-G32", 8, math.sqrt(32)),
        # The mean and three deviations of a mean of five, by 200 seeds.
        ("OLM-G16", pytest.approx(9.8025, abs=3 * 0.093 / 5**0.5), pytest.approx(8.005, abs=3 * 0.114 / 5**0.5)),
        ("OLM-G8", pytest.approx(10.5831, abs=3 * 0.129 / 5**0.5), pytest.approx(8.944, abs=3 * 0.153 / 5**0.5)),
    ],
)
def test_table_A2(reference, method, row, column):
    results = run_grouping((64, 32), method)
    exact = isinstance(row, float | int)
    assert results.mean("delta_row") == (pytest.approx(row, abs=1e-4) if exact else row)
    assert results.mean("delta_column") == (pytest.approx(column, abs=1e-4) if exact else column)


@pytest.mark.parametrize(
    ("size", "delta", "largest"), [(64, 0, 1), (32, 5.653, 1.9997), (16, 6.921, 2.88), (8, 7.481, 3.34)]
)
def test_figure_A1(reference, size, delta, largest):
    results = run_grouping((64, 64), f"OLM-G{size}")
    assert results.mean("delta_row") == pytest.approx(delta, abs=0.15)
    assert np.mean([max(values) for values in results.values("eigenvalues")]) == pytest.approx(largest, rel=0.05)


def test_figure_1_with_zero_singular_values(reference):
    results = Results(fig1.EXPERIMENT.run(parameters) for parameters in fig1.EXPERIMENT.planned("smoke"))
    assert results.where(method="oni", kind="singular").values("gradient_finite") == [True, True]
    assert max(results.where(method="oni", kind="singular").values("error")) < 1e-4
