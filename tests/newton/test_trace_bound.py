"""The trace bound in floating point: never below the largest eigenvalue, and a gradient that is not made of noise."""

import math
from fractions import Fraction

import pytest
import torch

import oni
from oni.newton.bounding import TRACE_POWER, bounded, trace_bound, trace_factors
from oni.newton.precision import slopes_at
from oni.newton.schedule import get_schedule
from oni.newton.start import find_starts

SIZES = [1, 2, 3, 16, 64, 200]


def rotation(k, seed=0):
    return torch.linalg.qr(torch.randn(k, k, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))).Q


def hadamard(k):
    """Orthogonal rows of plus and minus one: every product and every sum is exact."""
    H = torch.ones(1, 1)
    while len(H) < k:
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
    return H


def spectra(k):
    """Eigenvalues that leave the bound no room, or nearly so, or make its sums as wrong as they get."""
    one = torch.ones(k, dtype=torch.float64)
    first = torch.nn.functional.one_hot(torch.tensor(0), k).double()
    return {
        # Samuelson's inequality is an equation where all eigenvalues but the largest are equal.
        **{f"one above the rest, {rest}": first + rest * (1 - first) for rest in (0, 1e-6, 0.1, 0.5, 0.99, 1 - 1e-6)},
        "one below the rest": one - 0.7 * first,
        "equal": 0.3 * one,
        "two halves": torch.where(torch.arange(k) < k // 2, 1.0, 0.3).double(),
        "geometric": torch.logspace(0, -6, k, dtype=torch.float64),
        "even": torch.linspace(1, 0.2, k, dtype=torch.float64),
    }


@pytest.mark.parametrize("k", SIZES)
@pytest.mark.parametrize("size", [1.0, 1e-30, 3e4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_never_below_the_largest_eigenvalue(k, size, dtype):
    cases = {f"{name}, rotated": (rotation(k) * L) @ rotation(k).T for name, L in spectra(k).items()}
    cases |= {f"{name}, diagonal": torch.diag(L) for name, L in spectra(k).items()}
    # Equal numbers are rounded all to the same side.
    cases |= {f"all {number}": torch.full((k, k), number, dtype=torch.float64) for number in (0.1, 0.3, 0.57, 0.7)}
    M = torch.stack([size * (matrix + matrix.T) for matrix in cases.values()]).to(dtype)
    f, _ = trace_bound(M.clone())
    # The largest eigenvalue of the numbers as they are. In float64 the oracle is no better than what it judges: it is
    # off by some epsilons of its own, k at most.
    exact = torch.linalg.eigvalsh(M.double())[:, -1]
    slack = 0.0 if dtype == torch.float32 else k * torch.finfo(dtype).eps
    for name, bound, largest in zip(cases, f.double().flatten(), exact, strict=True):
        assert bound >= largest * (1 - slack), name
    # And no larger than the formula with its margins, each of which is rounded away at most once more.
    mean = M.double().diagonal(dim1=-2, dim2=-1).mean(-1)
    spread = (M.double() / mean[:, None, None] - torch.eye(k, dtype=torch.float64)).norm(dim=(-2, -1))
    a, b, tau = trace_factors(k, 1, dtype)
    formula = mean * (a + b * torch.hypot(spread, spread.new_tensor(tau)))
    assert (f.double().flatten() <= formula * a).all()


@pytest.mark.parametrize("bound", TRACE_POWER)
@pytest.mark.parametrize("k", [2, 16, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_eigenvalue_of_the_bounded_matrix_passes_1(k, bound, dtype):
    """Of M / f, by either form, with everything that is rounded on the way; in float64 but for the oracle's error."""
    cases = [(rotation(k) * L) @ rotation(k).T for L in spectra(k).values()]
    cases += [torch.full((k, k), number, dtype=torch.float64) for number in (0.1, 0.3, 0.57, 0.7)]
    S = bounded(torch.stack([matrix + matrix.T for matrix in cases]).to(dtype), bound).S
    slack = 0.0 if dtype == torch.float32 else k * torch.finfo(dtype).eps
    assert torch.linalg.eigvalsh(S.double()).max() <= 1 + slack


@pytest.mark.parametrize("bound", TRACE_POWER)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [64, 1024, 2048])
def test_a_matrix_of_equal_numbers_does_not_pass_1(k, dtype, bound):
    """Sums of equal numbers are rounded all to the same side; k times the number is the eigenvalue, exactly."""
    for number in (0.1, 0.3, 0.57, 0.7, 1 / 3):
        S = bounded(torch.full((k, k), number, dtype=dtype), bound).S
        assert Fraction(float(S[0, 0])) * k <= 1


@pytest.mark.parametrize("bound", TRACE_POWER)
@pytest.mark.parametrize("shape", [(2, 8), (8, 8), (40, 64), (200, 200), (64, 16)])
def test_an_orthogonal_matrix_starts_at_1(shape, bound):
    long, short = max(shape), min(shape)
    Z = 3 * rotation(long)[:, :short].float()
    Z = Z if shape[0] == long else Z.T.contiguous()
    sigma = oni.spectrum(oni.orthogonalize(Z, 0, center=False, bound=bound).double())
    a, _, tau = trace_factors(short, TRACE_POWER[bound], torch.float32)
    # The bound is on squares, hence the halves; beside its margins, the rounding of the Gram matrix and of Z itself.
    assert sigma.min() >= 1 - (a - 1) / 2 - tau / 2 - short * torch.finfo(torch.float32).eps
    assert find_starts(Z, center=False, groups=1)[bound] == pytest.approx((float(sigma.min()), 1), abs=tau)


def test_it_is_at_most_the_compact_bound_and_better_where_eigenvalues_are_alike():
    for shape in ((16, 40), (40, 40), (40, 16)):
        starts = find_starts(torch.randn(shape, dtype=torch.float64), center=False, groups=1)
        assert starts["trace2"][0] > 1.1 * starts["trace"][0] > 1.1 * 1.1 * starts["compact"][0]
    rank_one = find_starts(torch.randn(1, 9, dtype=torch.float64), center=False, groups=1)
    assert rank_one["trace"] == pytest.approx(rank_one["compact"])


class TestEqualSingularValues:
    """M = m I: there the norm of M - m I has a kink, and its slope is the rounding noise of M, blown up to length 1."""

    @pytest.mark.parametrize("bound", TRACE_POWER)
    @pytest.mark.parametrize("k", [4, 64])
    def test_exactly(self, k, bound):
        Z = hadamard(k).requires_grad_()
        G = torch.randn(k, k, generator=torch.Generator().manual_seed(0))
        W = oni.orthogonalize(Z, 0, center=False, bound=bound)
        (gradient,) = torch.autograd.grad(W, Z, G, create_graph=True)
        # Only the mean has a slope there: dZ is G / sqrt(f), less its part along W.
        V = Z.detach() / Z.detach().norm()
        along = (G * V).sum()
        expected = (G - along * V) * (W / Z).detach()
        # The slope takes D from S, by 2 u a diagonal entry, and divides it by tau = 512 k u.
        assert (gradient.detach() - expected).norm() <= 2 * abs(along) * math.sqrt(k) * 2 / (512 * k)
        (second,) = torch.autograd.grad(gradient, Z, G)
        assert second.isfinite().all()

    @pytest.mark.parametrize("shape", [(16, 16), (64, 64), (64, 300), (200, 64), (256, 256)])
    @pytest.mark.parametrize(("schedule", "steps"), [("newton", 0), ("newton", 2), ("minimax:0.26", 2)])
    @pytest.mark.parametrize("bound", TRACE_POWER)
    def test_up_to_rounding(self, shape, schedule, steps, bound):
        """The gradient along W itself is zero, as the size of Z does not matter, unless it is made of noise."""
        k, long = sorted(shape)
        Q = rotation(long)[:, :k].float()
        Z = (Q if shape[0] == long else Q.T.contiguous()).requires_grad_()
        W = oni.orthogonalize(Z, steps, center=False, bound=bound, schedule=schedule)
        (gradient,) = torch.autograd.grad(W, Z, Z.detach())
        steepest = max(slopes_at(1.0, get_schedule(schedule).stages(steps)))
        # Noise of k u in a slope that is damped by 512 k u; <G, W> is as large as sqrt(k) |G|, times the map's slope.
        allowed = math.sqrt(k) * steepest / 512
        assert gradient.norm() <= allowed * Z.detach().norm()

    def test_the_slope_is_the_spectrum_s_own_outside_the_noise(self):
        """Eigenvalues apart by ten times the damping: the float32 gradient is that of the plain formula."""
        k = 16
        _, _, tau = trace_factors(k, 1, torch.float32)
        L = 1 + 10 * tau * torch.linspace(-1, 1, k, dtype=torch.float64)
        Z = (rotation(k) * L) @ rotation(k, seed=1)
        G = torch.randn(k, k, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

        def gradient(dtype):
            proxy = Z.float().to(dtype).requires_grad_()
            W = oni.orthogonalize(proxy, 0, center=False, bound="trace")
            return torch.autograd.grad(W, proxy, G.to(dtype))[0].double()

        # r is 20 tau times the norm of the 16 numbers, 2.5: 50 tau. The damping takes 1 / (2 * 50^2) off the slope in
        # float32 and nothing in float64; the noise adds k u / (50 tau), 4e-5, each times sqrt(k) for <G, W>.
        assert (gradient(torch.float32) - gradient(torch.float64)).norm() <= 2e-3 * G.norm()
