"""OLM as a function: against the polar factor, the paper's numbers, and both of its gradients."""

import numpy as np
import pytest
import torch
from rounding import rounding
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import oni
from oni.baselines import orthogonalize_olm

f64 = torch.float64


def gaussian(*shape, seed=0, dtype=f64):
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 1, shape)).to(dtype)


def polar(Z, center):
    """U R^T of the singular value decomposition, zero singular values left out, in float64."""
    Z = Z.to(f64)
    Z = Z - Z.mean(-1, keepdim=True) if center else Z
    U, sigma, R = torch.linalg.svd(Z, full_matrices=False)
    kept = (sigma > 1e-6 * sigma[..., :1]).to(f64)
    return U * kept[..., None, :] @ R


SHAPES = [(1, 6), (5, 9), (6, 6), (2, 3, 4, 7)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("center", [True, False])
class TestAgainstOthers:
    def test_polar_factor(self, shape, center):
        Z = gaussian(*shape)
        # Through a Gram matrix, float64's 2e-16 grows by the square of the condition number, here below 100.
        assert_close(orthogonalize_olm(Z, center=center), polar(Z, center), atol=1e-11, rtol=0)

    def test_it_is_the_limit_of_newton(self, shape, center):
        Z = gaussian(*shape)
        # 30 steps lift singular values above 1e-4 of the largest to 1; noise in the null space is 4e-11 then.
        assert_close(orthogonalize_olm(Z, center=center), oni.orthogonalize(Z, 30, center=center), atol=1e-9, rtol=0)

    def test_gradient_is_the_limit_of_newton_s(self, shape, center):
        Z, G = gaussian(*shape).requires_grad_(), gaussian(*shape, seed=1)
        (ours,) = torch.autograd.grad(orthogonalize_olm(Z, center=center), Z, G)
        (newton,) = torch.autograd.grad(oni.orthogonalize(Z, 30, center=center), Z, G)
        # As above, and the gradient of an ill-conditioned matrix is itself up to 100 times larger.
        assert_close(ours, newton, atol=1e-7, rtol=1e-7)

    def test_any_scale(self, shape, center):
        Z = gaussian(*shape)
        for factor in (1e-200, 1e200):
            # 1e200 is no power of two: its product rounds, and the condition number magnifies that.
            assert_close(
                orthogonalize_olm(factor * Z, center=center), orthogonalize_olm(Z, center=center), atol=1e-11, rtol=0
            )


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((3, 5), {}),
        ((3, 5), {"center": False}),
        ((4, 4), {"center": False}),
        # Singular by centring: the derivative along such matrices.
        ((4, 4), {}),
        # Groups cut to 4 rows, the last smaller.
        ((7, 4), {}),
        ((7, 4), {"center": False, "group_size": 3}),
        ((2, 5, 6), {"group_size": 2}),
    ],
    ids=str,
)
def test_first_and_second_derivatives(shape, options):
    Z = gaussian(*shape).requires_grad_()

    def function(Z):
        return orthogonalize_olm(Z, **options)

    assert gradcheck(function, Z)
    assert gradgradcheck(function, Z)


def test_third_derivative():
    def slope(Z):
        return torch.autograd.grad(orthogonalize_olm(Z).pow(3).sum(), Z, create_graph=True)[0]

    assert gradgradcheck(slope, gaussian(3, 5).requires_grad_())


def test_gradient_with_and_without_a_graph():
    Z, G = gaussian(7, 5).requires_grad_(), gaussian(7, 5, seed=1)
    W = orthogonalize_olm(Z, group_size=5)
    (one,) = torch.autograd.grad(W, Z, G, retain_graph=True)
    (other,) = torch.autograd.grad(W, Z, G, create_graph=True)
    (again,) = torch.autograd.grad(W, Z, G)
    # Two formulas for the same; a condition number below 100, squared, times 2e-16, and gradients of that size.
    assert_close(other.detach(), one, atol=1e-9, rtol=1e-9)
    assert torch.equal(again, one)


@pytest.mark.parametrize("d", [32, 64])
@pytest.mark.parametrize("size", [64, 32, 16, 8])
def test_groups_are_not_orthogonal_to_each_other(d, size):
    Z = torch.stack([gaussian(64, d, seed=seed) for seed in range(40)])
    delta = oni.orthogonality(orthogonalize_olm(Z, group_size=size, center=False))
    # A group of 64 rows of 32 entries is cut to 32.
    rows = min(size, d)
    groups = 64 // rows
    expected = (groups * (groups - 1) * rows**2 / d) ** 0.5
    # Exact where the groups are square. Else the mean of 40 seeds of standard deviation .15: four of its errors.
    tolerance = 1e-6 if rows == d else 0.1
    assert float(delta.row.mean()) == pytest.approx(expected, abs=tolerance)
    # delta_row^2 - delta_col^2 = n - d for any matrix; of means, as above.
    assert float(delta.column.mean()) == pytest.approx((expected**2 - 64 + d) ** 0.5, abs=tolerance)


