"""What users met that nobody expected: each of these went wrong once."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import oni


def plain_keys(model):
    return list(model.state_dict())


class TestTwoProxies:
    def attention(self):
        return nn.MultiheadAttention(16, 2, kdim=8, vdim=8)

    def cell(self):
        cell = nn.GRUCell(6, 4)
        for name in ("weight_hh", "weight_ih"):
            oni.orthogonal(cell, name, groups=3)
        return cell

    def test_bake_attention(self):
        keys = plain_keys(self.attention())
        model = oni.convert(self.attention())
        x, y = torch.randn(3, 2, 16), torch.randn(5, 2, 8)
        before = model(x, y, y)[0]
        assert type(oni.bake(model)) is nn.MultiheadAttention
        assert plain_keys(model) == keys
        # Products of 16 features, a few in a row.
        assert_close(model(x, y, y)[0], before, atol=1e-5, rtol=1e-5)

    def test_bake_a_cell(self):
        cell = self.cell()
        x = torch.randn(2, 6)
        before = cell(x)
        assert type(oni.bake(cell)) is nn.GRUCell
        assert plain_keys(cell) == plain_keys(nn.GRUCell(6, 4))
        assert_close(cell(x), before, atol=1e-6, rtol=1e-5)
        cell.weight_hh = nn.Parameter(torch.zeros(12, 4))  # as of any plain module


def test_convert_is_all_or_nothing(monkeypatch):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    before, kinds = plain_keys(model), [type(layer) for layer in model]
    register = torch.nn.utils.parametrize.register_parametrization

    def fail_at_the_second(module, *arguments, **options):
        if module is model[1]:
            raise RuntimeError("refused")
        return register(module, *arguments, **options)

    monkeypatch.setattr(torch.nn.utils.parametrize, "register_parametrization", fail_at_the_second)
    with pytest.raises(RuntimeError, match="refused"):
        oni.convert(model)
    assert plain_keys(model) == before
    assert [type(layer) for layer in model] == kinds
    assert not model._forward_pre_hooks


class TestWarnings:
    def test_nothing_to_convert(self):
        with pytest.warns(UserWarning, match="nothing to convert: it has no weight matrix"):
            oni.convert(nn.Sequential(nn.ReLU(), nn.LayerNorm(4)))

    def test_a_zero_layer(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
        nn.init.zeros_(model[1].weight)
        with pytest.warns(UserWarning, match=r"^1: all weights are zero.*skip"):
            oni.convert(model)

    def test_fused_experts_that_are_most_of_the_model(self):
        class Experts(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.randn(8, 16, 16))

        model = nn.Sequential(nn.Linear(16, 16), Experts())
        with pytest.warns(UserWarning, match=r"left most matrix parameters alone, 2,048 of 2,304: 1;"):
            oni.convert(model)

    def test_no_warning_for_an_ordinary_model_or_what_the_user_chose(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            oni.convert(nn.Sequential(nn.Embedding(1000, 4), nn.Linear(4, 4)))
            oni.convert(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 400)), skip="1")


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({}, True),
        ({"steps": 2}, True),
        ({"start": "orthogonal"}, False),
        ({"sigma_min": 0.05}, False),
        # They ask for no more than a bound, or take a direction away themselves.
        ({"steps": 0}, False),
        ({"center": True, "start": "orthogonal"}, False),
        # One step from this bound leaves all values of 64 rows below 0.2, also those of an orthogonal matrix.
        ({"steps": 1, "bound": "frobenius", "start": "orthogonal"}, False),
    ],
)
def test_summary_says_that_random_square_weights_stay_far_from_orthogonal(options, warned):
    model = oni.convert(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.Linear(64, 8)), **options)
    headline = oni.summary(model).headline()
    advice = (
        "2 of them have singular values below 0.1, which can keep a deep network from training; "
        'unless it is pretrained, convert it with start="orthogonal".'
    )
    assert (advice in headline) == warned
    assert ("below 0.1" in headline) == warned


def test_summary_does_not_call_rounding_small_singular_values():
    """In bfloat16, what centring takes away comes back as 2e-4."""
    layer = oni.orthogonal(nn.Linear(64, 64, dtype=torch.bfloat16), center=True, sigma_min=None, steps=5)
    (row,) = oni.summary(layer).rows
    assert 0 < row.sigma[0] < torch.finfo(torch.bfloat16).eps
    assert "below 0.1" not in oni.summary(layer).headline()


def test_summary_says_how_orthogonal():
    model = oni.convert(nn.Sequential(nn.Linear(64, 64)), steps=1)
    text = str(oni.summary(model))
    low, high = oni.summary(model).rows[0].sigma
    assert f"1 of 1 weights are orthogonalised; their singular values, before scale: {low:.3f} - {high:.3f}." in text
    oni.bake(model)
    assert oni.summary(model).rows[0].why == "plain: never converted, or baked"


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")
def test_an_empty_layer():
    with pytest.raises(ValueError, match=r"Linear: weight has shape \(3, 0\) and no entries"):
        oni.orthogonal(nn.Linear(0, 3))
    model = oni.convert(nn.Sequential(nn.Linear(4, 4), nn.Linear(0, 3)))
    assert oni.summary(model).rows[1].why == "has no entries"


def test_numpy_scalars():
    options = {"scale": np.float32(1.5), "groups": np.int64(2), "steps": np.int64(2)}
    layer = oni.orthogonal(nn.Linear(6, 4), **options)
    own = layer.parametrizations.weight[0].options
    assert (own.scale, own.groups, own.steps) == (1.5, 2, 2)
    assert [type(value) for value in (own.scale, own.groups, own.steps)] == [float, int, int]
    assert_close(oni.orthogonalize(torch.eye(4), groups=np.int64(2)), oni.orthogonalize(torch.eye(4), groups=2))
    layer.state_dict()  # the options are plain JSON


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_weight_has_the_strides_of_its_proxy(kind, channels_last):
    layer = kind(4, 6, 3)
    if channels_last:
        layer = layer.to(memory_format=torch.channels_last)
    expected = layer.weight.stride()
    oni.orthogonal(layer)
    assert layer.parametrizations.weight.original.stride() == expected
    assert layer.weight.stride() == expected
    with oni.cached(layer):
        assert layer.weight.stride() == expected


def test_sigma_max_where_rounding_errors_add_up():
    # Equal numbers round alike, so the error of a sum of n is up to n eps / 2, not sqrt(n) eps.
    for n in (64, 512):
        W = oni.orthogonalize(torch.ones(n, n), center=False)
        assert oni.spectrum(W)[0] <= 1 + n * torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    "function",
    [oni.convert, oni.bake, oni.summary, oni.retune, oni.share, lambda model: oni.init_scale(model, torch.ones(1))],
)
@pytest.mark.parametrize("model", [3, "model.pt", {}, torch.ones(2, 2)], ids=lambda model: type(model).__name__)
def test_what_is_no_model(function, model):
    with pytest.raises(TypeError, match=f"model must be a torch.nn.Module, got {type(model).__name__}$"):
        function(model)


def test_a_scope_of_what_is_no_model():
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got int"), oni.cached(3):
        pass


def test_names_with_brackets():
    class Bracketed(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module("a[0]", nn.Linear(4, 4))
            self.add_module("a[1]", nn.Linear(4, 4))

        def forward(self, x):
            return x

    model = oni.convert(Bracketed(), skip="a[0]")
    assert [bool(row.why) for row in oni.summary(model).rows] == [True, False]


def test_inside_ddp():
    class Wrapped(nn.parallel.DistributedDataParallel):
        def __init__(self, module):  # without a process group
            nn.Module.__init__(self)
            self.module = module

    model = Wrapped(nn.Linear(4, 4))
    with pytest.raises(ValueError, match=r"already inside DistributedDataParallel.*convert the model first"):
        oni.convert(model)
    assert plain_keys(model) == ["module.weight", "module.bias"]


@pytest.mark.filterwarnings("ignore")  # torch.compile's own code uses what torch deprecates
@pytest.mark.parametrize("bound", ["compact", "trace"])
def test_compile_with_dynamic_shapes(bound):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = oni.convert(nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4)), scale="relu", bound=bound)
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, dynamic=True, backend="aot_eager")
    for size in (3, 5):
        x = torch.randn(size, 6)
        compiled(x).square().sum().backward()
        twin(x).square().sum().backward()
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        # A few products of size 6, 5 steps and their derivative, on gradients below 10.
        assert_close(parameter.grad, other.grad, atol=1e-4, rtol=1e-4)
