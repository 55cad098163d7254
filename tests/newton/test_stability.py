"""Extreme inputs, and float32 against the float64 oracle at any length, on every awkward input."""

from itertools import product

import pytest
import torch
from rounding import FIVE_STEPS, rounding
from torch.testing import assert_close

import oni
from oni.newton.bounding import frobenius_norm
from oni.newton.reference import direct, literal, oracle, polynomials
from oni.newton.schedule import SCHEDULES

STEPS = [0, 1, 2, 5, 7, 8, 9, 10, 12, 15, 16, 17, 20, 30]
# What the docstring promises: noise in a null space may reach 1e-4 before float64 takes over.
PROMISED = 1e-4


def gaussian(*shape, seed=0, mean=0.0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) + mean


def relative_error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


INPUTS = {
    "64x256 N(3,1)": (gaussian(64, 256, mean=3.0), False),
    "64x256 N(3,1) centred": (gaussian(64, 256, mean=3.0), True),
    "64x32": (gaussian(64, 32), False),
    "64x32 centred": (gaussian(64, 32), True),
    "64x64": (gaussian(64, 64), False),
    "64x64 centred": (gaussian(64, 64), True),
    "64x27": (gaussian(64, 27), False),
    "64x27 centred": (gaussian(64, 27), True),
    "128x3": (gaussian(128, 3), False),
    "duplicated rows": (gaussian(16, 64).repeat(2, 1), False),
    "duplicated rows, square, centred": (gaussian(24, 48).repeat(2, 1), True),
    "rank 4": (gaussian(32, 4) @ gaussian(4, 64, seed=1), False),
    "a zero row and a zero column": (
        gaussian(8, 12) * (torch.arange(12) > 0) * (torch.arange(8)[:, None] > 0),
        False,
    ),
}


@pytest.mark.parametrize(
    ("bound", "schedule"),
    [*product(["frobenius", "compact", "trace", "trace2", "tight"], SCHEDULES), ("tight", "minimax:0.005")],
)
@pytest.mark.parametrize("name", INPUTS)
def test_float32_agrees_with_the_oracle_at_any_length(name, bound, schedule):
    Z, center = INPUTS[name]
    G = gaussian(*Z.shape, seed=2)
    for steps in STEPS:
        options = {"center": center, "bound": bound, "schedule": schedule}
        Z32 = Z.clone().requires_grad_()
        W = oni.orthogonalize(Z32, steps, **options)
        W.backward(G)
        assert relative_error(W.detach(), oracle(Z, steps, **options)) < PROMISED, steps
        Z64 = Z.double().requires_grad_()
        direct(Z64, steps, **options).backward(G.double())
        assert relative_error(Z32.grad, Z64.grad) < PROMISED, steps


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("steps", [60, 100, 1000])
def test_absurd_lengths_stay_finite_and_bounded(name, steps):
    Z, center = INPUTS[name]
    Z = Z.clone().requires_grad_()
    W = oni.orthogonalize(Z, steps, center=center)
    W.sum().backward()
    # Computed in float64, rounded once to float32: each of up to 64 x 256 entries, so sqrt of their number in the norm.
    assert oni.spectrum(W)[0] < 1 + rounding(1, W.numel())["rtol"]
    # In a null space the map's slope is 1.5^steps, past any float's range at 1000; the value itself stays.
    assert W.isfinite().all()
    assert steps == 1000 or Z.grad.isfinite().all()


def test_the_literal_form_diverges_where_ours_does_not():
    Z = gaussian(64, 256, mean=3.0)
    exact = oracle(Z, 12, center=False, bound="frobenius")
    assert relative_error(oni.orthogonalize(Z, 12, center=False, bound="frobenius"), exact) < PROMISED
    error = relative_error(literal(Z, 12, center=False, bound="frobenius"), exact)
    assert not error < 1e20


@pytest.mark.parametrize("shape", [(64, 27), (128, 3)])
def test_tall_and_small(shape):
    Z, G = gaussian(*shape).requires_grad_(), gaussian(*shape, seed=1)
    W = oni.orthogonalize(Z, 9, center=False)
    W.backward(G)
    assert relative_error(W.detach(), oracle(Z, 9, center=False)) < PROMISED
    Z64 = Z.detach().double().requires_grad_()
    direct(Z64, 9, center=False).backward(G.double())
    assert relative_error(Z.grad, Z64.grad) < PROMISED


@pytest.mark.parametrize("bound", ["frobenius", "compact", "trace", "trace2", "tight"])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("shape", [(64, 27), (27, 64), (8, 8)])
def test_scale_free_over_the_whole_range(shape, center, bound):
    Z = gaussian(*shape)
    W = oni.orthogonalize(Z, 5, center=center, bound=bound)
    for exponent in (-90, -60, -10, 10, 60, 120):
        # A power of two that makes no entry subnormal rounds nothing, so neither does the result.
        assert torch.equal(oni.orthogonalize(Z * 2.0**exponent, 5, center=center, bound=bound), W)
    for c in (1e-30, 1e-3, 1e3, 1e30):
        # Other factors round Z itself, and five steps amplify small singular values by 7.6.
        assert_close(oni.orthogonalize(Z * c, 5, center=center, bound=bound), W, **rounding(FIVE_STEPS, 64, values=7.6))


