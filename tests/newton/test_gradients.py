"""Gradients, in every way of differentiating. gradcheck's own tolerances are for float64."""

import gc
import weakref

import pytest
import torch
from rounding import FIVE_STEPS, rounding
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import oni
from oni.newton import orthogonalize as module
from oni.newton.batched import orthogonalize_each
from oni.newton.reference import direct, printed_backward
from oni.newton.schedule import SCHEDULES

BOUNDS = ["frobenius", "compact", "trace", "trace2", "tight"]
SHAPES = [(3, 5), (4, 4), (5, 3), (1, 4), (4, 1), (2, 3, 4)]
f64 = torch.float64


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own forward-mode code
def test_gradcheck(shape, steps, center, bound):
    if center and shape[-1] == 1:
        pytest.skip("centring one column leaves zero, where nothing is differentiable; see test_stability")
    Z = torch.randn(shape, dtype=f64, requires_grad=True)

    def function(Z):
        return oni.orthogonalize(Z, steps, center=center, bound=bound)

    assert gradcheck(function, Z, check_forward_ad=True, check_batched_grad=True)
    if steps in (0, 1, 3):
        assert gradgradcheck(function, Z)


# 3 and 4 steps have a joint between two stages; from 0.02, 4 run in one part in float64.
@pytest.mark.parametrize(
    ("schedule", "steps"), [("newton", 4), ("minimax", 4), ("minimax:0.02", 3), ("minimax:0.3", 2)]
)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_gradcheck_of_schedules_and_groups(schedule, steps, groups):
    Z = torch.randn(4, 5, dtype=f64, requires_grad=True)

    def function(Z):
        return oni.orthogonalize(Z, steps, schedule=schedule, groups=groups)

    assert gradcheck(function, Z, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, Z)


@pytest.mark.parametrize("shape", [(3, 5), (4, 4), (5, 3)])
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("bound", ["frobenius", "compact"])
def test_the_paper_s_backward_formulas(shape, steps, center, bound):
    Z = torch.randn(shape, dtype=f64, requires_grad=True)
    G = torch.randn(shape, dtype=f64)
    oni.orthogonalize(Z, steps, center=center, bound=bound).backward(G)
    manual = printed_backward(Z.detach(), G, steps, center=center, bound=bound)
    # Two exact formulas in float64.
    assert_close(Z.grad, manual, atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("bound", ["frobenius", "compact"])
def test_the_printed_centring_gradient_is_wrong(steps, bound):
    # Its shapes fit only where n = d.
    Z, G = torch.randn(6, 6, dtype=f64), torch.randn(6, 6, dtype=f64)
    right = printed_backward(Z, G, steps, center=True, bound=bound)
    printed = printed_backward(Z, G, steps, center=True, bound=bound, centring_gradient="printed")
    assert (printed - right).norm() / right.norm() > 0.1


@pytest.mark.parametrize("steps", [2, 5, 11, 40])
@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (6, 6)])
@pytest.mark.parametrize("schedule", [*SCHEDULES, "minimax:0.01"])
def test_gradient_against_the_direct_form(schedule, steps, shape):
    Z = torch.randn(shape, dtype=f64, requires_grad=True)
    G = torch.randn(shape, dtype=f64)
    options = {"center": False, "schedule": schedule}
    (ours,) = torch.autograd.grad(oni.orthogonalize(Z, steps, **options), Z, G)
    (theirs,) = torch.autograd.grad(direct(Z, steps, **options), Z, G)
    # Float64 with the noise of small singular values: epsilon over their square, here under 1e-9.
    assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("bound", ["trace", "trace2", "tight"])
@pytest.mark.parametrize("steps", [2, 3, 6])
def test_a_batch_of_minimax_weights(steps, bound):
    Zs = [torch.randn(4, 6, dtype=f64, requires_grad=True) for _ in range(3)]
    G = torch.randn(3, 4, 6, dtype=f64)
    Ws = orthogonalize_each(Zs, steps, schedule="minimax:0.05", bound=bound)
    torch.autograd.backward(Ws, G.unbind())
    for Z, W, gradient in zip(Zs, Ws, G, strict=True):
        alone = direct(Z, steps, schedule="minimax:0.05", bound=bound, center=True)
        # Two exact formulas in float64, of slope up to 60.
        assert_close(W, alone, atol=1e-11, rtol=0)
        assert_close(Z.grad, *torch.autograd.grad(alone, Z, gradient), atol=1e-9, rtol=1e-9)


