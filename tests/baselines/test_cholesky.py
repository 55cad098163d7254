"""Orthogonalisation by a Cholesky factor: what it is, its gradients, and what it refuses."""

import gc
import weakref

import pytest
import torch
from rounding import rounding
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

from oni.baselines import orthogonalize_cholesky

f64 = torch.float64
SHAPES = [(4, 7), (5, 5), (7, 4), (1, 3), (3, 1), (3, 4, 6), (2, 3, 6, 4), (3, 8), (8, 3), (2, 3, 7)]
"""The last three have long rows."""


def draw(*shape, dtype=f64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def by_qr(Z):
    """Gram and Schmidt by Householder reflections, with the signs that make R's diagonal positive."""
    if Z.shape[-2] <= Z.shape[-1]:
        Q, R = torch.linalg.qr(Z.mT)
        return (Q * R.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]).mT
    return by_qr(Z.mT).mT


@pytest.mark.parametrize(
    ("shape", "center"), [*((shape, False) for shape in SHAPES), ((4, 7), True), ((3, 4, 6), True)], ids=str
)
def test_it_is_gram_and_schmidt(shape, center):
    Z = draw(*shape)
    expected = by_qr(Z - Z.mean(-1, keepdim=True) if center else Z)
    # A Gram matrix, a factor and a solve of sums of up to 7 in float64; condition numbers below 100 enter squared.
    assert_close(orthogonalize_cholesky(Z, center=center), expected, **rounding(3e4, 7, dtype=f64))


def test_the_input_is_left_alone():
    Z = draw(4, 7)
    before = Z.clone()
    orthogonalize_cholesky(Z, center=True)
    assert torch.equal(Z, before)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients(shape):
    Z = draw(*shape).requires_grad_()
    assert gradcheck(orthogonalize_cholesky, Z)
    assert gradgradcheck(orthogonalize_cholesky, Z)


def test_gradients_when_centred():
    Z = draw(3, 4, 7).requires_grad_()
    assert gradcheck(lambda Z: orthogonalize_cholesky(Z, center=True), Z)
    assert gradgradcheck(lambda Z: orthogonalize_cholesky(Z, center=True), Z)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (6, 6), (3, 5, 9), (4, 9), (2, 9, 4)], ids=str)
def test_the_gradient_is_autograd_s(shape):
    Z, G = draw(2, *shape)

    def plain(Z):
        if Z.shape[-2] > Z.shape[-1]:
            return plain(Z.mT).mT
        return torch.linalg.solve_triangular(torch.linalg.cholesky(Z @ Z.mT), Z, upper=False)

    gradients = []
    for function in (orthogonalize_cholesky, plain):
        leaf = Z.clone().requires_grad_()
        gradients.append(torch.autograd.grad(function(leaf), leaf, G)[0])
    # Conditions of up to some hundred, squared in the Gram matrix and once more in the gradient: 1e6 epsilons.
    assert_close(*gradients, atol=1e-9, rtol=1e-9)


def test_the_gradient_along_scales_is_zero():
    """W(c Z) = W(Z): nothing is to be gained by a longer Z."""
    Z, G = draw(2, 5, 8)
    leaf = Z.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(orthogonalize_cholesky(leaf), leaf, G)
    # A sum of 40 numbers that are some epsilons wrong, times the condition number squared: below 1e4 epsilons.
    assert abs(float((gradient * Z).sum())) < 1e4 * torch.finfo(f64).eps * float(gradient.norm() * Z.norm())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_works_in_float32(dtype):
    Z = draw(4, 9, dtype=torch.float32).to(dtype)
    W = orthogonalize_cholesky(Z)
    assert W.dtype == dtype
    assert torch.equal(W, orthogonalize_cholesky(Z.float()).to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(orthogonalize_cholesky(Z), W)


def test_nothing_in_nothing_out():
    assert orthogonalize_cholesky(torch.empty(0, 3)).shape == (0, 3)
    assert orthogonalize_cholesky(torch.empty(2, 0, 3)).shape == (2, 0, 3)


@pytest.mark.parametrize(
    ("Z", "which"),
    [
        (torch.zeros(3, 4), "Z"),
        (torch.zeros(4, 3), "Z"),
        (torch.full((2, 3), float("nan")), "Z"),
        (torch.full((2, 3), float("inf")), "Z"),
        (torch.stack([torch.eye(2, 3), torch.zeros(2, 3)]), "Z[1]"),
        (torch.stack([torch.eye(2, 3), torch.zeros(2, 3)])[None], "Z[0, 1]"),
        # A row that depends on the others up to rounding: LAPACK finds a factor, of noise.
        (torch.tensor([[0.1, 0.2, 0.7], [0.3, 0.9, 0.4], [0.4, 1.1, 1.1]]), "Z"),
        (draw(40, 60, dtype=torch.float32)[[*range(40), 0]], "Z"),
        (draw(40, 8) @ draw(8, 60), "Z"),
    ],
)
def test_what_has_no_full_rank_is_named(Z, which):
    with pytest.raises(ValueError, match="Z must have full rank") as error:
        orthogonalize_cholesky(Z)
    assert f"the Gram matrix of {which} is not" in str(error.value)
    assert "oni.orthogonalize" in str(error.value)


@pytest.mark.parametrize(
    ("Z", "error", "message"),
    [
        ([[1.0]], TypeError, "Z must be a torch.Tensor"),
        (torch.ones(2, 3, dtype=torch.int64), TypeError, "float32"),
        (torch.ones(3), ValueError, "must be a matrix"),
    ],
)
def test_wrong_inputs(Z, error, message):
    with pytest.raises(error, match=message):
        orthogonalize_cholesky(Z)


def test_centred_squares_have_no_full_rank():
    with pytest.raises(ValueError, match="with center=True, shape \\(3, 3\\) does not have full rank"):
        orthogonalize_cholesky(torch.eye(3), center=True)


def test_nothing_is_kept_alive():
    Z = torch.randn(4, 6, requires_grad=True)
    W = orthogonalize_cholesky(Z)
    W.sum().backward()
    seen = weakref.ref(W)
    gc.disable()
    try:
        del W
        assert seen() is None
    finally:
        gc.enable()
