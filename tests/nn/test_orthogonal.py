"""One module made orthogonal: every kind of weight, scale, assignment, and what can't be."""

import copy
import math

import pytest
import torch
from rounding import rounding
from torch import nn
from torch.testing import assert_close

import oni
from oni.newton.matrix import Layout

LAYERS = {
    "linear": lambda: nn.Linear(12, 6),
    "tall linear": lambda: nn.Linear(4, 10, bias=False),
    "conv1d": lambda: nn.Conv1d(4, 6, 3),
    "conv2d": lambda: nn.Conv2d(4, 6, (3, 2)),
    "conv3d": lambda: nn.Conv3d(2, 6, 2),
    "1x1": lambda: nn.Conv2d(8, 6, 1),
    "grouped": lambda: nn.Conv2d(8, 6, 3, groups=2),
    "depthwise": lambda: nn.Conv2d(6, 6, 3, groups=6),
    "transposed 1d": lambda: nn.ConvTranspose1d(4, 6, 3),
    "transposed 2d": lambda: nn.ConvTranspose2d(4, 6, (3, 2)),
    "transposed 3d": lambda: nn.ConvTranspose3d(2, 6, 2),
    "transposed grouped": lambda: nn.ConvTranspose2d(8, 6, 3, groups=2),
}
INPUTS = {
    "linear": (5, 12),
    "tall linear": (5, 4),
    "conv1d": (2, 4, 9),
    "conv2d": (2, 4, 7, 7),
    "conv3d": (2, 2, 5, 5, 5),
    "1x1": (2, 8, 3, 3),
    "grouped": (2, 8, 5, 5),
    "depthwise": (2, 6, 5, 5),
    "transposed 1d": (2, 4, 5),
    "transposed 2d": (2, 4, 5, 5),
    "transposed 3d": (2, 2, 3, 3, 3),
    "transposed grouped": (2, 8, 4, 4),
}


def filters(module, weight):
    """The weight as one matrix per convolution group, its rows the output filters, found without our code.

    An output filter is what one output channel responds to.
    """
    groups = getattr(module, "groups", 1)
    if isinstance(module, nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d):
        parts = [part.transpose(0, 1) for part in weight.chunk(groups, 0)]
    else:
        parts = weight.chunk(groups, 0)
    return [part.reshape(part.shape[0], -1) for part in parts]


@pytest.mark.parametrize("kind", LAYERS)
class TestEveryKind:
    def test_rows_are_output_filters(self, kind):
        layer = LAYERS[kind]()
        Z = layer.weight.detach().clone()
        oni.orthogonal(layer, steps=3)
        assert layer.weight.shape == Z.shape
        for matrix, proxy in zip(filters(layer, layer.weight), filters(layer, Z), strict=True):
            # The same call on the matrix itself, batched or not: float32 rounding.
            assert_close(matrix, oni.orthogonalize(proxy, 3), **rounding(7, proxy.shape[1]))

    def test_full_orthogonality(self, kind):
        layer = oni.orthogonal(LAYERS[kind](), steps=25, center=False)
        for matrix in filters(layer, layer.weight.detach()):
            # Enough steps to have converged; float32 rounding of the result.
            assert min(oni.orthogonality(matrix)) < 1e-5

    def test_parameter_stays_and_learns(self, kind):
        layer = LAYERS[kind]()
        parameter = layer.weight
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        oni.orthogonal(layer)
        assert layer.parametrizations.weight.original is parameter
        before = layer.weight.detach().clone()
        layer(torch.randn(INPUTS[kind])).square().sum().backward()
        optimizer.step()
        assert not torch.equal(layer.weight, before)

    @pytest.mark.parametrize("learn_scale", [False, True])
    def test_scale_is_per_output_filter(self, kind, learn_scale):
        layer = oni.orthogonal(LAYERS[kind](), steps=5, scale="relu", learn_scale=learn_scale)
        plain = oni.orthogonal(copy_of_proxy(layer, LAYERS[kind]()), steps=5)
        assert_close(layer.weight, math.sqrt(2) * plain.weight)
        if not learn_scale:
            assert not any("scale" in name for name, _ in layer.named_parameters())
            return
        scale = layer.parametrizations.weight[0].scale
        with torch.no_grad():
            scale.copy_(torch.arange(1.0, len(scale) + 1))
        x = torch.randn(INPUTS[kind])
        channel = -1 if isinstance(layer, nn.Linear) else 1
        bias = (
            0 if layer.bias is None else layer.bias.view([-1 if i == channel % x.dim() else 1 for i in range(x.dim())])
        )
        factors = scale.view([-1 if i == channel % x.dim() else 1 for i in range(x.dim())])
        # Whatever the layout, output channel i must be i times what it was: that is what a filter is.
        assert_close(layer(x) - bias, factors * (plain(x) - bias_of(plain, bias)), atol=1e-4, rtol=1e-4)

    def test_drop_in(self, kind):
        plain = LAYERS[kind]()
        torch_class = type(plain)
        arguments = {
            "linear": (12, 6),
            "tall linear": (4, 10, False),
            "conv1d": (4, 6, 3),
            "conv2d": (4, 6, (3, 2)),
            "conv3d": (2, 6, 2),
            "1x1": (8, 6, 1),
        }
        if kind not in arguments:
            layer = getattr(oni.nn, torch_class.__name__)(
                plain.in_channels, plain.out_channels, plain.kernel_size, groups=plain.groups, steps=3
            )
        else:
            layer = getattr(oni.nn, torch_class.__name__)(*arguments[kind], steps=3)
        assert isinstance(layer, torch_class)
        layer.weight = plain.weight.detach()
        assert_close(layer.weight, oni.orthogonal(plain, steps=3).weight)
        assert layer(torch.randn(INPUTS[kind])).isfinite().all()
        assert type(oni.bake(layer)) is torch_class

    def test_gradients(self, kind):
        layer = oni.orthogonal(LAYERS[kind]().double(), steps=2, learn_scale=True)
        names = [name for name, _ in layer.named_parameters()]

        def function(*parameters):
            return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), x)

        x = torch.randn(INPUTS[kind], dtype=torch.float64)
        assert torch.autograd.gradcheck(function, tuple(layer.parameters()), fast_mode=True)