def test_backward_computes_the_forward_only_once(monkeypatch):
    calls = []
    evaluate = module.evaluate
    monkeypatch.setattr(module, "evaluate", lambda *args: calls.append(1) or evaluate(*args))
    Z = torch.randn(4, 6, requires_grad=True)
    W = oni.orthogonalize(Z, 5)
    W.sum().backward()
    assert len(calls) == 1
    W = oni.orthogonalize(Z, 5)
    torch.autograd.grad(W.sum(), Z, create_graph=True)
    assert len(calls) == 3, "create_graph needs a differentiable path"


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 3, 5)], ids=str)
def test_many_gradients_at_once_equal_those_one_by_one(shape):
    """Plain eager code takes a shorter way than ``torch.func``; its backward pass runs under vmap here."""
    Z = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    W = oni.orthogonalize(Z, 3)
    directions = torch.eye(W.numel(), dtype=W.dtype).reshape(-1, *shape)
    (together,) = torch.autograd.grad(W, Z, directions, is_grads_batched=True, retain_graph=True)
    alone = torch.stack([torch.autograd.grad(W, Z, one, retain_graph=True)[0] for one in directions])
    transformed = torch.func.jacrev(lambda Z: oni.orthogonalize(Z, 3))(Z.detach()).reshape(alone.shape)
    # Some 12 products of at most 5 x 5 matrices with entries of order 1.
    tolerance = 12 * 5 * torch.finfo(Z.dtype).eps
    assert_close(together, alone, rtol=0, atol=tolerance)
    assert_close(transformed, alone, rtol=0, atol=tolerance)


def test_second_backward_through_the_same_output():
    Z = torch.randn(4, 6, dtype=f64, requires_grad=True)
    W = oni.orthogonalize(Z, 5)
    first, second = torch.randn_like(W), torch.randn_like(W)
    (both,) = torch.autograd.grad(oni.orthogonalize(Z, 5), Z, first + second)
    W.backward(first, retain_graph=True)
    W.backward(second)
    assert_close(Z.grad, both, atol=1e-12, rtol=0)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
class TestTransforms:
    """torch.func, each against plain autograd."""

    options = pytest.mark.parametrize(
        "options",
        [
            {"steps": 5},
            {"steps": 3, "bound": "tight"},
            {"steps": 2, "bound": "trace"},
            {"steps": 0},
            {"steps": 20},
            {"groups": 2},
        ],
        ids=str,
    )

    @options
    @pytest.mark.parametrize("shape", [(4, 6), (6, 4), (3, 4, 5)], ids=str)
    def test_vmap_jvp_vjp(self, options, shape):
        def function(Z):
            return oni.orthogonalize(Z, **options)

        Z = torch.randn(2, *shape, dtype=f64)
        tangents, G = torch.randn_like(Z), torch.randn(shape, dtype=f64)
        close = {"atol": 1e-10, "rtol": 1e-10}
        assert_close(torch.func.vmap(function)(Z), torch.stack([function(z) for z in Z]), **close)

        def gradient(z):
            return torch.func.grad(lambda z: (function(z) * G).sum())(z)

        plain = [torch.autograd.functional.vjp(function, z, G)[1] for z in Z]
        assert_close(torch.func.vmap(gradient)(Z), torch.stack(plain), **close)

        def pushed(z, t):
            return torch.func.jvp(function, (z,), (t,))[1]

        plain = [torch.autograd.functional.jvp(function, z, t)[1] for z, t in zip(Z, tangents, strict=True)]
        assert_close(torch.func.vmap(pushed)(Z, tangents), torch.stack(plain), **close)

    def test_second_order_in_every_nesting(self):
        Z = torch.randn(3, 4, dtype=f64)

        def loss(Z):
            return oni.orthogonalize(Z, 3).pow(3).sum()

        plain = torch.autograd.functional.hessian(loss, Z)
        for outer in (torch.func.jacfwd, torch.func.jacrev):
            for inner in (torch.func.jacfwd, torch.func.jacrev):
                assert_close(outer(inner(loss))(Z), plain, atol=1e-10, rtol=1e-10)

    def test_vmap_over_another_dimension(self):
        Z = torch.randn(4, 6, 3, dtype=f64, requires_grad=True)
        W = torch.func.vmap(oni.orthogonalize, in_dims=2, out_dims=2)(Z)
        assert_close(W[..., 1], oni.orthogonalize(Z[..., 1]), atol=1e-12, rtol=0)


