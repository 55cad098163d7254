"""Matrices small enough to check by hand. Expected values are printed to eight digits, hence 1e-8."""

import pytest
import torch
from torch import tensor

import oni

EIGHT_DIGITS = {"atol": 1e-8, "rtol": 0}
f64 = torch.float64


@pytest.mark.parametrize(
    ("bound", "steps", "diagonal"),
    [
        ("frobenius", 0, [0.6, 0.8]),
        ("frobenius", 1, [0.792, 0.944]),
        ("frobenius", 2, [0.939603456, 0.995383808]),
        ("compact", 0, [0.70018657, 0.93358210]),
        ("compact", 1, [0.87864269, 0.99352949]),
        ("compact", 2, [0.97880226, 0.99993733]),
    ],
)
def test_diagonal(bound, steps, diagonal):
    Z = torch.diag(tensor([3.0, 4.0], dtype=f64))
    W = oni.orthogonalize(Z, steps, center=False, bound=bound)
    torch.testing.assert_close(W, torch.diag(tensor(diagonal, dtype=f64)), **EIGHT_DIGITS)


@pytest.mark.parametrize("bound", ["frobenius", "compact", "trace", "trace2", "tight"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 20])
def test_centring_a_square_may_cost_its_rank(bound, steps):
    Z = torch.diag(tensor([3.0, 4.0], dtype=f64))
    expected = tensor([[0.42426407, -0.42426407], [-0.56568542, 0.56568542]], dtype=f64)
    torch.testing.assert_close(oni.orthogonalize(Z, steps, center=True, bound=bound), expected, **EIGHT_DIGITS)


def test_two_by_four():
    Z = tensor([[1.0, 2, 3, 4], [2, 0, 1, -1]], dtype=f64)
    assert torch.linalg.matrix_norm(Z) == 6
    plain = oni.orthogonalize(Z, 1, center=False, bound="frobenius")
    expected = [
        [0.17592593, 0.36111111, 0.53935185, 0.72453704],
        [0.46990741, -0.00462963, 0.22916667, -0.24537037],
    ]
    torch.testing.assert_close(plain, tensor(expected, dtype=f64), **EIGHT_DIGITS)
    compact = oni.orthogonalize(Z, 1, center=False)
    expected = [
        [0.17664537, 0.36509063, 0.54468597, 0.73313122],
        [0.5037393, -0.00589994, 0.24449472, -0.26514453],
    ]
    torch.testing.assert_close(compact, tensor(expected, dtype=f64), **EIGHT_DIGITS)

    torch.testing.assert_close(oni.spectrum(Z - Z.mean(1, keepdim=True)), tensor([3.0, 1.0], dtype=f64), **EIGHT_DIGITS)
    both = oni.orthogonalize(Z, 1, center=True)
    expected = [
        [-0.49999297, -0.24005985, 0.24005985, 0.49999297],
        [0.49999297, -0.24005985, 0.24005985, -0.49999297],
    ]
    torch.testing.assert_close(both, tensor(expected, dtype=f64), **EIGHT_DIGITS)
    second = oni.orthogonalize(Z, 2, center=True)[:, 1]
    torch.testing.assert_close(second, tensor([-0.33242109] * 2, dtype=f64), **EIGHT_DIGITS)
    limit = oni.orthogonalize(Z, 30, center=True)
    torch.testing.assert_close(limit.abs(), torch.full((2, 4), 0.5, dtype=f64), **EIGHT_DIGITS)


@pytest.mark.parametrize("bound", ["frobenius", "compact", "trace", "trace2", "tight"])
@pytest.mark.parametrize("steps", [0, 1, 5, 12])
def test_rank_one(bound, steps):
    z = torch.randn(1, 7, dtype=f64)
    centred = z - z.mean()
    # Rank 1 needs no iteration: exact up to rounding.
    torch.testing.assert_close(oni.orthogonalize(z, steps, center=True, bound=bound), centred / centred.norm())
    Z = torch.randn(5, 1, dtype=f64) @ z
    torch.testing.assert_close(oni.orthogonalize(Z, steps, center=False, bound=bound), Z / Z.norm())
