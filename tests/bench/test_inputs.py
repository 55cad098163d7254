import pytest
import torch
from torch.testing import assert_close

from oni.bench.inputs import SPECTRA, draw_inputs, spread_singular_values

SHAPES = [(6, 10), (7, 7), (10, 6), (3, 6, 10), (2, 10, 6)]
EPS = torch.finfo(torch.float32).eps


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inputs_are_fixed(shape, spectrum):
    for first, second in zip(draw_inputs(shape, spectrum), draw_inputs(shape, spectrum), strict=True):
        assert first.shape == shape
        assert first.is_contiguous()
        assert torch.equal(first, second)
    Z, G = draw_inputs(shape, spectrum)
    assert not torch.equal(Z, G)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("spectrum", "condition"), [("trained", 2.2), ("condition100", 100)])
def test_singular_values_are_as_named_centred_or_not(shape, spectrum, condition):
    Z, _ = draw_inputs(shape, spectrum)
    n, d = shape[-2:]
    expected = spread_singular_values(spectrum, min(n, d))
    assert expected[-1] == 1
    assert float(expected[-1] / expected[0]) == pytest.approx(condition)
    for matrix in (Z, Z - Z.mean(-1, keepdim=True)) if n < d else (Z,):
        values = torch.linalg.svdvals(matrix.double()).flip(-1)
        # 60 entries below 1, rounded to float32: singular values move by the norm of that at most.
        assert_close(values, expected.expand_as(values), rtol=0, atol=EPS * 60**0.5)


def test_what_training_leaves_is_spread_like_a_normal_distribution():
    squares = spread_singular_values("trained", 256).square()
    bound = squares.mean() + (255 / 256) ** 0.5 * (squares - squares.mean()).norm()
    # From 0.278 starts a 256 x 256 weight that was trained from an orthogonal start, of condition 2.2; other trainings
    # leave others. With singular values spread evenly it would be 0.221.
    assert float(squares[0] / bound) ** 0.5 == pytest.approx(0.278, abs=0.01)


def test_one_row():
    Z, _ = draw_inputs((1, 5), "trained")
    assert float(Z.norm()) == pytest.approx(1, abs=4 * EPS)
