"""Whole models: choosing layers, converting, summarising, baking."""

import copy
import io
import pickle

import pytest
import torch
from rounding import FIVE_STEPS, rounding
from torch import nn
from torch.testing import assert_close

import oni
from oni.models.bake_state_dict import bake_state_dict


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), nn.ReLU())
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.table = nn.Embedding(5, 8)
        self.memory = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = self.features(x).flatten(2).transpose(1, 2) + self.table.weight[0]
        x = self.attention(x, x, x)[0]
        return self.head(self.memory(x)[0].mean(1))


def orthogonal_layers(model):
    return {row.layer for row in oni.summary(model).rows if not row.why}


X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
ALL = {
    "features.0",
    "features.2",
    "attention.in_proj_weight",
    "attention.out_proj",
    "memory.weight_hh_l0",
    "head",
}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ALL),
        ({"only": nn.Conv2d}, {"features.0", "features.2"}),
        ({"only": "features.*"}, {"features.0", "features.2"}),
        ({"only": ["features.0", nn.Linear]}, {"features.0", "attention.out_proj", "head"}),
        ({"only": lambda name, module: "bias" in module._parameters and module.bias is None}, {"features.2"}),
        ({"skip": "head"}, ALL - {"head"}),
        ({"skip": (nn.Linear, "features.0")}, {"features.2", "attention.in_proj_weight", "memory.weight_hh_l0"}),
        ({"only": "features.*", "skip": "*.0"}, {"features.2"}),
    ],
)
def test_choosing(options, expected):
    model = oni.convert(Small(), **options)
    assert orthogonal_layers(model) == expected
    assert model(X).isfinite().all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"only": "feature.*"}, ValueError, r"only='feature.\*' matches no layer; the model has .*features.0"),
        ({"skip": nn.Conv3d}, ValueError, "skip=Conv3d matches no layer"),
        ({"only": 3}, TypeError, "only"),
        ({"skip": [3]}, TypeError, "skip takes module types, glob patterns"),
        ({"groups": 5}, ValueError, "features.0: groups must divide the 8 rows"),
        ({"steps": -1}, ValueError, "steps"),
    ],
)
def test_bad_choices_change_nothing(options, error, words):
    model = Small()
    before = repr(model)
    with pytest.raises(error, match=words):
        oni.convert(model, **options)
    assert repr(model) == before
    assert not model._forward_pre_hooks


def break_spectral(model):
    nn.utils.parametrizations.spectral_norm(model.head)


def break_nan(model):
    model.head.weight.data.fill_(float("inf"))


def break_lazy(model):
    model.head = nn.LazyLinear(4)


def break_integer(model):
    model.head.weight = nn.Parameter(torch.ones(4, 8, dtype=torch.int8), requires_grad=False)


@pytest.mark.filterwarnings("ignore:Lazy modules:UserWarning")
@pytest.mark.parametrize(
    ("broken", "words"),
    [(break_spectral, "_SpectralNorm"), (break_nan, "NaN or inf"), (break_lazy, "lazy"), (break_integer, "int8")],
)
def test_a_layer_that_cannot_be_converted_is_named(broken, words):
    model = Small()
    broken(model)
    before = repr(model)
    with pytest.raises((ValueError, TypeError), match=f"head: .*{words}"):
        oni.convert(model)
    assert repr(model) == before
    oni.convert(model, skip="head")


def test_converting_twice_changes_nothing():
    model = oni.convert(Small(), skip="head")
    before, keys = repr(model), list(model.state_dict())
    hooks = len(model._forward_pre_hooks)
    oni.convert(model, skip="head")
    assert repr(model) == before
    assert list(model.state_dict()) == keys
    assert len(model._forward_pre_hooks) == hooks
    with pytest.raises(ValueError, match=r"features.0 is already orthogonal, with other options: .*oni.bake"):
        oni.convert(model, steps=2)
    oni.convert(model)
    assert "head" in orthogonal_layers(model)


