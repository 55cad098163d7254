import pytest
import torch

import oni
from oni import diagnostics


def test_batches_and_shapes():
    W = torch.randn(2, 3, 4, 5)
    assert oni.spectrum(W).shape == (2, 3, 4)
    delta = oni.orthogonality(W)
    assert delta.row.shape == delta.column.shape == (2, 3)


def test_orthogonality_of_an_orthogonal_matrix():
    Q = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64)).Q
    # Rounding of an 8 x 8 product.
    assert oni.orthogonality(Q) == pytest.approx((0, 0), abs=1e-14)
    assert oni.orthogonality(2 * Q).row == pytest.approx(3 * 8**0.5)


def test_bad_input():
    with pytest.raises(TypeError, match=r"torch.int64"):
        oni.spectrum(torch.ones(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"got \(3,\)"):
        oni.orthogonality(torch.ones(3))


def test_nan_and_infinity_give_nan_and_spare_the_others():
    W = torch.randn(3, 4, 5)
    W[0, 1, 1], W[2, 0, 0] = float("nan"), float("inf")
    for of in (oni.spectrum, oni.diagnostics.condition_number, oni.diagnostics.effective_rank):
        found = of(W)
        assert found[0].isnan().all()
        assert found[2].isnan().all()
        assert torch.equal(found[1], of(W[1]))


def test_condition_number():
    W = torch.diag(torch.tensor([2.0, 1.0, 0.5]))
    # Singular values of a diagonal matrix, to float64's rounding.
    assert float(diagnostics.condition_number(W)) == pytest.approx(4, rel=1e-12)
    assert float(diagnostics.condition_number(torch.diag(torch.tensor([1.0, 0.0])))) == float("inf")
    assert diagnostics.condition_number(torch.zeros(2, 2)).isnan()
    assert diagnostics.condition_number(torch.zeros(2, 0)).isnan()


def test_effective_rank():
    Q = torch.linalg.qr(torch.randn(8, 6, dtype=torch.float64)).Q
    assert float(diagnostics.effective_rank(Q)) == pytest.approx(6, rel=1e-12)
    assert float(diagnostics.effective_rank(3 * Q[:, :1] @ Q[:, 1:2].T)) == pytest.approx(1, rel=1e-9)
    shares = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    # exp(H) with H = 0.5 log 2 + 0.5 log 4.
    assert float(diagnostics.effective_rank(torch.diag(shares))) == pytest.approx(2**1.5, rel=1e-12)
    assert diagnostics.effective_rank(torch.zeros(2, 2)).isnan()
    W = torch.randn(5, 7, dtype=torch.float64)
    assert (
        1 <= float(diagnostics.effective_rank(W)) == pytest.approx(float(diagnostics.effective_rank(10 * W)), rel=1e-12)
    )
