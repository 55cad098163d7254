"""What holds for every matrix. Float64, so tolerances are rounding: 1e-12 unless said."""

import pytest
import torch
from torch.testing import assert_close

import oni
from oni.newton.reference import literal, oracle

BOUNDS = ["frobenius", "compact", "trace", "trace2", "tight"]
SHAPES = [(6, 10), (7, 7), (10, 6)]
ROUNDING = {"atol": 1e-12, "rtol": 0}
f64 = torch.float64


def orthogonal(n):
    return torch.linalg.qr(torch.randn(n, n, dtype=f64)).Q


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("bound", BOUNDS)
class TestSymmetries:
    def test_scale_and_sign(self, shape, center, bound):
        Z = torch.randn(shape, dtype=f64)
        W = oni.orthogonalize(Z, 4, center=center, bound=bound)
        for c in (1e-3, 0.7, 1e6):
            assert_close(oni.orthogonalize(c * Z, 4, center=center, bound=bound), W, **ROUNDING)
        assert_close(oni.orthogonalize(-Z, 4, center=center, bound=bound), -W, **ROUNDING)

    def test_rotated_rows(self, shape, center, bound):
        Z, P = torch.randn(shape, dtype=f64), orthogonal(shape[0])
        W = oni.orthogonalize(Z, 4, center=center, bound=bound)
        assert_close(oni.orthogonalize(P @ Z, 4, center=center, bound=bound), P @ W, **ROUNDING)

    def test_rotated_columns(self, shape, center, bound):
        Z, d = torch.randn(shape, dtype=f64), shape[1]
        W = oni.orthogonalize(Z, 4, center=center, bound=bound)
        shuffled = torch.randperm(d)
        assert_close(oni.orthogonalize(Z[:, shuffled], 4, center=center, bound=bound), W[:, shuffled], **ROUNDING)
        Q = orthogonal(d)
        rotated = oni.orthogonalize(Z @ Q, 4, center=center, bound=bound)
        if center:
            assert (rotated - W @ Q).abs().max() > 1e-3
        else:
            assert_close(rotated, W @ Q, **ROUNDING)

    def test_gradient_is_orthogonal_to_Z(self, shape, center, bound):
        Z = torch.randn(shape, dtype=f64, requires_grad=True)
        oni.orthogonalize(Z, 4, center=center, bound=bound).backward(torch.randn(shape, dtype=f64))
        assert abs((Z.grad * Z).sum()) < 1e-11 * Z.grad.norm() * Z.norm()

    def test_and_19_spectrum(self, shape, center, bound):
        Z = torch.randn(shape, dtype=f64)
        Zc = Z - Z.mean(1, keepdim=True) if center else Z
        U, sigma, Rh = torch.linalg.svd(Zc, full_matrices=False)
        keep = sigma > 1e-10
        previous = torch.zeros(int(keep.sum()), dtype=f64)
        condition = float("inf")
        for steps in range(8):
            W = oni.orthogonalize(Z, steps, center=center, bound=bound)
            moved = U.T @ W @ Rh.T
            values = moved.diagonal()
            # The singular vectors stay, so W is diagonal in those of Zc; zeros stay zero.
            assert_close(moved, torch.diag(values), **ROUNDING)
            assert values[~keep].abs().max() < 1e-12 if (~keep).any() else True
            values = values[keep]
            assert values.max() <= 1 + 1e-14
            assert (values[:-1] >= values[1:] - 1e-14).all()
            assert (values >= previous - 1e-14).all()
            assert values[0] / values[-1] <= condition * (1 + 1e-12)
            previous, condition = values, values[0] / values[-1]


def test_centred():
    Z = torch.randn(6, 10, dtype=f64, requires_grad=True)
    W = oni.orthogonalize(Z, 4, center=True)
    W.backward(torch.randn_like(W))
    assert_close(W.sum(1), torch.zeros(6, dtype=f64), **ROUNDING)
    assert_close(Z.grad.sum(1), torch.zeros(6, dtype=f64), **ROUNDING)
    shifted = Z.detach() + torch.randn(6, 1, dtype=f64)
    assert_close(oni.orthogonalize(shifted, 4, center=True), W.detach(), **ROUNDING)


def test_bounded_norms():
    Z = torch.randn(6, 10, dtype=f64)
    V = oni.orthogonalize(Z, 0, center=False, bound="frobenius")
    assert V.norm() == pytest.approx(1)
    V = oni.orthogonalize(Z, 0, center=False, bound="compact")
    assert (V @ V.T).norm() == pytest.approx(1)
    V = oni.orthogonalize(Z, 0, center=False, bound="tight")
    assert torch.linalg.matrix_power(V @ V.T, 4).norm() == pytest.approx(1)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bound", ["frobenius", "compact"])
