"""Products by oneDNN and by torch's own mm are the same, wherever oneDNN is asked."""

import pytest
import torch
from rounding import rounding
from torch.autograd import forward_ad
from torch.testing import assert_close

import oni
from oni.newton import product as module
from oni.newton.product import accumulated, product
from oni.torch_internals import is_onednn_faster

needs_onednn = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this build of torch has no oneDNN",
)


def draw(*shape, seed=0, **options):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(**options)


@pytest.fixture
def onednn(monkeypatch):
    """Ask oneDNN on every processor, for every size, and count how often."""
    calls = []
    ours, multiply = module.can_use_onednn, module.multiply_by_onednn
    monkeypatch.setattr("oni.torch_internals.is_onednn_faster", lambda: True)
    monkeypatch.setattr(module, "LARGE", 1)
    monkeypatch.setattr(module, "can_use_onednn", lambda X, Y: ours(X, Y))
    monkeypatch.setattr(module, "multiply_by_onednn", lambda X, Y: calls.append(X.shape) or multiply(X, Y))
    return calls


OPERANDS = {
    "contiguous": lambda: (draw(5, 7), draw(7, 6, seed=1)),
    "Y transposed": lambda: (draw(5, 7), draw(6, 7, seed=1).mT),
    "Gram": lambda: (draw(5, 7),) * 2,
    "batch": lambda: (draw(3, 5, 7), draw(3, 7, 6, seed=1)),
    "batch, Y transposed": lambda: (draw(3, 5, 7), draw(3, 6, 7, seed=1).mT),
    "X transposed, long rows": lambda: (draw(7, 5).mT, draw(7, module.LONG, seed=1)),
    "one row": lambda: (draw(1, 7), draw(7, 6, seed=1)),
    "one column": lambda: (draw(5, 7), draw(7, 1, seed=1)),
}


@needs_onednn
@pytest.mark.parametrize("name", OPERANDS)
def test_both_multiply_alike(name, onednn):
    X, Y = OPERANDS[name]()
    Y = Y.mT if name == "Gram" else Y
    plus = draw(*X.shape[:-1], Y.shape[-1], seed=2)
    small, tolerance = (X.float(), Y.float(), plus.float()), rounding(8, 7)
    with torch.no_grad():
        assert_close(product(*small[:2]).double(), X @ Y, **tolerance)
        added = product(*small[:2], plus=small[2], alpha=0.5, beta=-2)
        assert_close(added.double(), 0.5 * X @ Y - 2 * plus, **tolerance)
        onto = small[2].clone()
        assert accumulated(onto, *small[:2]) is onto
        assert_close(onto.double(), plus + X @ Y, **tolerance)
        assert_close(small[2].double(), plus, **tolerance)
    assert len(onednn) == 3 * (X.shape[0] if X.dim() == 3 else 1)


@needs_onednn
@pytest.mark.parametrize("shape", [(12, 30), (30, 12), (16, 16), (3, 8, 20), (3, 20, 8)], ids=str)
@pytest.mark.parametrize("bound", ["compact", "trace", "trace2", "tight"])
def test_orthogonalize_agrees_with_float64(shape, bound, onednn):
    Z, G = draw(*shape), draw(*shape, seed=1)
    values = []
    for dtype in (torch.float64, torch.float32):
        leaf = Z.to(dtype, copy=True).requires_grad_()
        W = oni.orthogonalize(leaf, 3, bound=bound)
        W.backward(G.to(dtype))
        values.append((W.detach().double(), leaf.grad.double()))
        assert bool(onednn) == (dtype == torch.float32)
    # About 30 products of sums of up to 30; the steps raise the smallest singular values by up to 1.5^3.
    for exact, rounded in zip(*values, strict=True):
        assert_close(rounded, exact, **rounding(400, 30))


@needs_onednn
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by torch's own derivatives in forward mode
def test_double_backward_and_transforms_leave_it_to_torch(onednn):
    Z = draw(6, 9, dtype=torch.float32).requires_grad_()
    W = oni.orthogonalize(Z, 2)
    before = len(onednn)
    (gradient,) = torch.autograd.grad(W, Z, torch.ones_like(W), create_graph=True)
    gradient.sum().backward()
    torch.func.vmap(lambda Z: oni.orthogonalize(Z, 2))(Z.detach().expand(3, 6, 9))
    with forward_ad.dual_level():
        oni.orthogonalize(forward_ad.make_dual(Z.detach(), Z.detach()), 2)
    assert len(onednn) == before


@needs_onednn
def test_nan_and_infinity_stay_visible(onednn):
    X = torch.ones(4, 4)
    for bad in (float("nan"), float("inf")):
        X[1, 2] = bad
        with torch.no_grad():
            assert not torch.isfinite(product(X, X)).all()
        assert torch.isnan(oni.orthogonalize(X)).all()
    assert onednn


@needs_onednn
def test_a_user_may_switch_onednn_off(onednn):
    before = torch.backends.mkldnn.set_flags(_enabled=False)
    try:
        with torch.no_grad():
            product(torch.ones(4, 4), torch.ones(4, 4))
    finally:
        torch.backends.mkldnn.set_flags(before[0])
    assert not onednn


def test_small_products_are_never_worth_it():
    side = round(module.LARGE ** (1 / 3)) // 2
    with torch.no_grad():
        assert not module.prefers_onednn(torch.ones(side, side), torch.ones(side, side))


@needs_onednn
def test_it_depends_on_the_processor_alone(monkeypatch):
    is_onednn_faster.cache_clear()
    try:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
        assert not is_onednn_faster()
    finally:
        is_onednn_faster.cache_clear()