def test_baking():
    model = Small()
    keys, plain = list(model.state_dict()), repr(model)
    oni.convert(model, steps=3, scale="relu", learn_scale=True)
    parameters = {id(p) for p in model.parameters()}
    live = model(X)
    weight = model.head.weight.detach().clone()
    assert oni.bake(model) is model
    assert repr(model) == plain
    assert list(model.state_dict()) == keys
    assert {id(p) for p in model.parameters()} <= parameters
    # The weights computed one by one, not in a batch, then seven layers with sums of up to 72 terms.
    assert_close(model(X), live, **rounding(FIVE_STEPS + 7, 72))
    assert torch.equal(model.head.weight, weight)
    assert not model._forward_pre_hooks
    assert not model._forward_hooks
    Small().load_state_dict(model.state_dict(), strict=True)
    oni.bake(model)
    assert torch.equal(model.head.weight, weight)


def test_baking_a_plain_model_changes_nothing():
    model = Small()
    before = copy.deepcopy(model.state_dict())
    oni.bake(model)
    assert all(torch.equal(a, b) for a, b in zip(before.values(), model.state_dict().values(), strict=True))


def test_baking_a_copy_leaves_the_original_alone():
    model = oni.convert(Small())
    y = model(X)
    baked = oni.bake(copy.deepcopy(model))
    assert_close(baked(X), y, **rounding(FIVE_STEPS + 7, 72))
    assert_close(model(X), y)
    assert orthogonal_layers(model) == ALL
    pickle.loads(pickle.dumps(baked))


@pytest.mark.parametrize(
    ("name", "outputs", "groups"),
    [("qkv", 24, 3), ("to_qkv", 24, 3), ("Wqkv", 24, 3), ("c_attn", 16, 2), ("qkv", 20, 1), ("fc", 24, 1)],
)
def test_queries_keys_and_values_of_one_linear_layer(name, outputs, groups):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module(name, nn.Linear(8, outputs))

    model = oni.convert(nn.ModuleList([Attention()]), steps=30)
    (row,) = oni.summary(model).rows
    assert (row.layer, row.groups) == (f"0.{name}", groups)
    for part in model[0].get_submodule(name).weight.detach().chunk(groups):
        # Square or tall: orthonormal columns after 30 steps, made in float64.
        assert_close(part.T @ part, torch.eye(8), atol=1e-5, rtol=0)
    assert oni.convert(model, steps=30) is model


def test_baking_one_of_two_parametrised_tensors():
    attention = nn.MultiheadAttention(8, 2)
    oni.orthogonal(attention, "in_proj_weight")
    assert oni.summary(attention).rows[0].groups == 3
    nn.utils.parametrizations.weight_norm(attention.out_proj)
    oni.bake(attention)
    assert orthogonal_layers(attention) == set()
    assert nn.utils.parametrize.is_parametrized(attention.out_proj)


def test_a_parametrization_on_top_is_refused():
    layer = oni.nn.Linear(8, 4)
    nn.utils.parametrizations.spectral_norm(layer)
    with pytest.raises(ValueError, match="another parametrization on top"):
        oni.bake(layer)


