"""Evaluation inside ``oni.cached``: weights are had straight away, and only while they are right."""

import copy
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.testing import assert_close

import oni
from oni.models.cache import CACHE
from oni.nn.parametrization import Orthogonal


@pytest.fixture
def net():
    torch.manual_seed(0)
    return oni.convert(nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 3)), steps=4)


@pytest.fixture
def calls(monkeypatch):
    """How often a parametrization was called."""
    seen = []
    forward = Orthogonal.forward
    monkeypatch.setattr(Orthogonal, "forward", lambda self, Z: (seen.append(1), forward(self, Z))[1])
    return seen


x = torch.linspace(-1, 1, 24).reshape(4, 6)


def proxy(net):
    return net[2].parametrizations.weight.original


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_second_pass_calls_no_parametrization(net, calls, mode):
    expected = net(x).detach()
    calls.clear()
    with oni.cached(net), mode():
        net(x)
        assert len(calls) == 1  # the first one computes the others, too
        assert_close(net(x), expected, rtol=0, atol=0)
        assert len(calls) == 1
    assert CACHE.scopes == ()
    net(x)
    assert len(calls) == 4


CHANGES = {
    "written in place": lambda net: proxy(net).copy_(torch.eye(5) + proxy(net)),
    "other memory": lambda net: setattr(proxy(net), "data", proxy(net).flip(0).clone()),
    "an optimizer": lambda net: step(net),
    "another parameter": lambda net: setattr(
        net[2].parametrizations.weight, "original", nn.Parameter(proxy(net).flip(1).clone())
    ),
    "loaded": lambda net: net.load_state_dict({key: value.flip(0) for key, value in net.state_dict().items()}),
    "assigned": lambda net: net.load_state_dict(
        {key: value.flip(0) for key, value in net.state_dict().items()}, assign=True
    ),
    "another parametrization": lambda net: parametrize.register_parametrization(net[2], "weight", nn.Tanh()),
    "set": lambda net: setattr(net[2], "weight", torch.eye(5)),
    "float64 and back": lambda net: net.double().float(),
}


def step(net):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, fused=True)
    for parameter in net.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_seen(net, change):
    with oni.cached(net), torch.no_grad():
        net(x)
        net(x)
        CHANGES[change](net)
        inside = net(x)
    with torch.no_grad():
        assert_close(net(x), inside, rtol=0, atol=0)


def test_retuning_is_seen():
    net = oni.convert(nn.Sequential(nn.Linear(6, 5)), sigma_min=0.9)
    with torch.no_grad():
        net[0].parametrizations.weight.original.mul_(torch.tensor([[1.0], [1], [1], [1], [1e-3]]))
    with oni.cached(net), torch.no_grad():
        before = net(x)
        assert oni.retune(net)
        inside = net(x)
        assert not torch.equal(inside, before)
    with torch.no_grad():
        assert_close(net(x), inside, rtol=0, atol=0)


def test_a_graph_is_made_where_it_is_wanted(net):
    with oni.cached(net):
        with torch.no_grad():
            net(x)
        net(x).sum().backward()
    assert proxy(net).grad.abs().max() > 0


def test_transforms_see_their_own_parameters(net):
    other = {name: value.flip(0) for name, value in net.named_parameters()}
    with torch.no_grad():
        expected = torch.func.functional_call(net, other, (x,))
        with oni.cached(net):
            net(x)
            assert_close(torch.func.functional_call(net, other, (x,)), expected, rtol=0, atol=0)
            stacked = {name: torch.stack([value, value.flip(0)]) for name, value in net.named_parameters()}
            both = torch.func.vmap(lambda values: torch.func.functional_call(net, values, (x,)))(stacked)
    # Batched products add in another order: some 20 of at most 6 numbers of order 1.
    assert_close(both[1], expected, rtol=0, atol=20 * 6 * torch.finfo(x.dtype).eps)


def test_a_copy_is_on_its_own(net):
    with oni.cached(net), torch.no_grad():
        before = net(x)
        twin = copy.deepcopy(net)
        proxy(twin).copy_(torch.eye(5))
        assert not torch.equal(twin(x), before)
        assert_close(net(x), before, rtol=0, atol=0)
    assert CACHE.scopes == ()


def test_reading_a_weight_outside_a_forward_pass_gives_a_copy(net):
    with oni.cached(net), torch.no_grad():
        before = net(x)
        net(x)
        net[2].weight.zero_()
        assert_close(net(x), before, rtol=0, atol=0)


def test_hooks_of_a_parametrization_are_called(net):
    seen = []
    net[2].parametrizations.weight[0].register_forward_hook(lambda *_: seen.append(1))
    with oni.cached(net), torch.no_grad():
        for _ in range(3):
            net(x)
    assert len(seen) == 3


def test_other_threads_have_it_too(net):
    expected = net(x).detach()
    results = []

    def evaluate():
        with torch.no_grad():
            results.extend(net(x) for _ in range(20))

    with oni.cached(net):
        threads = [threading.Thread(target=evaluate) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 60
    for result in results:
        assert_close(result, expected, rtol=0, atol=0)
    assert CACHE.scopes == ()
