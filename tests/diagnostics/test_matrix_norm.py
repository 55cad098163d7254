"""Norms from above: never below the exact one, and hardly above it."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oni.diagnostics.matrix_norm import gamma, matrix_norm_bound


def is_above(W, bound):
    """Whether bound^2 I - W W^T is positive definite, in exact arithmetic: elimination on fractions."""
    rows = [[Fraction(x) for x in row] for row in W.tolist()]
    M = [[-sum(a * b for a, b in zip(r, s, strict=True)) for s in rows] for r in rows]
    for i in range(len(M)):
        M[i][i] += Fraction(bound) ** 2
    for k in range(len(M)):
        if M[k][k] <= 0:
            return False
        for i in range(k + 1, len(M)):
            factor = M[i][k] / M[k][k]
            M[i] = [a - factor * b for a, b in zip(M[i], M[k], strict=True)]
    return True


def orthogonal(n, d, seed=0):
    W = torch.empty(n, d)
    torch.manual_seed(seed)
    return torch.nn.init.orthogonal_(W)


MATRICES = {
    "gaussian": lambda: torch.randn(6, 9),
    "orthogonal": lambda: orthogonal(8, 8),
    "tall": lambda: torch.randn(12, 4),
    "rank 1": lambda: torch.randn(5, 1) @ torch.randn(1, 5),
    "huge": lambda: torch.randn(4, 4, dtype=torch.float64) * 1e200,
    "tiny": lambda: torch.randn(4, 4, dtype=torch.float64) * 1e-200,
    "one entry": lambda: torch.tensor([[3.0]]),
    "graded": lambda: torch.randn(5, 5).double() * 10.0 ** -torch.arange(0, 25, 5).double(),
}


@pytest.mark.parametrize("name", MATRICES)
def test_proved_in_exact_arithmetic(name):
    W = MATRICES[name]()
    bound = matrix_norm_bound(W)
    W = W if len(W) <= W.shape[1] else W.mT
    assert is_above(W, bound)
    # What is added grows with the size of the matrix, and is far below this for one of 12 rows.
    assert not is_above(W, bound * (1 - 1e-8))


def test_without_the_margin_it_would_be_wrong():
    """The largest singular value as LAPACK finds it is as often below the norm as above."""
    found = [orthogonal(6, 6, seed) for seed in range(20)]
    assert not all(is_above(W, float(torch.linalg.svdvals(W.double())[0])) for W in found)
    assert all(is_above(W, matrix_norm_bound(W)) for W in found)


@given(st.integers(0, 10**6), st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_close_to_the_norm(seed, n, d, is_complex):
    generator = torch.Generator().manual_seed(seed)
    W = torch.randn(3, n, d, dtype=torch.complex128 if is_complex else torch.float64, generator=generator)
    norm = float(torch.linalg.svdvals(W).max())
    # About 1e-11, more for a matrix that is nearly of rank 1, where the Frobenius norm is the bound.
    assert norm < matrix_norm_bound(W) < norm * (1 + 1e-8)


def test_edges():
    assert matrix_norm_bound(torch.zeros(3, 4)) == 0
    assert matrix_norm_bound(torch.zeros(0, 4)) == 0
    assert str(matrix_norm_bound(torch.tensor([[float("nan"), 1.0]]))) == "nan"
    assert str(matrix_norm_bound(torch.tensor([[float("inf"), 1.0]]))) == "nan"
    assert gamma(10, 0.1) == float("inf")
    assert gamma(0) == 0


def test_a_large_one():
    W = orthogonal(256, 784)
    # Singular values of float32 rows are within 1e-6 of 1.
    assert matrix_norm_bound(W) == pytest.approx(1, abs=1e-6)