class TestSharing:
    def tied(self):
        model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
        model[2].weight = model[0].weight
        return model

    @pytest.mark.parametrize("learn_scale", [False, True])
    def test_a_shared_parameter_stays_shared(self, learn_scale):
        model = oni.convert(self.tied(), learn_scale=learn_scale, scale=2.0)
        first, second = model[0].parametrizations.weight, model[2].parametrizations.weight
        assert first.original is second.original
        assert first[0] is second[0]
        x = torch.randn(3, 6)
        y = model(x)
        y.sum().backward()
        oni.bake(model)
        assert model[0].weight is model[2].weight
        assert_close(model(x), y, **rounding(FIVE_STEPS + 2, 6, values=10))

    @pytest.mark.parametrize(
        ("first", "second", "stays_shared"),
        [
            ({}, {}, True),
            ({"steps": 1}, {"steps": 10}, False),
            ({"learn_scale": True}, {"learn_scale": True, "scale": 3.0}, False),
            ({}, None, False),
            (None, {}, False),
        ],
        ids=["the same", "steps", "scale", "one plain", "the other plain"],
    )
    def test_different_weights_of_one_parameter_are_all_baked(self, first, second, stays_shared):
        model = self.tied()
        for layer, options in ((model[0], first), (model[2], second)):
            if options is not None:
                oni.orthogonal(layer, **options)
        weights = [model[0].weight.detach().clone(), model[2].weight.detach().clone()]
        state = bake_state_dict(model.state_dict())
        oni.bake(model)
        assert (model[0].weight is model[2].weight) == stays_shared
        for key, weight, baked in zip(("0.weight", "2.weight"), weights, (model[0], model[2]), strict=True):
            assert torch.equal(baked.weight, weight)
            assert torch.equal(state[key], weight)

    def test_a_module_used_twice(self):
        layer = nn.Linear(6, 6)
        model = oni.convert(nn.Sequential(layer, nn.ReLU(), layer))
        assert len(oni.summary(model).rows) == 1
        y = model(torch.ones(1, 6))
        assert_close(oni.bake(model)(torch.ones(1, 6)), y, **rounding(FIVE_STEPS + 2, 6, values=3))

    def test_shared_with_a_layer_that_is_not_chosen(self):
        with pytest.warns(UserWarning, match="nothing to convert: 0 .shares its parameter"):
            model = oni.convert(self.tied(), skip="2")
        assert orthogonal_layers(model) == set()
        assert model[0].weight is model[2].weight
        oni.convert(model)
        assert orthogonal_layers(model) == {"0", "2"}
        assert torch.equal(model[0].weight, model[2].weight)

    def test_shared_with_an_embedding_is_left_alone(self):
        model = nn.ModuleDict({"table": nn.Embedding(10, 6), "decoder": nn.Linear(6, 10, bias=False)})
        model["decoder"].weight = model["table"].weight
        with pytest.warns(UserWarning, match="nothing to convert"):
            oni.convert(model)
        assert orthogonal_layers(model) == set()
        (_, decoder) = oni.summary(model).rows
        assert decoder.why == "shares its parameter with Embedding, which is not converted"


class TestSummary:
    def test_rows(self):
        model = oni.convert(Small(), skip="head", steps=4, scale="relu")
        rows = {row.layer: row for row in oni.summary(model).rows}
        assert rows["features.0"].steps == 4
        assert rows["features.0"].shape == (8, 3, 3, 3)
        assert rows["features.0"].scale == pytest.approx((2**0.5, 2**0.5))
        W = model.features[0].weight.detach().flatten(1) / 2**0.5
        assert rows["features.0"].delta == pytest.approx(float(oni.orthogonality(W).row), abs=1e-4)
        assert rows["features.0"].sigma[1] <= 1 + rounding(FIVE_STEPS, 27)["rtol"]
        assert rows["head"].why == "skipped by 'head'"
        assert rows["memory.weight_ih_l0"].why == "is not recurrent; call oni.orthogonal on it"
        assert [rows[name].groups for name in ("memory.weight_hh_l0", "features.0", "table")] == [4, 1, None]
        assert "table" in rows["table"].why

    def test_layers_of_unknown_kinds_are_listed(self):
        class Own(nn.Module):
            def __init__(self):
                super().__init__()
                self.kernel = nn.Parameter(torch.randn(3, 4))
                self.gain = nn.Parameter(torch.ones(3))

        with pytest.warns(UserWarning, match=r"nothing to convert: kernel \(not a kind"):
            (row,) = oni.summary(oni.convert(Own())).rows
        assert (row.layer, row.shape) == ("kernel", (3, 4))
        assert "not a kind of layer" in row.why
        (row,) = oni.summary(oni.orthogonal(Own(), "kernel")).rows
        assert not row.why

    def test_on_the_meta_device(self):
        with torch.device("meta"):
            model = oni.convert(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), steps=3, learn_scale=True)
        rows = oni.summary(model).rows
        assert [(row.layer, row.shape, row.steps, row.scale, row.delta, row.sigma) for row in rows] == [
            ("0", (8, 8), 3, None, None, None),
            ("1", (4, 8), 3, None, None, None),
        ]
        assert "2 of 2 weights are orthogonalised; 2 of them are on the meta device" in str(oni.summary(model))

    def test_plain_text_where_there_is_no_terminal(self, capsys):
        model = oni.convert(Small(), skip="head")
        print(oni.summary(model))
        text = capsys.readouterr().out
        assert "\x1b" not in text
        assert "features.0" in text
        assert "5 of 8 weights are orthogonalised; their singular values, before scale: " in text

    def test_rich_table(self):
        console = pytest.importorskip("rich.console").Console(file=io.StringIO(), width=120, force_terminal=True)
        console.print(oni.summary(oni.convert(Small())))
        assert "in_proj_weight" in console.file.getvalue()