def test_subnormal_and_huge():
    Z = torch.tensor([[3.0, 0.0, 1.0], [0.0, 4.0, 1.0]])
    W = oni.orthogonalize(Z, 5, center=False)
    # Subnormals hold few digits: 2^-140 leaves Z's small whole numbers exact. 2^125 times 4 is near the largest float.
    for exponent in (-140, 125):
        assert_close(oni.orthogonalize(Z * 2.0**exponent, 5, center=False), W, **rounding(FIVE_STEPS, 3))


@pytest.mark.parametrize("bound", ["frobenius", "compact", "trace", "trace2", "tight"])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("steps", [0, 3, 5, 20])
def test_gradients_of_tiny_proxies_are_finite_and_point_the_right_way(steps, center, bound):
    """They grow as 1 / |Z|: past the range of float32 for subnormal proxies, whose weights are as good as any.

    Twenty steps work in float64, where they fit; float32 has to hold them all the same.
    """
    Z = torch.tensor([[3.0, 0.0, 1.0, -2.0], [0.0, 4.0, 1.0, 1.0]])
    G = gaussian(2, 4)

    def gradient(proxy):
        proxy = proxy.clone().requires_grad_()
        return torch.autograd.grad(oni.orthogonalize(proxy, steps, center=center, bound=bound), proxy, G)[0].double()

    exact = gradient(Z)
    for exponent in (-60, -100, -120, -130, -140, -147):
        # Powers of two: Z's small whole numbers stay exact. From -147 on they would not.
        tiny = gradient(Z * 2.0**exponent)
        # Where the gradient fits it is exact.
        factor = 2.0**-exponent if exponent >= -100 else float(tiny.norm() / exact.norm())
        assert_close(tiny / factor, exact, **rounding(3 * FIVE_STEPS, 4, values=float(exact.norm())))


# Where the squares of the Gram matrix underflow, the other bounds take the matrix for zero.
@pytest.mark.parametrize("bound", ["frobenius", "trace"])
def test_gradients_where_centring_leaves_next_to_nothing(bound):
    """What is left is of order 1e-15, and the cube of its inverse is out of range; its gradient is not."""
    Z = torch.full((2, 6), 0.5)
    Z[1] = torch.tensor([1.0, -1.0, 2.0, 0.0, -3.0, 1.0])
    G = gaussian(2, 6)
    Z[1] *= 2.0**-50
    Z.requires_grad_()
    W = oni.orthogonalize(Z, 3, center=True, bound=bound)
    (gradient,) = torch.autograd.grad(W, Z, G)
    row = (Z.detach()[1] * 2.0**50).double().requires_grad_()
    (exact,) = torch.autograd.grad(row / row.norm(), row, G[1].double())
    # Rank 1, so W's second row is z / |z|, up to the rounding of 3 steps and their gradient.
    assert_close(gradient[1].double() * 2.0**-50, exact - exact.mean(), **rounding(3 * FIVE_STEPS, 6))


@pytest.mark.parametrize("bound", ["frobenius", "compact", "trace", "trace2", "tight"])
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 12, 20])
class TestDegenerate:
    @pytest.mark.parametrize("shape", [(3, 5), (4, 4), (5, 3), (1, 1), (2, 3, 4)])
    def test_zero(self, shape, steps, bound):
        Z = torch.zeros(shape, requires_grad=True)
        W = oni.orthogonalize(Z, steps, bound=bound)
        (gradient,) = torch.autograd.grad(W, Z, torch.randn(shape), create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), Z, allow_unused=True)
        assert (W == 0).all()
        assert (gradient == 0).all()
        assert second is None or second.isfinite().all()

    @pytest.mark.parametrize("shape", [(3, 5), (4, 4), (5, 3), (3, 1)])
    def test_constant_rows(self, shape, steps, bound):
        # 0.1 has no exact mean in binary: a rounded one would leave noise to be blown up.
        Z = (0.1 * torch.arange(1.0, shape[0] + 1)[:, None]).expand(shape).clone().requires_grad_()
        W = oni.orthogonalize(Z, steps, center=True, bound=bound)
        W.backward(torch.randn(shape))
        assert (W == 0).all()
        assert (Z.grad == 0).all()

    def test_one_constant_row_among_others(self, steps, bound):
        Z = gaussian(4, 9)
        Z[2] = 0.1
        Z.requires_grad_()
        W = oni.orthogonalize(Z, steps, center=True, bound=bound)
        W.sum().backward()
        assert Z.grad.isfinite().all()
        assert relative_error(W.detach(), oracle(Z, steps, center=True, bound=bound)) < PROMISED
        assert W[2].abs().max() < PROMISED

    def test_duplicated_rows(self, steps, bound):
        Z = gaussian(3, 8).repeat(2, 1).requires_grad_()
        W = oni.orthogonalize(Z, steps, bound=bound)
        W.sum().backward()
        assert W.isfinite().all()
        assert Z.grad.isfinite().all()

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    @pytest.mark.parametrize("center", [True, False])
    def test_non_finite_in_is_nan_out(self, bad, center, steps, bound):
        Z = gaussian(2, 4, 6)
        Z[0, 1, 2] = bad
        W = oni.orthogonalize(Z, steps, center=center, bound=bound)
        assert W[0].isnan().all()
        # The rest of a batch is none of its business.
        assert torch.equal(W[1], oni.orthogonalize(Z[1:], steps, center=center, bound=bound)[0])