def copy_of_proxy(layer, fresh):
    fresh.load_state_dict(oni.bake(copy.deepcopy(layer)).state_dict())
    with torch.no_grad():
        fresh.weight.copy_(layer.parametrizations.weight.original)
    return fresh


def bias_of(layer, shaped):
    return shaped if layer.bias is not None else 0


def test_a_one_by_one_convolution_is_a_linear_layer():
    linear, convolution = nn.Linear(8, 6), nn.Conv2d(8, 6, 1)
    convolution.load_state_dict({"weight": linear.weight[..., None, None], "bias": linear.bias})
    oni.orthogonal(linear)
    oni.orthogonal(convolution)
    x = torch.randn(3, 8)
    assert_close(convolution(x[..., None, None])[..., 0, 0], linear(x))


def test_row_groups_of_a_layer():
    layer = oni.orthogonal(nn.Linear(8, 6), groups=2)
    Z = layer.parametrizations.weight.original
    assert_close(layer.weight, oni.orthogonalize(Z, groups=2))
    grouped = oni.nn.Conv2d(4, 8, 3, groups=2, row_groups=2)
    Z = grouped.parametrizations.weight.original.reshape(2, 4, -1)
    assert_close(grouped.weight, oni.orthogonalize(Z, groups=2).reshape(8, 2, 3, 3))


@pytest.mark.parametrize(("cell", "gates"), [(nn.RNNCell, 1), (nn.GRUCell, 3), (nn.LSTMCell, 4)])
def test_recurrent_cells(cell, gates):
    layer = oni.orthogonal(cell(5, 7), "weight_hh", steps=25)
    for gate in layer.weight_hh.chunk(gates):
        assert_close(gate @ gate.T, torch.eye(7), atol=1e-5, rtol=0)
    state = layer(torch.randn(2, 5))
    (state[0] if gates == 4 else state).sum().backward()
    assert layer.parametrizations.weight_hh.original.grad.isfinite().all()


def test_assignment_starts_the_proxy():
    layer = oni.orthogonal(nn.Linear(8, 4), steps=5)
    W0 = torch.randn(4, 8)
    kept = W0.clone()
    layer.weight = W0
    assert torch.equal(layer.parametrizations.weight.original, W0)
    assert_close(layer.weight, oni.orthogonalize(W0, 5))
    torch.optim.SGD(layer.parameters(), lr=1.0).zero_grad()
    with torch.no_grad():
        layer.parametrizations.weight.original.add_(1)
    assert torch.equal(W0, kept), "the proxy is a copy, not the tensor assigned"
    with pytest.raises(ValueError, match=r"\(4, 8\), got \(8, 4\)"):
        layer.weight = torch.randn(8, 4)
    assert layer.weight.shape == (4, 8)


