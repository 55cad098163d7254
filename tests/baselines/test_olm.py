"""OLM and centred weight normalisation as parametrizations: every kind of weight, scale, baking, and what can't be."""

import copy
import math

import pytest
import torch
from rounding import rounding
from torch import nn
from torch.testing import assert_close

import oni
from oni.baselines import centred_weight_norm, olm, orthogonalize_olm

LAYERS = {
    "linear": (lambda: nn.Linear(12, 6), (5, 12)),
    "tall linear": (lambda: nn.Linear(4, 10, bias=False), (5, 4)),
    "conv1d": (lambda: nn.Conv1d(4, 6, 3), (2, 4, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 6, (3, 2)), (2, 4, 7, 7)),
    "conv3d": (lambda: nn.Conv3d(2, 6, 2), (2, 2, 5, 5, 5)),
    "grouped": (lambda: nn.Conv2d(8, 6, 3, groups=2), (2, 8, 5, 5)),
    "depthwise": (lambda: nn.Conv2d(6, 6, 3, groups=6), (2, 6, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, (3, 2)), (2, 4, 5, 5)),
    "transposed grouped": (lambda: nn.ConvTranspose2d(8, 6, 3, groups=2), (2, 8, 4, 4)),
}


def filters(module, weight):
    """The weight as one matrix per convolution group, its rows the output filters, found without our code."""
    groups = getattr(module, "groups", 1)
    parts = weight.chunk(groups, 0)
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        parts = [part.transpose(0, 1) for part in parts]
    return [part.reshape(part.shape[0], -1) for part in parts]


def normalised(Z):
    centred = Z - Z.mean(-1, keepdim=True)
    return centred / centred.norm(dim=-1, keepdim=True)


VERBS = {
    "olm": (lambda layer, **options: olm(layer, group_size=3, **options), lambda Z: orthogonalize_olm(Z, group_size=3)),
    "centred-wn": (centred_weight_norm, normalised),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("verb", VERBS)
class TestEveryKind:
    def test_rows_are_output_filters(self, verb, kind):
        attach, expected = VERBS[verb]
        layer = LAYERS[kind][0]()
        Z = layer.weight.detach().clone()
        attach(layer, scale="relu")
        for matrix, proxy in zip(filters(layer, layer.weight), filters(layer, Z), strict=True):
            # An eigendecomposition in float64 and two products, on numbers below sqrt 2.
            assert_close(matrix, math.sqrt(2) * expected(proxy), **rounding(3, proxy.shape[1], values=1.5))

    def test_learns_and_bakes(self, verb, kind):
        make, shape = LAYERS[kind]
        plain, layer = make(), make()
        parameter = layer.weight
        VERBS[verb][0](layer, learn_scale=True)
        assert layer.parametrizations.weight.original is parameter
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        before = layer.weight.detach().clone()
        x = torch.randn(shape)
        layer(x).square().sum().backward()
        optimizer.step()
        assert not torch.equal(layer.weight, before)
        kept, y = copy.deepcopy(layer), layer(x)
        oni.bake(layer)
        assert type(layer) is type(plain)
        assert list(layer.state_dict()) == list(plain.state_dict())
        # The same weights through the same kernel.
        assert torch.equal(layer(x), y)
        assert torch.equal(kept(x), y), "a copy outlives the original"

    def test_gradients(self, verb, kind):
        make, shape = LAYERS[kind]
        layer = VERBS[verb][0](make().double(), learn_scale=True)
        names = [name for name, _ in layer.named_parameters()]
        x = torch.randn(shape, dtype=torch.float64)

        def function(*parameters):
            return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), x)

        assert torch.autograd.gradcheck(function, tuple(layer.parameters()), fast_mode=True)

    def test_scale_from_data(self, verb, kind):
        make, shape = LAYERS[kind]
        layer = VERBS[verb][0](make(), learn_scale=True)
        x = torch.randn(50, *shape[1:])
        y = oni.init_scale(layer, x)(x)
        channel = -1 if isinstance(layer, nn.Linear) else 1
        std = y.movedim(channel, -1).flatten(0, -2).std(0, correction=0)
        # float32 sums of a few thousand terms.
        assert_close(std, torch.ones_like(std), atol=1e-4, rtol=0)


def test_summary_tells_them_apart():
    model = nn.Sequential(olm(nn.Linear(8, 6), group_size=4), centred_weight_norm(nn.Linear(6, 5)), nn.Linear(5, 2))
    first, second, third = oni.summary(model).rows
    assert (first.kind, first.shape, first.steps, first.scale, first.why) == ("Linear", (6, 8), None, (1.0, 1.0), "")
    # Each of its groups, of 4 and 2 rows, is orthonormal; float32 rounding.
    assert first.delta < 1e-5
    assert first.sigma == pytest.approx((1.0, 1.0), abs=1e-5)
    assert (second.why, third.why) == ("parametrised by CentredWeightNorm", "plain: never converted, or baked")
    assert "1 of 3 weights are orthogonalised" in str(oni.summary(model))


