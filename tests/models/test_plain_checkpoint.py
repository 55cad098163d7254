"""A checkpoint of the plain architecture, loaded into a converted model: what converting after loading gives."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import oni


class Net(nn.Module):
    def __init__(self, seed):
        super().__init__()
        torch.manual_seed(seed)
        self.features = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.ConvTranspose2d(6, 4, 3, groups=2))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.memory = nn.LSTM(4, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.head, self.twin = nn.Linear(8, 8), nn.Linear(8, 8)
        self.twin.weight = self.head.weight

    def forward(self, x):
        x = self.features(x).flatten(2).transpose(1, 2)
        return self.twin(self.head(self.memory(self.attention(x, x, x)[0])[0]))


X = torch.randn(2, 2, 5, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("assign", [True, False])
def test_weights_become_proxies(strict, assign):
    plain = Net(seed=0)
    model = oni.convert(Net(seed=1), steps=3)
    keys = list(model.state_dict())
    state = plain.state_dict()
    before = dict(state)
    assert not any(model.load_state_dict(state, strict=strict, assign=assign))
    assert state.keys() == before.keys()
    assert list(model.state_dict()) == keys
    expected = oni.convert(Net(seed=0), steps=3)
    assert_close(model(X), expected(X))
    assert all(map(torch.equal, model.state_dict().values(), expected.state_dict().values()))


def test_what_is_missing_and_what_is_too_much_is_still_said():
    state = Net(seed=0).state_dict()
    del state["head.weight"]
    model = oni.convert(Net(seed=1))
    with pytest.raises(RuntimeError, match=r"Missing key.*head.parametrizations.weight.original"):
        model.load_state_dict(state)
    assert model.load_state_dict(state, strict=False).missing_keys == ["head.parametrizations.weight.original"]
    state = {**Net(seed=0).state_dict(), "head.gain": torch.ones(1)}
    assert model.load_state_dict(state, strict=False).unexpected_keys == ["head.gain"]
    both = {**model.state_dict(), "head.weight": torch.ones(8, 8)}
    with pytest.raises(RuntimeError, match=r"Unexpected key.*head.weight"):
        model.load_state_dict(both)
    with pytest.raises(RuntimeError, match=r"size mismatch for head.parametrizations.weight.original"):
        model.load_state_dict({**Net(seed=0).state_dict(), "head.weight": torch.ones(3, 3)})


def test_a_learnt_scale_is_not_in_it():
    model = oni.convert(nn.Linear(4, 4), learn_scale=True, scale=2.0)
    state = nn.Linear(4, 4).state_dict()
    with pytest.raises(RuntimeError, match=r"Missing key.*parametrizations.weight.0.scale"):
        model.load_state_dict(state)
    assert model.load_state_dict(state, strict=False).missing_keys == ["parametrizations.weight.0.scale"]
    assert torch.equal(model.parametrizations.weight.original, state["weight"])


def test_a_target_is_met_again():
    model = oni.convert(nn.Linear(16, 8), sigma_min=0.9)
    harder = nn.Linear(16, 8)
    with torch.no_grad():
        harder.weight[0] *= 30
    with pytest.warns(UserWarning, match="chosen again"):
        model.load_state_dict(harder.state_dict())
    assert oni.spectrum(model.weight).min() >= 0.9


def test_a_copy_and_a_baked_model():
    state = Net(seed=0).state_dict()
    model = copy.deepcopy(oni.convert(Net(seed=1)))
    model.load_state_dict(state)
    assert_close(model(X), oni.convert(Net(seed=0))(X))
    baked = oni.bake(model)
    baked.load_state_dict(state)
    assert_close(baked(X), Net(seed=0)(X))


def test_baselines_too():
    layer = oni.baselines.olm(nn.Linear(6, 4))
    state = nn.Linear(6, 4).state_dict()
    layer.load_state_dict(state)
    assert torch.equal(layer.parametrizations.weight.original, state["weight"])
