"""Weight decay for all but proxies."""

import pytest
import torch
from torch import nn

import oni


def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GRUCell(6, 4), nn.Linear(4, 4), nn.Linear(4, 2))


def names_of(model, group):
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)] for parameter in group["params"]}


def test_proxies_and_their_scales_do_not_decay():
    model = oni.convert(build(), skip="4", learn_scale=True)
    model[3].parametrizations.weight.original = model[3].parametrizations.weight.original  # as some wrappers do
    decay, rest = oni.param_groups(model, weight_decay=0.1)
    assert (decay["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    expected = {name for name, _ in model.named_parameters() if ".parametrizations." in name}
    assert names_of(model, rest) == expected
    assert len(expected) == 6
    assert names_of(model, decay) == {name for name, _ in model.named_parameters()} - expected


def test_the_parametrizations_of_others_decay():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
    (group,) = oni.param_groups(model, weight_decay=1)
    assert len(group["params"]) == 3


@pytest.mark.parametrize("convert", [False, True])
def test_each_parameter_once(convert):
    model = build()
    model[3].weight = nn.Parameter(torch.randn(4, 4))
    model.append(nn.Linear(4, 4))
    model[5].weight = model[3].weight
    if convert:
        oni.convert(model)
    groups = oni.param_groups(model, weight_decay=0.1)
    listed = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(listed) == sorted(map(id, model.parameters()))
    assert len(groups) == 1 + convert


def test_decay_acts_on_the_rest_alone():
    model = oni.convert(build(), skip="4")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.SGD(oni.param_groups(model, weight_decay=0.5), lr=1.0)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 1.0 if ".parametrizations." in name else 0.5
        assert torch.equal(parameter, factor * before[name]), name


@pytest.mark.parametrize(
    ("model", "weight_decay", "error", "words"),
    [
        (nn.Linear(2, 2), -1.0, ValueError, "weight_decay must be a number of at least 0, got -1.0"),
        (nn.Linear(2, 2), float("nan"), ValueError, "weight_decay .* got nan"),
        (nn.Linear(2, 2), True, ValueError, "weight_decay .* got True"),
        (nn.Linear(2, 2), "0.1", ValueError, "weight_decay .* got '0.1'"),
        ([nn.Linear(2, 2)], 0.1, TypeError, "model must be a torch.nn.Module, got list"),
    ],
)
def test_bad_arguments(model, weight_decay, error, words):
    with pytest.raises(error, match=words):
        oni.param_groups(model, weight_decay=weight_decay)
