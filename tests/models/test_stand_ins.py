"""Tensors that stand in for others while a model is traced or built: fake ones, and those of make_fx."""

import pytest
import torch
from held_weights import FLOAT32, X, mlp
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing import assert_close

import oni

OPTIONS = {"steps": {}, "learn_scale": {"learn_scale": True}, "groups": {"groups": 2, "bound": "tight"}}


@pytest.mark.parametrize("tracing_mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("grad", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("before", [False, True], ids=["nothing held", "held"])
def test_a_trace_leaves_nothing_in_a_scope(tracing_mode, grad, before):
    model = oni.convert(mlp(2))
    expected = model(X).detach()
    with torch.set_grad_enabled(grad), oni.cached(model):
        if before:
            model(X)
        traced = make_fx(model, tracing_mode=tracing_mode, _allow_non_fake_inputs=True)(X)
        assert_close(model(X).detach(), expected, **FLOAT32)
        # The weights are part of what was traced, so it follows the proxies, whatever the scope held.
        with torch.no_grad():
            model[0].parametrizations.weight.original.neg_()
        assert_close(traced(X).detach(), model(X).detach(), **FLOAT32)
    assert proxies_in(traced) == 2


def proxies_in(traced):
    """How many parameters of the shape of a proxy a trace reads."""
    return sum(isinstance(value, nn.Parameter) and value.dim() == 2 for value in vars(traced)["_parameters"].values())


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_converting_a_model_of_fake_tensors(options):
    with FakeTensorMode():
        model = oni.convert(nn.Sequential(nn.Conv2d(4, 6, 3), nn.Flatten(), nn.Linear(24, 6)), **options)
        y = model(torch.randn(5, 4, 4, 4))
        y.sum().backward()
        assert isinstance(y, FakeTensor)
        assert y.shape == (5, 6)
        assert all(parameter.grad.shape == parameter.shape for parameter in model.parameters())
        with oni.cached(model), torch.no_grad():
            assert model(torch.randn(5, 4, 4, 4)).shape == (5, 6)
        oni.bake(model)
        assert model(torch.randn(5, 4, 4, 4)).shape == (5, 6)


def test_a_target_needs_values():
    with FakeTensorMode(), pytest.raises(ValueError, match="sigma_min"):
        oni.convert(nn.Linear(6, 6), sigma_min=0.9)
