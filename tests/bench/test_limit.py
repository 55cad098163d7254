from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import oni
from oni.bench.limit import REPEATS, Products, count_products, operations, product_calls

MULTIPLICATIONS = {
    "aten::mm": 0,
    "aten::bmm": 0,
    "aten::addmm": 1,
    "aten::baddbmm": 1,
    "aten::addmm_": 1,
    "aten::baddbmm_": 1,
}
"""By name, the position of the left factor."""


class CountingProducts(TorchDispatchMode):
    """Counts matrix products by whether the long side takes part."""

    def __init__(self, long_side):
        super().__init__()
        self.long_side = long_side
        self.seen = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name
        if name in MULTIPLICATIONS:
            first = MULTIPLICATIONS[name]
            sides = {*args[first].shape[-2:], *args[first + 1].shape[-2:]}
            self.seen["long" if self.long_side in sides else "short"] += 1
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (3, 6, 10)])
@pytest.mark.parametrize("bound", ["frobenius", "compact", "trace", "trace2", "tight"])
@pytest.mark.parametrize("schedule", ["newton", "minimax", "minimax:0.005"])
# 12 steps run in two parts, 20 in float64.
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5, 7, 8, 12, 20])
def test_the_count_is_what_runs(shape, bound, schedule, steps):
    Z = torch.randn(shape, requires_grad=True)
    with CountingProducts(long_side=10) as forward:
        W = oni.orthogonalize(Z, steps, bound=bound, schedule=schedule)
    with CountingProducts(long_side=10) as backward:
        W.backward(torch.ones_like(W))
    seen = (forward.seen["short"], backward.seen["short"], forward.seen["long"], backward.seen["long"])
    assert count_products(steps, bound=bound, schedule=schedule) == seen


@pytest.mark.parametrize(("steps", "short"), [(2, (2, 2)), (3, (5, 7)), (5, (10, 14)), (7, (15, 21))])
def test_known_counts(steps, short):
    assert count_products(steps) == (*short, 2, 3)
    assert count_products(steps, bound="trace") == count_products(steps)
    assert count_products(steps, bound="trace2") == (short[0], short[1] + 1, 2, 3)
    assert count_products(steps, bound="tight") == (short[0] + 1, short[1] + 2, 2, 3)


def test_sums():
    count = Products(10, 14, 2, 3)
    assert (count.short, count.long) == (24, 5)


@pytest.mark.parametrize(("shape", "short", "long"), [((4, 9), 128, 288), ((9, 4), 128, 288), ((3, 4, 9), 384, 864)])
def test_operations(shape, short, long):
    assert operations(shape, "short") == short
    assert operations(shape, "long") == long


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (6, 6), (3, 6, 10)])
def test_bare_products(shape):
    for kind, call in product_calls(torch.randn(shape)).items():
        with CountingProducts(long_side=10) as counting:
            call()
        assert counting.seen == {"short" if shape == (6, 6) else kind: REPEATS[kind]}