def test_extreme_eigenvalues_of_groups():
    Z = torch.stack([gaussian(64, 64, seed=seed) for seed in range(40)])
    largest = {
        size: float(oni.spectrum(orthogonalize_olm(Z, group_size=size, center=False))[:, 0].square().mean())
        for size in (64, 32, 16, 8)
    }
    # Printed from another sample to three digits; the largest eigenvalue varies by a few percent between seeds.
    assert largest == pytest.approx({64: 1.0, 32: 1.9997, 16: 2.88, 8: 3.34}, rel=0.03)


def test_groups_are_consecutive_rows_each_alone():
    Z = gaussian(11, 6)
    W = orthogonalize_olm(Z, group_size=4)
    # Alone or in a batch: rounding.
    for start in (0, 4, 8):
        assert_close(W[start : start + 4], orthogonalize_olm(Z[start : start + 4]), atol=1e-12, rtol=0)
    rows = orthogonalize_olm(Z, group_size=1)
    centred = Z - Z.mean(-1, keepdim=True)
    assert_close(rows, centred / centred.norm(dim=-1, keepdim=True))


def test_a_centred_square_group_lacks_one_direction():
    W = orthogonalize_olm(gaussian(27, 27))
    sigma = oni.spectrum(W)
    # Rounding of a matrix whose condition number, without the zero, is below 1000: 2e-16 of its square.
    assert_close(sigma[:26], torch.ones(26, dtype=f64), atol=1e-9, rtol=0)
    assert sigma[26] < 1e-9
    assert oni.orthogonality(W).row == pytest.approx(1.0, abs=1e-6)


class TestSingular:
    @pytest.mark.parametrize("dtype", [torch.float32, f64])
    def test_dependent_rows(self, dtype):
        Z = gaussian(6, 20, dtype=dtype)
        Z[4:] = Z[:2]
        Z.requires_grad_()
        W = orthogonalize_olm(Z)
        # Rounding of the result alone, as the work is done in float64.
        assert_close(
            W.to(f64), polar(Z, True), **rounding(2, 20) if dtype == torch.float32 else {"atol": 1e-12, "rtol": 0}
        )
        W.sum().backward()
        # The rows are of norm about 4, so a slope along matrices of rank 4 is of order 1; that of the noise, 1e6.
        assert Z.grad.abs().max() < 10

    def test_nearly_dependent_rows_below_what_matrix_rank_sees(self):
        Z = gaussian(8, 3, dtype=torch.float32) @ gaussian(3, 8, seed=1, dtype=torch.float32)
        Z.requires_grad_()
        W = orthogonalize_olm(Z, center=False)
        sigma = oni.spectrum(W.detach())
        assert int(torch.linalg.matrix_rank(Z.detach())) == 3
        # Each of the 64 entries of the result is rounded once.
        assert_close(sigma[:3], torch.ones(3, dtype=f64), **rounding(1, 64))
        assert sigma[3] < 1e-3
        W.square().sum().backward()
        assert Z.grad.isfinite().all()

    @pytest.mark.parametrize("Z", [torch.zeros(3, 5), torch.ones(3, 5)], ids=["zero", "constant rows"])
    def test_nothing_stays_nothing(self, Z):
        Z = Z.clone().requires_grad_()
        W = orthogonalize_olm(Z)
        W.sum().backward()
        assert torch.equal(W, torch.zeros(3, 5))
        assert torch.equal(Z.grad, torch.zeros(3, 5))

    @pytest.mark.parametrize("bad", [float("nan"), float("inf")])
    def test_what_is_not_finite_stays_in_its_group(self, bad):
        Z = gaussian(6, 8)
        Z[1, 2] = bad
        W = orthogonalize_olm(Z, group_size=3)
        assert W[:3].isnan().all()
        assert W[3:].isfinite().all()

    def test_empty(self):
        assert orthogonalize_olm(torch.zeros(0, 5)).shape == (0, 5)
        assert orthogonalize_olm(torch.zeros(2, 0, 5)).shape == (2, 0, 5)


def slope(Z, G, function, **options):
    Z = Z.clone().requires_grad_()
    return torch.autograd.grad(function(Z, center=False, **options), Z, G)[0]


