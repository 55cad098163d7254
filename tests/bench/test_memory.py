import pytest
import torch

import oni
from oni.bench.memory import peak_memory

FLOAT = 4


def test_a_known_answer():
    def call():
        a = torch.empty(1000)
        b = torch.empty(500)
        del a
        c = torch.empty(250)
        del b
        return c

    # a and b together; b and c are fewer.
    assert peak_memory(call) == 1500 * FLOAT


def test_what_was_there_before_does_not_count():
    Z = torch.ones(64, 64)
    assert peak_memory(lambda: None) == 0
    assert peak_memory(lambda: Z.neg_()) == 0
    assert peak_memory(lambda: Z.neg()) == 64 * 64 * FLOAT


def test_what_backward_keeps_counts():
    Z = torch.ones(1000, requires_grad=True)

    def call():
        squared = Z * Z
        cubed = squared * Z
        return torch.autograd.grad(cubed, Z, cubed.detach())

    # Both results of forward and, before backward adds any up, four products of gradients with factors.
    assert peak_memory(call) == 6 * 1000 * FLOAT


def test_memory_inside_operators_counts():
    Z = torch.randn(64, 64)
    # The decomposition's workspace is nobody's result.
    assert peak_memory(lambda: torch.linalg.svd(Z)) > (2 * 64 * 64 + 64) * FLOAT


@pytest.mark.parametrize("steps", [2, 5])
def test_the_same_every_time_and_no_leak(steps):
    Z = torch.randn(16, 40, requires_grad=True)
    G = torch.ones_like(Z)
    first, *rest = [peak_memory(lambda: torch.autograd.grad(oni.orthogonalize(Z, steps), Z, G)) for _ in range(4)]
    assert rest == [first] * 3
    # W, the centred matrix and the gradient at least.
    assert first >= 3 * Z.numel() * FLOAT


def test_the_profiler_is_silent(capfd):
    peak_memory(lambda: torch.ones(3))
    assert capfd.readouterr() == ("", "")
