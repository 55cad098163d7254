"""Each weight once, and never a stale one."""

import copy
import gc
import weakref

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import oni
from oni.newton import batched as lasting
from oni.newton import orthogonalize as alone
from oni.nn import parametrization


@pytest.fixture
def computed(monkeypatch):
    """Counts what is computed: one number per call, the matrices in it."""
    calls = []
    together, single = lasting.evaluate, alone.evaluate

    def counted(original):
        def evaluate(Z, spec):
            calls.append(1 if Z.dim() == 2 else len(Z))
            return original(Z, spec)

        return evaluate

    monkeypatch.setattr(lasting, "evaluate", counted(together))
    monkeypatch.setattr(alone, "evaluate", counted(single))
    return calls


def mlp(depth=4, width=6):
    return nn.Sequential(*[module for _ in range(depth) for module in (nn.Linear(width, width), nn.Tanh())])


X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def plain_output(model, x=X):
    """What a model gives with no help from any cache."""
    return oni.bake(copy.deepcopy(model))(x)


class TestByItself:
    def test_same_shapes_in_one_call(self, computed):
        model = nn.Sequential(mlp(4), nn.Linear(6, 3), nn.Linear(3, 3))
        oni.convert(model)
        model(X).sum().backward()
        assert sorted(computed) == [1, 1, 4]

    def test_what_has_not_changed_is_not_computed_again(self, computed):
        model = oni.convert(mlp())
        model(X).sum().backward()
        model(X).sum().backward()
        with torch.no_grad():
            model(X)
        assert computed == [4]

    def test_a_gradient_wanted_after_none_was(self, computed):
        model = oni.convert(mlp())
        with torch.no_grad():
            model(X)
        model(X).sum().backward()
        assert computed == [4, 4]
        assert model[0].parametrizations.weight.original.grad is not None

    def test_inference_mode(self):
        model = oni.convert(mlp())
        with torch.inference_mode():
            y = model(X)
        model(X).sum().backward()
        assert_close(model(X), y.clone())

    def test_only_what_changed(self, computed):
        model = oni.convert(mlp())
        model(X)
        with torch.no_grad():
            model[2].parametrizations.weight.original.mul_(-1)
        model(X)
        assert computed == [4, 1]

    def test_a_cell_in_a_loop(self, computed):
        class Loop(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell = nn.RNNCell(6, 6)
                self.out = nn.Linear(6, 2)

            def forward(self, x):
                h = None
                for _ in range(7):
                    h = self.cell(x, h)
                return self.out(h)

        model = Loop()
        oni.orthogonal(model.cell, "weight_hh")
        oni.convert(model)
        model(X).sum().backward()
        assert sorted(computed) == [1, 1]

    def test_unused_layers_get_no_gradient(self):
        class TwoHeads(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

            def forward(self, x):
                return self.a(x)

        model = oni.convert(TwoHeads())
        model(X).sum().backward()
        assert model.a.parametrizations.weight.original.grad is not None
        assert model.b.parametrizations.weight.original.grad is None

    def test_an_error_in_forward_leaves_nothing_trusted(self):
        model = oni.convert(mlp())
        with pytest.raises(RuntimeError):
            model(torch.randn(5, 7))
        assert all(m.memory.trusted == 0 for m in model.modules() if isinstance(m, parametrization.Orthogonal))

    def test_nested_converted_models(self, computed):
        inner = oni.convert(mlp(2))
        outer = oni.convert(nn.Sequential(inner, nn.Linear(6, 6)))
        outer(X)
        assert computed == [3]
        assert_close(outer(X), plain_output(outer))
        assert all(m.memory.trusted == 0 for m in outer.modules() if isinstance(m, parametrization.Orthogonal))


def step(model, optimizer):
    model(X).square().sum().backward()
    optimizer.step()


def change_optimizer(model):
    step(model, torch.optim.SGD(model.parameters(), lr=0.5))


def change_foreach(model):
    step(model, torch.optim.Adam(model.parameters(), lr=0.5, foreach=True))


def change_fused(model):
    step(model, torch.optim.Adam(model.parameters(), lr=0.5, fused=True))


def change_load(model):
    model.load_state_dict({key: torch.randn_like(value) for key, value in model.state_dict().items()})


def change_load_assign(model):
    model.load_state_dict({key: torch.randn_like(value) for key, value in model.state_dict().items()}, assign=True)


def change_data(model):
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn_like(parameter))


def change_data_negated(model):
    for parameter in model.parameters():
        parameter.data.neg_()


def change_data_assigned(model):
    for parameter in model.parameters():
        parameter.data = torch.randn_like(parameter)


def change_numpy(model):
    for parameter in model.parameters():
        parameter.detach().numpy()[:] += 1.0


def change_to(model):
    model.to(torch.float64).to(torch.float32)
    for parameter in model.parameters():
        parameter.data.add_(1.0)


def change_ema_swap(model):
    shadow = [torch.randn_like(parameter) for parameter in model.parameters()]
    for parameter, other in zip(model.parameters(), shadow, strict=True):
        kept = parameter.data.clone()
        parameter.data.copy_(other)
        other.copy_(kept)


def change_assignment(model):
    model[0].weight = torch.randn(6, 6)


def change_parameter(model):
    model[0].parametrizations.weight.original = nn.Parameter(torch.randn(6, 6))


CHANGES = [
    change_optimizer,
    change_foreach,
    change_fused,
    change_load,
    change_load_assign,
    change_data,
    change_data_negated,
    change_data_assigned,
    change_numpy,
    change_to,
    change_ema_swap,
    change_assignment,
    change_parameter,
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("scope", [False, True], ids=["by itself", "cached"])
@pytest.mark.parametrize("grad", [False, True], ids=["eval", "train"])
def test_never_stale(change, scope, grad):
    model = oni.convert(mlp(), learn_scale=True)

    def run():
        with torch.set_grad_enabled(grad):
            return model(X).detach()

    def scenario():
        before = run()
        with torch.enable_grad():
            change(model)
        after = run()
        assert not torch.allclose(after, before), "the change must show"
        assert_close(after, plain_output(model).detach(), atol=1e-6, rtol=0)

    if scope:
        with oni.cached(model):
            scenario()
    else:
        scenario()


@pytest.mark.parametrize("change", CHANGES[:-2])
def test_never_stale_in_a_part_called_alone(change):
    model = oni.convert(mlp())
    with oni.cached(model):
        model(X)
        change(model)
        assert_close(model[0](X), plain_output(model[0]), atol=1e-6, rtol=0)


class TestScope:
    def test_gradients_equal_the_uncached_ones(self, computed):
        model = oni.convert(mlp(), learn_scale=True, steps=3).double()
        x, y = torch.randn(2, 5, 6, dtype=torch.float64)

        def losses():
            model(x).square().sum().backward()
            model(y).sum().backward()
            model[:3](x).sum().backward()

        with oni.cached(model):
            losses()
        assert computed == [4]
        found = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        baseline = copy.deepcopy(model)
        # Layer by layer, with nothing held: the hooks gone.
        baseline._forward_pre_hooks.clear()
        baseline._forward_hooks.clear()
        for run in (
            lambda: baseline(x).square().sum(),
            lambda: baseline(y).sum(),
            lambda: baseline[:3](x).sum(),
        ):
            run().backward()
        for parameter, gradient in zip(baseline.parameters(), found, strict=True):
            # float64, summed in another order.
            assert_close(gradient, parameter.grad, atol=1e-12, rtol=1e-12)

    def test_layers_made_orthogonal_one_by_one(self, computed):
        model = mlp()
        for layer in model[::2]:
            oni.orthogonal(layer)
        model(X)
        assert computed == [1] * 4
        computed.clear()
        with oni.cached(model):
            model(X)
            model(X)
        assert computed == [4]

    def test_a_change_inside_is_held_again(self, computed):
        layer = oni.nn.Linear(6, 6)
        with oni.cached(layer):
            layer(X)
            layer.parametrizations.weight.original.data.neg_()
            layer(X)
            layer(X)
        assert computed == [1, 1]

    def test_nested_and_after_an_error(self):
        model = oni.convert(mlp())
        with pytest.raises(KeyError), oni.cached(model), oni.cached(model):
            raise KeyError
        assert all(m.memory.keeping == 0 for m in model.modules() if isinstance(m, parametrization.Orthogonal))

    def test_two_losses_through_one_weight_without_retain_graph(self):
        model = oni.convert(mlp())
        with oni.cached(model):
            real, fake = model(X).sum(), model(-X).sum()
            real.backward()
            fake.backward()
        with_scope = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        (model(X).sum() + model(-X).sum()).backward()
        for parameter, gradient in zip(model.parameters(), with_scope, strict=True):
            assert_close(parameter.grad, gradient, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("converted", [True, False], ids=["whole model", "layer by layer"])
def test_gradient_checkpointing(use_reentrant, converted):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(mlp(2) for _ in range(3))
            self.checkpointing = True

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=use_reentrant) if self.checkpointing else block(x)
            return x

    model = Checkpointed().double()
    if converted:
        oni.convert(model, learn_scale=True)
    else:
        for block in model.blocks:
            for layer in block[::2]:
                oni.orthogonal(layer, learn_scale=True)
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
    gradients = []
    for model.checkpointing in (True, False):
        model.zero_grad()
        model(x).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for with_checkpoints, without in zip(*gradients, strict=True):
        assert_close(with_checkpoints, without, atol=1e-12, rtol=1e-12)


def test_second_derivatives_through_a_converted_model():
    model = oni.convert(mlp(), steps=2).double()
    x = X.double().requires_grad_()

    def penalty(model):
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return slope.square().sum()

    penalty(model).backward()
    found = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    model._forward_pre_hooks.clear()
    for module in model.modules():
        if isinstance(module, parametrization.Orthogonal):
            module.memory.held = None
    penalty(model).backward()
    expected = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert len(found) == len(expected) > 0
    for gradient, other in zip(found, expected, strict=True):
        assert_close(gradient, other, atol=1e-12, rtol=1e-12)


def test_nothing_piles_up():
    model = oni.convert(mlp())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def live():
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(X).sum().backward()
            optimizer.step()

    train(2)
    before = live()
    gc.disable()
    try:
        train(1)
        old = weakref.ref(model[0].parametrizations.weight[0].memory.held.W)
        train(1)
        assert old() is None, "a reference cycle keeps an old weight alive"
        train(300)
    finally:
        gc.enable()
    # A leak would leave a tensor or more per step.
    assert live() < before + 100