class TestTextbookGradient:
    def test_both_agree_where_eigenvalues_are_distinct(self):
        Z, G = gaussian(5, 8), gaussian(5, 8, seed=1)
        # 2e-16 over the relative gap of the eigenvalues, here above 1e-2, and the condition number squared, below 100.
        assert_close(
            slope(Z, G, orthogonalize_olm, gradient="textbook"), slope(Z, G, orthogonalize_olm), atol=1e-11, rtol=1e-11
        )
        Z.requires_grad_()
        assert gradcheck(lambda Z: orthogonalize_olm(Z, gradient="textbook"), Z)

    def test_equal_eigenvalues(self):
        Z, G = 2 * torch.eye(4, 6, dtype=f64), gaussian(4, 6)
        newton = slope(Z, G, oni.orthogonalize, steps=30)
        # At most a few roundings of numbers of order 1.
        assert_close(slope(Z, G, orthogonalize_olm), newton, atol=1e-12, rtol=0)
        assert not slope(Z, G, orthogonalize_olm, gradient="textbook").isfinite().all()

    @pytest.mark.parametrize(("dtype", "gap"), [(f64, 1e-12), (torch.float32, 1e-5)])
    def test_nearly_equal_eigenvalues(self, dtype, gap):
        W = orthogonalize_olm(gaussian(16, 40))
        Z, G = W + gap * gaussian(16, 40, seed=1), gaussian(16, 40, seed=2)
        exact = slope(Z, G, oni.orthogonalize, steps=30)
        Z, G = Z.to(dtype), G.to(dtype)

        def error(gradient):
            return float((slope(Z, G, orthogonalize_olm, gradient=gradient).to(f64) - exact).norm() / exact.norm())

        # The stable one is right to the precision of its input and result.
        assert error("stable") < 10 * torch.finfo(dtype).eps
        # The other divides rounding errors by gaps of the eigenvalues, which here are hardly larger.
        assert error("textbook") > 1e4 * error("stable")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_precision(dtype):
    Z = gaussian(16, 40, dtype=dtype).requires_grad_()
    W = orthogonalize_olm(Z, group_size=8)
    assert W.dtype == dtype
    exact = torch.cat([polar(part, True) for part in Z.detach().split(8)])
    # The work is done in float64: half a unit in the last place of numbers below 1.
    assert_close(W.to(f64), exact, atol=torch.finfo(dtype).eps / 2, rtol=0)
    W.sum().backward()
    assert Z.grad.dtype == dtype


@pytest.mark.parametrize("gradient", ["stable", "textbook"])
def test_autocast_changes_nothing(gradient):
    Z = gaussian(6, 9, dtype=torch.float32).requires_grad_()
    plain = orthogonalize_olm(Z, gradient=gradient)
    (slope,) = torch.autograd.grad(plain.square().cumsum(1).sum(), Z)
    with torch.autocast("cpu", torch.bfloat16):
        W = orthogonalize_olm(Z, gradient=gradient)
    (after,) = torch.autograd.grad(W.square().cumsum(1).sum(), Z)
    assert torch.equal(W, plain)
    assert torch.equal(after, slope)


def test_torch_func():
    Z = gaussian(3, 4, 6)
    assert_close(torch.func.vmap(orthogonalize_olm)(Z), orthogonalize_olm(Z))
    assert torch.func.jacrev(orthogonalize_olm)(Z[0]).shape == (4, 6, 4, 6)


Z = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"group_size": 0}, ValueError, "group_size must be at least 1, got 0; pass None"),
        ({"group_size": 2.0}, TypeError, "group_size must be a whole number of rows or None, got 2.0 of type float"),
        ({"group_size": True}, TypeError, "group_size must be a whole number"),
        ({"center": "auto"}, ValueError, "center must be True or False, got 'auto'"),
        ({"center": 1}, ValueError, "center must be True or False, got 1"),
        ({"gradient": "exact"}, ValueError, "gradient must be one of 'stable', 'textbook', got 'exact'"),
        ({"gradient": None}, ValueError, "gradient must be one of .* got None"),
        ({"Z": torch.ones(4, 1)}, ValueError, "center=True makes rows with one column zero; pass center=False"),
        ({"Z": torch.ones(3)}, ValueError, r"Z must be a matrix .* got shape \(3,\)"),
        ({"Z": torch.ones(3, 3, dtype=torch.int64)}, TypeError, "Z must be float16, .* got torch.int64"),
        ({"Z": [[1.0]]}, TypeError, "Z must be a torch.Tensor, got list"),
    ],
    ids=str,
)
def test_errors(arguments, error, words):
    with pytest.raises(error, match=words):
        orthogonalize_olm(**{"Z": Z, **arguments})
