"""Where something keeps the results of operations, as selective checkpointing does, nothing writes to them."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import oni
from oni.newton.batched import orthogonalize_each
from oni.newton.bounding import BOUNDS
from oni.newton.schedule import SCHEDULES


class Keeping(TorchDispatchMode):
    """Keeps every result, with a copy of its values."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.kept += [(tensor, tensor.clone()) for tensor in tree_leaves(result)]
        return result


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5), (2, 4, 6)], ids=str)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 6, 20])
@pytest.mark.parametrize("grad", [False, True])
def test_nothing_that_is_kept_changes(shape, bound, schedule, steps, grad):
    Z = torch.randn(shape, requires_grad=grad)
    options = {"bound": bound, "schedule": schedule, "center": True}
    expected = oni.orthogonalize(Z, steps, **options)
    with Keeping() as keeping:
        W = oni.orthogonalize(Z, steps, **options)
        both = orthogonalize_each([Z, Z], steps, **options)
    assert len(keeping.kept) > 4
    assert all(torch.equal(tensor, copy) for tensor, copy in keeping.kept)
    # The same operations on the same numbers, in place or not.
    assert torch.equal(W, expected)
    assert torch.equal(torch.stack(both), torch.stack(orthogonalize_each([Z, Z], steps, **options)))
