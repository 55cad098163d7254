"""The scalar map that all else evaluates. Expected values are printed to six digits, hence 1e-6."""

import math

import pytest
import torch

import oni
from oni.newton.schedule import phi

SIX_DIGITS = 1e-6


@pytest.mark.parametrize(
    ("start", "values"),
    [
        (0.5, [0.6875, 0.868774, 0.975300, 0.999092, 0.999999]),
        (0.1, [0.1495, 0.222579, 0.328356, 0.474832, 0.658719]),
    ],
)
def test_trajectories(start, values):
    assert [phi(start, t) for t in range(1, 6)] == pytest.approx(values, abs=SIX_DIGITS)


def test_quadratic_convergence():
    s = 1.5 * torch.rand(1000, dtype=torch.float64)
    after = torch.tensor([phi(x) for x in s.tolist()], dtype=torch.float64)
    # An identity between polynomials: only rounding differs.
    torch.testing.assert_close(1 - after, (1 - s) ** 2 * (2 + s) / 2, atol=1e-14, rtol=0)


# n equal singular values are n^(-1/4) under the compact bound; orthogonal rows have them.
@pytest.mark.parametrize(
    ("n", "values"),
    [
        (16, {0: 0.5, 1: 0.6875, 2: 0.868774, 3: 0.9753, 4: 0.999092, 5: 0.999999}),
        (64, {0: 0.353553, 1: 0.508233, 2: 0.696711, 3: 0.875973, 4: 0.97788, 5: 0.999271}),
        (256, {0: 0.25, 1: 0.367188, 2: 0.526028, 3: 0.716265, 4: 0.890662, 5: 0.982721}),
        (384, {5: 0.968486}),
        (512, {5: 0.954607}),
        (1024, {5: 0.907493}),
    ],
)
def test_equal_singular_values_compact(n, values):
    for steps, value in values.items():
        assert phi(n**-0.25, steps) == pytest.approx(value, abs=SIX_DIGITS)
        if n <= 64:
            W = oni.orthogonalize(torch.eye(n, n, dtype=torch.float64), steps, center=False)
            torch.testing.assert_close(W, value * torch.eye(n, dtype=torch.float64), atol=SIX_DIGITS, rtol=0)


def test_equal_singular_values_frobenius():
    values = [0.125, 0.186523, 0.27654, 0.404237, 0.573327, 0.765763, 0.924126, 0.991583, 0.999894]
    Z = torch.eye(64, 80, dtype=torch.float64)
    for steps, value in enumerate(values):
        W = oni.orthogonalize(Z, steps, center=False, bound="frobenius")
        torch.testing.assert_close(W, value * Z, atol=SIX_DIGITS, rtol=0)
    # The compact bound at n^2 starts where Frobenius does at n.
    assert phi(64**-0.25, 3) == pytest.approx(phi(8**-0.5, 3))


def test_outside_the_unit_interval():
    assert [phi(1.5, t) for t in (1, 2, 3)] == pytest.approx([0.5625, 0.754761, 0.917161], abs=SIX_DIGITS)
    assert phi(math.sqrt(3)) == pytest.approx(0, abs=1e-15)
    assert phi(2.0) == -1
    assert phi(math.sqrt(5)) == pytest.approx(-math.sqrt(5))
    assert phi(math.sqrt(5), 2) == pytest.approx(math.sqrt(5))


def test_slope_at_zero():
    # phi_5(s) / s = 1.5^5 (1 - O(s^2)), and s^2 is 1e-16 here.
    assert phi(1e-8, 5) / 1e-8 == pytest.approx(7.59375, rel=1e-12)
