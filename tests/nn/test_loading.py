"""Options in a ``state_dict``: targets are met or missed aloud, and a model is warned of once, by layer."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

import oni
from oni.nn.options_codec import encode_options

LAYERS = 8


def build(**options):
    return oni.convert(nn.Sequential(*(nn.Linear(16, 16) for _ in range(LAYERS))), **options)


def stretch(model):
    """Make its weights need more than they did."""
    with torch.no_grad():
        for layer in model:
            layer.parametrizations.weight.original[0] *= 30


@pytest.fixture
def stretched():
    torch.manual_seed(0)
    model = build(sigma_min=0.9)
    stretch(model)
    oni.retune(model)
    return model


def load(model, state, **options):
    """Load it; return what was warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.load_state_dict(state, **options)
    assert all(warning.filename == __file__ for warning in caught)
    return [str(warning.message) for warning in caught]


def lowest(model):
    return min(row.sigma[0] for row in oni.summary(model).rows)


class TestTargets:
    def test_without_options_they_are_chosen_again(self, stretched):
        model = build(sigma_min=0.9)
        (message,) = load(model, dict(stretched.named_parameters()), strict=True)
        assert lowest(model) >= 0.9
        assert "the checkpoint has no options that give sigma_min=0.9: they were chosen again" in message
        assert " more: " in message

    def test_where_the_present_ones_do_nothing_is_said(self):
        torch.manual_seed(0)
        model = build(sigma_min=0.9)
        before = repr(model)
        assert load(model, dict(model.named_parameters())) == []
        assert repr(model) == before

    def test_what_was_saved_is_taken_without_a_word(self, stretched):
        model = build(sigma_min=0.9)
        assert load(model, stretched.state_dict()) == []
        assert repr(model) == repr(stretched)

    def test_what_was_saved_and_falls_short_stays_and_is_said(self, stretched):
        with torch.no_grad():
            stretched[2].parametrizations.weight.original[1] *= 100
            stretched[5].parametrizations.weight.original[1] *= 100
        model = build(sigma_min=0.9)
        (message,) = load(model, stretched.state_dict())
        assert message == "2, 5: below sigma_min=0.9 with the saved options: oni.retune(model) chooses again"
        assert torch.equal(model[2].weight, stretched[2].weight)

    def test_an_average_of_two_choices(self, stretched):
        # Bytes of different texts, averaged, are no text, or another one than either.
        other, model = build(sigma_min=0.9), build(sigma_min=0.9)
        average = {key: (value + other.state_dict()[key]) / 2 for key, value in stretched.state_dict().items()}
        (message,) = load(model, average)
        named = {name for part in message.split("; ") for name in part.partition(":")[0].split(" and ")[0].split(", ")}
        missed = {row.layer for row in oni.summary(model).rows if row.misses_target}
        assert missed <= named
        oni.retune(model)
        assert lowest(model) >= 0.9

    def test_more_steps_than_any_weight_needs_are_chosen_again(self, stretched):
        state = stretched.state_dict()
        parametrization = stretched[0].parametrizations.weight[0]
        vast = replace(parametrization.options, steps=2_000_000_000)
        state["0.parametrizations.weight.0._extra_state"] = encode_options(vast, parametrization.layout)
        model = build(sigma_min=0.9)
        (message,) = load(model, state)
        assert message.startswith("0: the checkpoint has no options that give sigma_min=0.9: they were chosen again")
        assert lowest(model) >= 0.9

    def test_out_of_reach(self, stretched):
        with torch.no_grad():
            stretched[3].parametrizations.weight.original[1:] = 0
        state = {key: value for key, value in stretched.state_dict().items() if not key.endswith("_extra_state")}
        (message,) = load(build(sigma_min=0.9), state)
        assert "3: sigma_min=0.9 can't be reached: a 16 x 16 matrix of rank 1" in message

    def test_a_layer_that_is_not_loaded_stays_as_it_is(self, stretched):
        stretch(stretched)
        before = repr(stretched)
        assert load(stretched, {"0.bias": torch.zeros(16)}, strict=False) == []
        assert repr(stretched) == before

    def test_inside_a_larger_model(self, stretched):
        outer = nn.ModuleDict({"body": build(sigma_min=0.9), "head": nn.Linear(16, 2)})
        state = {f"body.{key}": value for key, value in stretched.named_parameters()} | {
            f"head.{key}": value for key, value in nn.Linear(16, 2).state_dict().items()
        }
        (message,) = load(outer, state)
        assert message.startswith("body.0, body.1, ")
        assert lowest(outer["body"]) >= 0.9

    def test_an_interrupted_load_leaves_nothing_behind(self, stretched):
        model = build(sigma_min=0.9)
        state = dict(stretched.named_parameters())
        with pytest.raises(RuntimeError, match="size mismatch"):
            load(model, {**state, "7.bias": torch.zeros(3)})
        assert load(build(steps=3), build(steps=3).state_dict()) == []


@pytest.mark.parametrize("by_layer", [False, True])
def test_other_options_are_one_warning(by_layer):
    torch.manual_seed(0)
    model = build(steps=3)
    if by_layer:
        model = nn.Sequential(*(oni.orthogonal(nn.Linear(16, 16), steps=3) for _ in range(LAYERS)))
    (message,) = load(model, build(steps=5).state_dict())
    assert message.startswith(
        "0, 1, 2, 3, 4 and 3 more: the checkpoint was saved with steps=5, and the model has steps=3"
    )
    assert message.count("the model's options are used") == 1


def test_each_difference_is_said_once():
    torch.manual_seed(0)
    saved = nn.Sequential(*(oni.nn.Linear(8, 8, steps=steps) for steps in (5, 5, 7)))
    (message,) = load(nn.Sequential(*(oni.nn.Linear(8, 8, steps=3) for _ in range(3))), saved.state_dict())
    first, second = message.split("; 2: ")
    assert first.startswith("0, 1: the checkpoint was saved with steps=5")
    assert second.startswith("the checkpoint was saved with steps=7")