class TestInitScale:
    @pytest.mark.parametrize("centred", [True, False])
    def test_every_layer_has_unit_variance(self, centred):
        model = nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 6, 3, bias=False),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(216, 5),
        )
        oni.convert(model, learn_scale=True, center=centred)
        x = 3 * torch.randn(64, 3, 6, 6) + 1
        assert oni.init_scale(model, x) is model
        for index in (0, 2, 5):
            y = model[: index + 1](x)
            channels = y.transpose(0, 1).flatten(1)
            # Statistics in float64 of float32 activations.
            assert_close(channels.std(1, correction=0), torch.ones(len(channels)), atol=1e-4, rtol=0)
            if model[index].bias is not None:
                assert_close(channels.mean(1), torch.zeros(len(channels)), atol=1e-4, rtol=0)

    def test_layers_by_name_have_a_standard_deviation_of_their_own(self):
        model = oni.convert(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)), learn_scale=True)
        x = torch.randn(64, 6)
        oni.init_scale(model, x, std={"*": 2.0, "2": 0.25})
        # Statistics in float64 of float32 activations.
        assert_close(model[0](x).std(0, correction=0), torch.full((8,), 2.0), atol=2e-4, rtol=0)
        assert_close(model(x).std(0, correction=0), torch.full((4,), 0.25), atol=1e-4, rtol=0)
        oni.init_scale(model, x, std=0.5)
        assert_close(model[0](x).std(0, correction=0), torch.full((8,), 0.5), atol=1e-4, rtol=0)

    @pytest.mark.parametrize(
        ("std", "complaint"),
        [
            (0.0, "std must be a positive number, got 0.0"),
            ({"0": -1.0}, r"std\['0'\] must be a positive number, got -1.0"),
            (float("inf"), "got inf"),
            ({"conv*": 0.5}, "'conv\\*' in std matches none of '0'"),
        ],
    )
    def test_a_standard_deviation_that_can_t_be(self, std, complaint):
        model = oni.convert(nn.Sequential(nn.Linear(6, 8)), learn_scale=True)
        before = model[0].weight.clone()
        with pytest.raises(ValueError, match=complaint):
            oni.init_scale(model, torch.randn(16, 6), std=std)
        assert torch.equal(model[0].weight, before)

    def test_running_statistics_stay(self):
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        oni.convert(model, learn_scale=True)
        oni.init_scale(model, torch.randn(32, 6) + 5)
        assert torch.equal(model[1].running_mean, torch.zeros(8))
        assert model[1].num_batches_tracked == 0

    def test_a_dead_filter_keeps_its_scale(self):
        layer = oni.nn.Linear(3, 2, learn_scale=True)
        oni.init_scale(layer, torch.ones(5, 3), std=0.1)
        assert torch.equal(layer.parametrizations.weight[0].scale, torch.ones(2))

    def test_arguments(self):
        attention = oni.convert(nn.MultiheadAttention(8, 2), learn_scale=True)
        x = torch.randn(3, 2, 8)
        oni.init_scale(attention, (x, x, x))
        oni.init_scale(attention, {"query": x, "key": x, "value": x})
        with pytest.raises(ValueError, match="learn_scale=True"):
            oni.init_scale(oni.convert(nn.Linear(3, 2)), torch.ones(5, 3))
        with pytest.raises(ValueError, match="NaN or infinity"):
            oni.init_scale(oni.nn.Linear(3, 2, learn_scale=True), torch.full((5, 3), float("nan")))
