import pytest
import torch

import oni


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