# torch.compile's own code uses what torch deprecates.
@pytest.mark.filterwarnings("ignore")
class TestCompile:
    @pytest.mark.parametrize(
        ("options", "shape"),
        [
            ({"steps": 5}, (4, 6)),
            ({"steps": 3, "bound": "tight"}, (6, 4)),
            ({"steps": 2, "bound": "trace", "schedule": "minimax:0.26"}, (2, 4, 6)),
            ({"steps": 2, "bound": "trace2", "schedule": "minimax:0.26"}, (6, 4)),
            ({"steps": 12}, (2, 4, 6)),
            ({"groups": 2, "schedule": "minimax"}, (6, 4)),
        ],
        ids=["newton", "tight", "trace", "trace2", "long", "groups"],
    )
    def test_fullgraph(self, options, shape):
        torch._dynamo.reset()

        def function(Z):
            return oni.orthogonalize(Z, **options)

        # aot_eager traces forward and backward like the default backend but runs the same kernels: equal values.
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        Z, G = torch.randn(shape, requires_grad=True), torch.randn(shape)
        W = compiled(Z)
        (gradient,) = torch.autograd.grad(W, Z, G)
        (plain,) = torch.autograd.grad(function(Z), Z, G)
        # Up to 12 steps, of 2.5 products each, and twice that in the gradient, whose entries are below 10.
        assert_close(W, function(Z), **rounding(30, 6))
        assert_close(gradient, plain, **rounding(90, 6, values=10))
        assert_close(compiled(Z.detach()), function(Z.detach()), **rounding(30, 6))

    def test_inside_autocast(self):
        torch._dynamo.reset()
        compiled = torch.compile(oni.orthogonalize, fullgraph=True, backend="aot_eager")
        Z, G = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            W = compiled(Z)
        (gradient,) = torch.autograd.grad(W, Z, G)
        (plain,) = torch.autograd.grad(oni.orthogonalize(Z), Z, G)
        assert_close(W, oni.orthogonalize(Z), **rounding(FIVE_STEPS, 6))
        assert_close(gradient, plain, **rounding(3 * FIVE_STEPS, 6, values=10))


class TestPrecision:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("bound", ["compact", "trace", "trace2"])
    def test_half_precision_works_in_float32(self, dtype, bound):
        Z = torch.randn(8, 12).to(dtype).requires_grad_()
        W = oni.orthogonalize(Z, 5, bound=bound)
        W.backward(torch.ones_like(W))
        exact = oni.orthogonalize(Z.detach().float(), 5, bound=bound)
        assert W.dtype == Z.grad.dtype == dtype
        assert torch.equal(W, exact.to(dtype))

    def test_autocast_is_off_inside(self):
        Z, G = torch.randn(8, 12, requires_grad=True), torch.randn(8, 12)
        W = oni.orthogonalize(Z, 5)
        W.backward(G)
        plain, Z.grad = Z.grad, None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = oni.orthogonalize(Z, 5)
            # backward() inside the region as well: its products must not be cast either.
            inside.backward(G)
        assert inside.dtype == torch.float32
        assert torch.equal(inside, W)
        assert torch.equal(Z.grad, plain)


class TestMemory:
    def test_nothing_is_left_behind_after_1000_steps(self):
        Z = torch.randn(4, 6, requires_grad=True)

        def live():
            gc.collect()
            return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

        oni.orthogonalize(Z, 5).sum().backward()
        before = live()
        gc.disable()
        try:
            dead = weakref.ref(oni.orthogonalize(Z, 5))
            assert dead() is None, "a reference cycle keeps the weight alive"
            for _ in range(1000):
                oni.orthogonalize(Z, 5).sum().backward()
        finally:
            gc.enable()
        # A leak would leave a tensor or more per step; other tests' leftovers may go away meanwhile.
        assert live() < before + 100

    def test_saved_tensors_pass_through_hooks(self):
        Z = torch.randn(4, 6, requires_grad=True)
        packed = []

        def pack(tensor):
            packed.append(tuple(tensor.shape))
            return tensor.to(torch.float64)

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor.to(torch.float32)):
            W = oni.orthogonalize(Z, 2)
        W.sum().backward()
        # Z and A on the long side; S, X and Q on the short one; the two scalar factors.
        assert sorted(packed) == sorted([(4, 6)] * 2 + [(4, 4)] * 3 + [(1, 1)] * 2)

    def test_nothing_is_saved_without_gradients(self):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: pytest.fail("saved"), lambda t: t):
            oni.orthogonalize(torch.randn(4, 6), 5)
            with torch.no_grad():
                oni.orthogonalize(torch.randn(4, 6, requires_grad=True), 5)