def test_converted_layers_beside_them():
    model = nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 6))
    olm(model[0])
    with pytest.raises(ValueError, match="0: weight is already parametrised by OLM"):
        oni.convert(model)
    oni.convert(model, skip="0")
    x = torch.randn(3, 8)
    with oni.cached(model):
        y = model(x)
    assert_close(oni.bake(model)(x), y)


def test_assignment_starts_the_proxy():
    layer = olm(nn.Linear(8, 4))
    W0 = torch.randn(4, 8)
    layer.weight = W0
    assert_close(layer.weight, orthogonalize_olm(W0))
    with pytest.raises(ValueError, match=r"assign value.detach\(\)"):
        layer.weight = nn.Parameter(W0)
    with pytest.raises(ValueError, match=r"\(4, 8\), got \(8, 4\)"):
        layer.weight = torch.randn(8, 4)


def test_a_constant_filter_is_zero_and_learns_nothing():
    layer = nn.Linear(4, 2, bias=False)
    nn.init.ones_(layer.weight)
    centred_weight_norm(layer)
    layer(torch.randn(3, 4)).sum().backward()
    assert torch.equal(layer.weight, torch.zeros(2, 4))
    assert torch.equal(layer.parametrizations.weight.original.grad, torch.zeros(2, 4))


def test_orthogonal_throughout_training():
    layer = olm(nn.Linear(20, 12, bias=False), group_size=None, scale=0.5)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5, momentum=0.9)
    x, y = torch.randn(64, 20), torch.randn(64, 12)
    losses = []
    for _ in range(30):
        loss = nn.functional.mse_loss(layer(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        W = 2 * layer.weight.detach()
        # The norm of 144 float32 roundings of numbers up to 1.
        assert_close(W @ W.T, torch.eye(12), atol=1e-5, rtol=0)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("make", "arguments", "error", "words"),
    [
        (lambda: oni.nn.Linear(4, 4), {}, ValueError, "already parametrised by Orthogonal"),
        (lambda: olm(nn.Linear(4, 4)), {}, ValueError, "already parametrised by OLM; .*oni.bake"),
        (lambda: nn.Linear(4, 4), {"name": "bias"}, ValueError, r"bias has shape \(4,\)"),
        (lambda: nn.ReLU(), {}, ValueError, "no parameter 'weight'; it has no matrix"),
        (lambda: torch.randn(4, 4), {}, TypeError, "module must be a torch.nn.Module, got Tensor"),
        (lambda: nn.Linear(4, 4), {"group_size": 0}, ValueError, "group_size must be at least 1"),
        (lambda: nn.Linear(4, 4), {"group_size": "all"}, TypeError, "group_size must be a whole number"),
        (lambda: nn.Linear(4, 4), {"center": "auto"}, ValueError, "center must be"),
        (lambda: nn.Linear(4, 4), {"gradient": "x"}, ValueError, "gradient must be one of"),
        (lambda: nn.Linear(4, 4), {"scale": "swish"}, ValueError, "scale must be .* got 'swish'"),
        (lambda: nn.Linear(4, 4), {"learn_scale": 1.4}, TypeError, "learn_scale must be True or False, got 1.4"),
        (lambda: nn.Linear(1, 4), {}, ValueError, "center=True makes rows with one column zero"),
    ],
)
def test_bad_arguments_change_nothing(make, arguments, error, words):
    refused(olm, make, arguments, error, words)


@pytest.mark.parametrize(
    ("make", "arguments", "error", "words"),
    [
        (lambda: oni.nn.Linear(4, 4), {}, ValueError, "already parametrised by Orthogonal"),
        (lambda: nn.Linear(4, 4), {"scale": 0.0}, ValueError, "scale must be .* got 0.0"),
        (lambda: nn.Linear(4, 4), {"learn_scale": None}, TypeError, "learn_scale must be True or False, got None"),
        (lambda: torch.randn(4, 4), {}, TypeError, "module must be a torch.nn.Module, got Tensor"),
        (lambda: nn.Linear(1, 4), {}, ValueError, "center=True makes rows with one column zero"),
    ],
)
def test_bad_arguments_of_centred_weight_norm(make, arguments, error, words):
    refused(centred_weight_norm, make, arguments, error, words)


def refused(verb, make, arguments, error, words):
    module = make()
    before = repr(module)
    with pytest.raises(error, match=words):
        verb(module, **arguments)
    assert repr(module) == before