def test_other_parameters_by_name():
    bilinear = oni.orthogonal(nn.Bilinear(3, 4, 5))
    assert_close(bilinear.weight.flatten(1), oni.orthogonalize(bilinear.parametrizations.weight.original.flatten(1)))


def test_layout_round_trip():
    for layout, shape in [
        (Layout(), (6, 4, 3)),
        (Layout(2), (6, 4, 3)),
        (Layout(1, True), (6, 4, 3)),
        (Layout(2, True), (6, 4, 3, 2)),
    ]:
        weight = torch.randn(shape)
        matrices = layout.matrices(weight)
        assert matrices.shape[-2] * layout.groups == layout.filters(shape)
        assert torch.equal(layout.weight(matrices, shape), weight)


def spectral():
    return nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))


def old_spectral():
    return nn.utils.spectral_norm(nn.Linear(4, 4))


def non_finite():
    layer = nn.Linear(4, 4)
    layer.weight.data[1, 2] = float("nan")
    return layer


def integer():
    layer = nn.Linear(4, 4)
    layer.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.int8), requires_grad=False)
    return layer


@pytest.mark.parametrize(
    ("make", "arguments", "error", "words"),
    [
        (lambda: nn.LSTM(3, 4), {}, ValueError, r"no parameter 'weight'; pass name= .*'weight_hh_l0'"),
        (lambda: nn.GRU(3, 4), {"name": "weight_hh_l0", "groups": 5}, ValueError, "groups must divide the 12 rows"),
        (spectral, {}, ValueError, r"weight is already parametrised by _SpectralNorm; .*\(module, 'weight'\)$"),
        (old_spectral, {}, ValueError, "no parameter 'weight'; an old-style spectral_norm"),
        (lambda: oni.nn.Linear(4, 4), {}, ValueError, "already parametrised by Orthogonal; .*oni.bake"),
        (lambda: nn.LazyLinear(4), {}, ValueError, "lazy .* run one batch"),
        (non_finite, {}, ValueError, "weight contains NaN or infinity"),
        (integer, {}, TypeError, "weight must hold real .* torch.int8"),
        (lambda: nn.Linear(4, 4), {"name": "bias"}, ValueError, r"bias has shape \(4,\)"),
        (
            lambda: nn.Linear(4, 4),
            {"name": "kernel"},
            ValueError,
            r"no parameter 'kernel'; pass name= one of \['weight'\]",
        ),
        (lambda: nn.ReLU(), {}, ValueError, "no parameter 'weight'; it has no matrix"),
        (lambda: torch.randn(4, 4), {}, TypeError, "module must be a torch.nn.Module, got Tensor"),
        (lambda: nn.Linear(4, 4), {"steps": -1}, ValueError, "steps must not be negative, got -1"),
        (lambda: nn.Linear(4, 4), {"steps": 1.5}, TypeError, "steps must be a whole number"),
        (lambda: nn.Linear(4, 4), {"bound": "x"}, ValueError, "bound must be one of"),
        (lambda: nn.Linear(4, 4), {"center": "x"}, ValueError, "center must be"),
        (lambda: nn.Linear(4, 4), {"schedule": "x"}, ValueError, "schedule must be one of"),
        (lambda: nn.Linear(4, 4), {"groups": 3}, ValueError, r"groups must divide the 4 rows .* \[1, 2, 4\]"),
        (lambda: nn.Linear(4, 4), {"groups": 0}, ValueError, "groups must divide"),
        (lambda: nn.Linear(4, 4), {"scale": "swish"}, ValueError, "scale must be .* got 'swish'"),
        (lambda: nn.Linear(4, 4), {"scale": 0.0}, ValueError, "scale must be .* got 0.0"),
        (lambda: nn.Linear(4, 4), {"scale": float("nan")}, ValueError, "scale must be .* got nan"),
        (lambda: nn.Linear(4, 4), {"scale": None}, ValueError, "scale must be .* got None"),
        (lambda: nn.Linear(4, 4), {"learn_scale": 1.4}, TypeError, "learn_scale must be True or False, got 1.4"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
def test_bad_arguments_change_nothing(make, arguments, error, words):
    module = make()
    before = repr(module)
    keys = list(module.state_dict()) if isinstance(module, nn.Module) else None
    with pytest.raises(error, match=words):
        oni.orthogonal(module, **arguments)
    assert repr(module) == before
    assert keys is None or list(module.state_dict()) == keys


@pytest.mark.parametrize("activation", ["relu", "tanh", "linear", "leaky_relu", "selu"])
def test_any_gain_that_torch_knows(activation):
    layer = oni.nn.Linear(8, 4, scale=activation)
    assert layer.parametrizations.weight[0].options.scale == nn.init.calculate_gain(activation)


def linear(**options):
    return oni.orthogonal(nn.Linear(16, 8), **options)


class TestOtherOptionsInTheCheckpoint:
    @pytest.mark.parametrize(
        ("saved", "loading", "words"),
        [
            ({"steps": 5}, {"steps": 0}, "with steps=5, schedule='newton', and the model has steps=0: the model's"),
            ({"scale": "relu"}, {"bound": "tight"}, r"bound='compact', scale=1.41\d*, .* bound='tight', scale=1.0:"),
            ({"center": "auto"}, {"center": False}, "with center=True, and the model has center=False:"),
            ({"sigma_min": 0.9}, {"steps": 1}, "with sigma_min=0.9, and the model has steps=1, bound="),
            ({"sigma_min": 0.9}, {"sigma_min": 0.5}, "with sigma_min=0.9, and the model has sigma_min=0.5:"),
            ({"scale": 2.0, "learn_scale": True}, {"learn_scale": True, "groups": 2}, "with groups=1, .* groups=2:"),
        ],
    )
    def test_they_are_told(self, saved, loading, words):
        torch.manual_seed(0)
        there, here = linear(**saved), linear(**loading)
        with pytest.warns(UserWarning, match=words):
            here.load_state_dict(there.state_dict())
        assert torch.equal(here.parametrizations.weight.original, there.parametrizations.weight.original)

    @pytest.mark.parametrize(
        ("saved", "loading"),
        [
            ({}, {"steps": 5}),
            ({"center": True}, {"center": "auto"}),
            # What is learnt is in the checkpoint.
            ({"scale": 2.0, "learn_scale": True}, {"scale": 3.0, "learn_scale": True}),
            ({"steps": 0}, {"steps": 0, "schedule": "minimax"}),
        ],
    )
    def test_no_word_where_the_weight_is_the_same(self, saved, loading):
        there, here = linear(**saved), linear(**loading)
        here.load_state_dict(there.state_dict())
        assert torch.equal(here.weight, there.weight)

    def test_the_start_of_a_learnt_scale_is_no_other_target(self):
        there, here = (linear(sigma_min=0.9, scale=scale, learn_scale=True) for scale in (2.0, 3.0))
        here.load_state_dict(there.state_dict())
        assert torch.equal(here.weight, there.weight)
        assert here.parametrizations.weight[0].options.scale == 3.0

    def test_a_scale_that_is_not_loaded(self):
        with pytest.warns(UserWarning, match="with learn_scale=True, and the model has learn_scale=False"):
            linear().load_state_dict(linear(learn_scale=True).state_dict(), strict=False)

    def test_another_layout(self):
        there = oni.orthogonal(nn.ConvTranspose2d(8, 8, 3))
        with pytest.warns(UserWarning, match="with transposed=True"):
            oni.orthogonal(nn.Conv2d(8, 8, 3)).load_state_dict(there.state_dict())

    def test_options_of_another_version(self):
        layer = linear(schedule="minimax")
        state = layer.state_dict()
        key = "parametrizations.weight.0._extra_state"
        old = bytes(state[key].byte().tolist()).replace(b'"oni":2', b'"oni":1')
        with pytest.warns(
            UserWarning, match="differ from those of the checkpoint: the weight was trained with an earlier minimax"
        ):
            layer.load_state_dict({**state, key: torch.tensor(list(old), dtype=torch.float32)})

    def test_spoilt_options_are_not_needed(self):
        layer = linear()
        layer.load_state_dict({name: torch.randn_like(value) for name, value in layer.state_dict().items()})
        there = {name: value.to("meta") for name, value in layer.state_dict().items()}
        layer.load_state_dict(there, assign=True)
        assert layer.parametrizations.weight.original.is_meta