def test_a_batch_with_a_zero_matrix():
    Z = gaussian(3, 4, 6)
    Z[1] = 0
    Z.requires_grad_()
    W = oni.orthogonalize(Z, 5)
    W.sum().backward()
    assert (W[1] == 0).all()
    assert (Z.grad[1] == 0).all()
    assert_close(W[0], oni.orthogonalize(Z[0], 5))


def test_wildly_different_rows():
    Z = torch.diag(torch.tensor([1.0, 1e-3, 1e-12, 1e-25]))
    W = oni.orthogonalize(Z, 5, center=False)
    assert_close(W.double(), oracle(Z, 5, center=False), **rounding(FIVE_STEPS, 4))


def test_a_mean_that_dwarfs_the_spread():
    Z = gaussian(8, 20) + 1e4
    # The sum keeps about three digits of the spread in Z; W must lose no more of them.
    assert relative_error(oni.orthogonalize(Z, 5, center=True), oracle(Z, 5, center=True)) < 1e-5


def smallest_start_taken_to_1(schedule, steps):
    start = torch.logspace(0, -4, 4001, dtype=torch.float64)
    end = start.clone()
    for polynomial in polynomials(schedule, steps):
        end = end * sum(c * end ** (2 * i) for i, c in enumerate(polynomial))
    return float(start[end >= 0.999].min())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(4, 4), (2, 2000), (64, 40)])
@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        ("newton", 0),
        ("newton", 2),
        ("newton", 5),
        ("newton", 8),
        ("newton", 16),
        ("minimax:0.26", 2),
        ("minimax:0.3", 12),
    ],
)
def test_no_singular_value_passes_1_by_more_than_is_said(schedule, steps, shape, dtype):
    """What ``orthogonalize`` and docs/how-orthogonal.md promise: (n + d) / s^2 epsilons."""
    short = min(shape)
    generator = torch.Generator().manual_seed(0)
    U, _, Rh = torch.linalg.svd(torch.randn(shape, dtype=torch.float64, generator=generator), full_matrices=False)
    # Equal numbers, and one large singular value among small ones that the steps take to 1.
    inputs = [torch.full(shape, number, dtype=dtype) for number in (0.1, 0.3)]
    for small in (1.0, 0.3, 0.1, 0.01):
        sigma = torch.full((short,), small, dtype=torch.float64)
        sigma[0] = 1.0
        inputs.append(((U * sigma) @ Rh).to(dtype))
    allowed = sum(shape) / smallest_start_taken_to_1(schedule, steps) ** 2 * torch.finfo(dtype).eps
    for Z in inputs:
        for bound in ("frobenius", "compact", "trace", "trace2", "tight"):
            W = oni.orthogonalize(Z, steps, center=False, bound=bound, schedule=schedule)
            assert torch.linalg.matrix_norm(W.double(), 2) <= 1 + allowed


def test_the_norm_of_equal_numbers():
    """Summed in one go, torch's norm of a million equal numbers is off by 6,000 epsilons, below what it bounds."""
    M = torch.full((1024, 1024), 0.7)
    # Two sums of 1024 terms, of which a norm takes the root.
    assert_close(float(frobenius_norm(M)), 1024 * float(M[0, 0]), rtol=1024 * torch.finfo(M.dtype).eps, atol=0)


@pytest.mark.parametrize("bound", ["frobenius", "compact", "trace", "trace2", "tight"])
def test_no_singular_value_passes_1_where_the_gram_matrix_underflows(bound):
    """Centring leaves nothing of the large row, and of the other what squares to fewer digits than a float has."""
    Z = torch.zeros(2, 6)
    Z[0] = 0.5
    for exponent in range(-24, -17):
        for mantissa in (1.0, 1.3, 1.7, 2.1, 3.3, 5.1, 7.7):
            Z[1, 0], Z[1, 1] = mantissa * 10.0**exponent, -mantissa * 10.0**exponent
            W = oni.orthogonalize(Z, 3, center=True, bound=bound)
            # A row of two entries: the square root of a sum of two, each rounded some four times.
            assert torch.linalg.matrix_norm(W.double(), 2) <= 1 + 8 * torch.finfo(Z.dtype).eps
