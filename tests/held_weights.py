"""What the tests of held weights share: a small network, its proxies, its gradients."""

import copy

import torch
from torch import nn

import oni

# A weight of 6 rows after at most 5 steps, then four layers on 6 features: each product of size n rounds by about
# sqrt(n) eps, and there are fewer than 50 in a row, so 50 * sqrt(6) * 1.2e-7 = 1.5e-5 of values below 10.
FLOAT32 = {"atol": 1.5e-4, "rtol": 1.5e-5}
# The same count in float64: 50 * sqrt(6) * 2.2e-16 = 3e-14, and gradients are sums of such.
FLOAT64 = {"atol": 1e-12, "rtol": 1e-12}


def mlp(depth=4, width=6):
    return nn.Sequential(*[module for _ in range(depth) for module in (nn.Linear(width, width), nn.Tanh())])


X = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def baked_output(model, x=X):
    """What a model gives with no help from any cache."""
    return oni.bake(copy.deepcopy(model))(x)


def proxy(layer):
    return layer.parametrizations.weight.original


def gradients(model):
    return [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        return self.first(x)
