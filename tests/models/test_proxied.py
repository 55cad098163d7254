"""The walk finds what torch's own finds, in the same order and under the same names."""

import pytest
import torch
from held_weights import TwoHeads, mlp
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import oni
from oni.baselines import centred_weight_norm
from oni.models.proxied import find_orthogonal, join_path, walk_proxied
from oni.nn.from_proxy import FromProxy
from oni.nn.parametrization import Orthogonal


def find_slowly(model):
    """The same by means of torch alone."""
    return [
        (layer, module, name, holder)
        for layer, module in model.named_modules()
        if parametrize.is_parametrized(module) and not isinstance(module, parametrize.ParametrizationList)
        for name, holder in module.parametrizations.items()
        if isinstance(holder[0], FromProxy)
    ]


def shared_module():
    layer = nn.Linear(6, 6)
    return oni.convert(nn.Sequential(mlp(1), layer, nn.ModuleDict({"again": layer, "b": nn.Linear(6, 6)})))


def tied_parameter():
    model = TwoHeads()
    model.second.weight = model.first.weight
    return oni.convert(model)


def others_beside_ours():
    model = nn.Sequential(weight_norm(nn.Linear(6, 6)), nn.RNNCell(6, 6), spectral_norm(nn.Linear(6, 6)), mlp(1))
    oni.orthogonal(model[1], "weight_hh")
    oni.orthogonal(model[1], "weight_ih")
    oni.convert(model[3])
    parametrize.register_parametrization(model[1], "bias_hh", nn.Tanh())
    return model


def absent_child():
    model = mlp(2)
    model.register_module("missing", None)
    return oni.convert(model)


def inside_a_foreign_parametrization():
    class Through(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = oni.nn.Linear(6, 6)

        def forward(self, weight):
            return self.layer(weight)

    model = nn.Sequential(nn.Linear(6, 6), oni.nn.Linear(6, 6))
    parametrize.register_parametrization(model[0], "weight", Through())
    return model


def scripted_child():
    return oni.convert(nn.Sequential(torch.jit.script(nn.Sequential(nn.ReLU(), nn.Linear(6, 6))), mlp(1)), only="1.*")


MODELS = [
    lambda: mlp(2),
    lambda: oni.nn.Linear(6, 6),
    lambda: oni.convert(nn.Sequential(mlp(2), nn.Sequential(mlp(1), nn.MultiheadAttention(6, 2)))),
    lambda: nn.Sequential(oni.convert(mlp(1)), centred_weight_norm(nn.Linear(6, 6))),
    shared_module,
    tied_parameter,
    others_beside_ours,
    absent_child,
    inside_a_foreign_parametrization,
    scripted_child,
]


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("build", MODELS)
def test_the_walk(build):
    model = build()
    expected = find_slowly(model)
    found = [(join_path(path), *rest) for path, *rest in walk_proxied(model)]
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one[0::2] == other[0::2]
        assert one[1] is other[1]
        assert one[3] is other[3]
    ours = [(f"{layer}.{name}".lstrip("."), holder) for layer, _, name, holder in expected if is_orthogonal(holder)]
    assert [(member.title, member.holder) for member in find_orthogonal(model)] == ours
    for member in find_orthogonal(model):
        assert member.parametrization is member.holder[0]
        assert member.Z is member.holder.original


def is_orthogonal(holder):
    return isinstance(holder[0], Orthogonal)


def test_what_is_found():
    """The walks agree on something, that is."""
    counts = [len(find_slowly(build())) for build in MODELS[:-1]]
    assert counts == [0, 1, 5, 2, 3, 2, 3, 2, 2]
