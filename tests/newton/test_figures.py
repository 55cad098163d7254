"""The paper's synthetic set-ups, with numbers computed independently of this code."""

import numpy as np
import pytest
import torch

import oni

f64 = torch.float64
PLAIN = {"center": False, "bound": "frobenius"}
CENTRED = {"center": True, "bound": "frobenius"}
COMPACT = {"center": False, "bound": "compact"}
BOTH = {"center": True, "bound": "compact"}


def gaussian(seed, *shape, mean=0.0):
    return torch.from_numpy(np.random.default_rng(seed).normal(mean, 1.0, shape))


# Means over seeds 0-4, printed to three digits: 5e-4, and as much again where they were rounded from rounded values.
@pytest.mark.parametrize(
    ("options", "deltas"),
    [
        (PLAIN, [7.926, 7.910, 7.876, 7.799, 7.632, 7.276, 6.567, 5.325, 3.600, 1.857, 0.621]),
        (CENTRED, [7.875, 7.724, 7.399, 6.745, 5.576, 3.893, 2.113, 0.774, 0.137, 0.006, 0.0]),
        (COMPACT, [7.924, 7.907, 7.869, 7.785, 7.600, 7.210, 6.442, 5.128, 3.369, 1.665, 0.516]),
        (BOTH, [7.122, 6.232, 4.800, 3.028, 1.422, 0.401, 0.043, 0.0007, 0.0, 0.0, 0.0]),
    ],
    ids=["plain", "centred", "compact", "both"],
)
def test_figures_2_and_3(options, deltas):
    Z = torch.stack([gaussian(seed, 64, 256, mean=3.0) for seed in range(5)])
    ours = [float(oni.orthogonality(oni.orthogonalize(Z, t, **options)).row.mean()) for t in range(11)]
    assert ours == pytest.approx(deltas, abs=1e-3)


# Printed to two digits.
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (PLAIN, (0.00092, 0.0032, 0.993)),
        (CENTRED, (0.0092, 0.031, 0.072)),
        (COMPACT, (0.0010, 0.0035, 1.000)),
        (BOTH, (0.065, 0.21, 0.44)),
    ],
    ids=["plain", "centred", "compact", "both"],
)
def test_eigenvalues_after_one_step(options, expected):
    W = oni.orthogonalize(gaussian(0, 64, 256, mean=3.0), 1, **options)
    eigenvalues = oni.spectrum(W) ** 2
    found = [float(x) for x in (eigenvalues.min(), eigenvalues.quantile(0.5), eigenvalues.max())]
    assert found == pytest.approx(expected, rel=0.03)


def test_figure_4():
    Z = torch.stack([gaussian(seed, 64, 32) for seed in range(5)])

    def deltas(steps, **options):
        delta = oni.orthogonality(oni.orthogonalize(Z, steps, **options))
        return float(delta.row.mean()), float(delta.column.mean())

    frobenius = [5.482, 5.278, 4.877, 4.186, 3.229, 2.193, 1.251, 0.531, 0.127, 0.010]
    assert [deltas(t, **PLAIN)[1] for t in range(10)] == pytest.approx(frobenius, abs=2e-3)
    compact = [4.878, 4.204, 3.281, 2.272, 1.333, 0.592, 0.155, 0.0144]
    assert [deltas(t, **COMPACT)[1] for t in range(8)] == pytest.approx(compact, abs=2e-3)
    assert deltas(30, **PLAIN) == pytest.approx((32**0.5, 0.0), abs=1e-6)
    assert deltas(40, **BOTH) == pytest.approx((33**0.5, 1.0), abs=1e-6)


def test_centred_square():
    delta = oni.orthogonality(oni.orthogonalize(gaussian(0, 64, 64), 60, center=True))
    assert delta == pytest.approx((1.0, 1.0), abs=1e-6)


@pytest.mark.parametrize(
    ("d", "groups", "row", "column"),
    [
        # Exactly orthogonal groups: expected delta_row = sqrt(k (k - 1) G^2 / d); means over 200 seeds of sd .09-.15.
        (32, 2, 8.0, 5.6569),
        (32, 4, 9.798, 8.0),
        (32, 8, 10.583, 8.944),
        (64, 1, 0.0, 0.0),
        (64, 2, 5.657, 5.657),
        (64, 4, 6.928, 6.928),
        (64, 8, 7.483, 7.483),
    ],
)
def test_groups_are_not_orthogonal_to_each_other(d, groups, row, column):
    Z = torch.stack([gaussian(seed, 64, d) for seed in range(40)])
    W = oni.orthogonalize(Z, 60, center=False, groups=groups)
    delta = oni.orthogonality(W)
    exact = groups == 1 or 64 // groups == d
    # Mean of 40 seeds of sd .15: four standard errors are .1.
    tolerance = 1e-4 if exact else 0.1
    assert float(delta.row.mean()) == pytest.approx(row, abs=tolerance)
    assert float(delta.column.mean()) == pytest.approx(column, abs=tolerance)


def test_extreme_eigenvalues_of_groups():
    Z = torch.stack([gaussian(seed, 64, 64) for seed in range(40)])
    largest = {}
    for groups in (1, 2, 4, 8):
        largest[groups] = float(
            oni.spectrum(oni.orthogonalize(Z, 60, center=False, groups=groups))[:, 0].square().mean()
        )
    # Printed from another sample to three digits; the largest eigenvalue varies by a few percent between seeds.
    assert largest == pytest.approx({1: 1.0, 2: 1.9997, 4: 2.88, 8: 3.34}, rel=0.03)


@pytest.mark.parametrize(
    ("shape", "steps", "smallest", "mean"),
    [
        ((256, 784), 5, 0.673, 0.927),
        ((256, 784), 7, 0.971, 0.998),
        ((256, 256), 5, 0.0, 0.751),
        ((256, 256), 7, 0.0, 0.887),
        ((64, 576), 2, 0.470, 0.669),
        ((64, 576), 5, 0.964, 0.996),
        ((384, 3456), 5, 0.841, 0.949),
        ((32, 288), 5, 0.993, 0.999),
    ],
    ids=str,
)
def test_spectrum_of_centred_gaussians(shape, steps, smallest, mean):
    Z = torch.stack([gaussian(seed, *shape) for seed in range(2 if shape[1] > 1000 else 6)])
    sigma = oni.spectrum(oni.orthogonalize(Z, steps, center=True))
    # Printed from one sample to three digits. A sample's mean varies by .0014 at the most (256 x 256), its minimum
    # by .01 (64 x 576): four standard deviations.
    assert float(sigma.mean()) == pytest.approx(mean, abs=0.006)
    assert float(sigma.min(-1).values.mean()) == pytest.approx(smallest, abs=0.04)