def test_short_side_is_the_paper_s_row_form(shape, bound):
    Z = torch.randn(shape, dtype=f64)
    # The literal row form iterates on the n x n Gram matrix even where n > d.
    assert_close(
        oni.orthogonalize(Z, 5, center=False, bound=bound),
        literal(Z, 5, center=False, bound=bound),
        atol=1e-13,
        rtol=0,
    )


def test_bounds_are_ordered():
    Z = torch.randn(6, 10, dtype=f64)
    assert (Z @ Z.T).norm() == pytest.approx(float((Z.T @ Z).norm()))
    start = {bound: oni.spectrum(oni.orthogonalize(Z, 0, center=False, bound=bound))[0] for bound in BOUNDS}
    assert start["frobenius"] < start["compact"] < start["trace"] < start["trace2"] <= 1
    assert start["compact"] < start["tight"] <= 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("center", [True, False])
def test_limit_is_the_polar_factor(shape, center):
    Z = torch.randn(shape, dtype=f64)
    Zc = Z - Z.mean(1, keepdim=True) if center else Z
    U, sigma, Rh = torch.linalg.svd(Zc, full_matrices=False)
    keep = sigma > 1e-10
    assert_close(oni.orthogonalize(Z, 40, center=center), U[:, keep] @ Rh[keep], atol=1e-10, rtol=0)


def test_deltas_of_any_matrix():
    for n, d in ((3, 8), (8, 3), (5, 5)):
        delta = oni.orthogonality(torch.randn(n, d, dtype=f64))
        assert delta.row**2 - delta.column**2 == pytest.approx(n - d)


def test_delta_at_zero_steps():
    n = 64
    Z = torch.randn(n, 256, dtype=f64)
    S = (Z @ Z.T) / (Z @ Z.T).trace()
    delta = oni.orthogonality(oni.orthogonalize(Z, 0, center=False, bound="frobenius")).row
    assert delta**2 == pytest.approx(float(S.norm() ** 2 + n - 2))
    assert 7.875 <= delta <= 7.937
    S = (Z @ Z.T) / (Z @ Z.T).norm()
    delta = oni.orthogonality(oni.orthogonalize(Z, 0, center=False)).row
    assert delta**2 == pytest.approx(float(1 + n - 2 * S.trace()))
    assert oni.orthogonality(oni.orthogonalize(torch.eye(n, dtype=f64), 0)).row == pytest.approx(7)


def test_scaled_rows():
    W = oni.orthogonalize(torch.randn(6, 10, dtype=f64), 30)
    g = torch.rand(6, dtype=f64)
    assert_close((g[:, None] * W) @ (g[:, None] * W).T, torch.diag(g**2), **ROUNDING)
    assert_close(2 * W @ W.T, 2 * torch.eye(6, dtype=f64), **ROUNDING)


@pytest.mark.parametrize("center", [True, False, "auto"])
@pytest.mark.parametrize("bound", BOUNDS)
def test_groups(center, bound):
    Z = torch.randn(12, 8, dtype=f64)
    W = oni.orthogonalize(Z, 4, center=center, bound=bound, groups=3)
    alone = [oni.orthogonalize(part, 4, center=center, bound=bound) for part in Z.split(4)]
    assert_close(W, torch.cat(alone), **ROUNDING)
    one_row_each = oni.orthogonalize(Z, 4, center=True, bound=bound, groups=12)
    Zc = Z - Z.mean(1, keepdim=True)
    assert_close(one_row_each, Zc / Zc.norm(dim=1, keepdim=True), **ROUNDING)


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (0, 3, 4), (2, 0, 3, 4), (3, 1, 4), (0, 5), (5, 0)])
def test_batches(shape):
    Z = torch.randn(shape, dtype=f64, requires_grad=True)
    W = oni.orthogonalize(Z, 3)
    assert W.shape == Z.shape
    W.sum().backward()
    assert Z.grad.shape == Z.shape
    for index in torch.cartesian_prod(*map(torch.arange, shape[:-2])) if W.numel() else []:
        matrix = Z[tuple(index.reshape(-1))].detach()
        assert_close(W[tuple(index.reshape(-1))].detach(), oni.orthogonalize(matrix, 3), **ROUNDING)


def test_auto_centres_where_that_costs_no_rank():
    wide, square = torch.randn(4, 6, dtype=f64) + 1, torch.randn(6, 6, dtype=f64) + 1
    assert_close(oni.orthogonalize(wide), oracle(wide, center=True), **ROUNDING)
    assert_close(oni.orthogonalize(square), oracle(square, center=False), **ROUNDING)
    # Groups of a square matrix are wide.
    assert_close(oni.orthogonalize(square, groups=2), oracle(square, center=True, groups=2), **ROUNDING)


def test_input_is_left_alone():
    Z = torch.randn(4, 6)
    before = Z.clone()
    for steps in (0, 1, 2, 12):
        W = oni.orthogonalize(Z, steps)
        W.zero_()
        assert torch.equal(Z, before)
