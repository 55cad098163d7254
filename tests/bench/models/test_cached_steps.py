"""How often weights are orthogonalised in a step: counted in matrix products, which no load on the machine changes."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import oni
from oni.bench.models.cases import evaluation_copies
from oni.bench.training import adversarial

PRODUCTS = {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::addmm_", "aten::baddbmm_"}


class CountingProducts(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function._schema.name in PRODUCTS
        return function(*args, **(kwargs or {}))


class Critic(nn.Module):
    """No product of its own: what is counted is the work on the weights."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(4, 4, 3)

    def forward(self, images):
        return self.second(self.first(images)).mean((1, 2, 3))


def count_products(net, call, *, cached=False):
    with CountingProducts() as counting, oni.cached(net) if cached else nullcontext():
        call(net)
    return counting.count


@pytest.mark.parametrize("steps", [2, 5])
def test_a_cached_step_computes_each_weight_once(steps):
    """A discriminator's loss is two forward passes: real images and fake ones."""
    net = oni.convert(Critic(), steps=steps)
    once = count_products(net, lambda net: net(torch.ones(1, 3, 6, 6)))
    assert once > 0
    loss = adversarial((3, 6, 6), 2, "cpu")
    assert count_products(net, loss) == 2 * once
    assert count_products(net, loss, cached=True) == once
    assert count_products(Critic(), loss) == 0


def test_evaluation_inside_the_cache_and_after_baking_computes_nothing():
    with evaluation_copies(Critic()) as nets:
        images = torch.ones(1, 3, 6, 6)
        counts = {}
        for name, net in nets.items():
            net(images)
            counts[name] = count_products(net, lambda net: net(images))
    assert counts["plain"] == counts["oni T=5 cached"] == counts["oni T=5 baked"] == 0
    assert counts["oni T=5"] > 0
    assert counts["authors T=5"] > counts["oni T=5"]
