import itertools

import pytest
import torch
from torch import nn

import oni
from oni.nn import GroupSort


def by_definition(x, group_size, dim):
    """Each group of neighbours on an axis, sorted one by one."""
    channels = x.movedim(dim, -1)
    out = torch.empty_like(channels)
    for place in itertools.product(*map(range, channels.shape[:-1])):
        row = channels[place].tolist()
        out[place] = torch.tensor(
            [value for start in range(0, len(row), group_size) for value in sorted(row[start : start + group_size])]
        )
    return out.movedim(-1, dim)


@pytest.mark.parametrize("group_size", [2, 3, 6])
@pytest.mark.parametrize("dim", [1, -1, -2, 0])
def test_the_definition(group_size, dim):
    x = torch.randn(6, 12, 6)
    y = GroupSort(group_size, dim)(x)
    assert torch.equal(y, by_definition(x, group_size, dim))
    assert not torch.equal(y, x)


@pytest.mark.parametrize("group_size", [2, 4])
@pytest.mark.parametrize("ties", [False, True])
def test_its_jacobian_is_a_permutation(group_size, ties):
    x = torch.randn(8, dtype=torch.float64)
    if ties:
        x = x.round().clamp(0, 1)  # many are equal
    J = torch.autograd.functional.jacobian(lambda v: GroupSort(group_size)(v[None])[0], x)
    assert ((J == 0) | (J == 1)).all()
    assert torch.equal(J.sum(0), torch.ones(8).double())
    assert torch.equal(J.sum(1), torch.ones(8).double())


def test_it_keeps_lengths_and_brings_inputs_no_further_apart():
    x, near = torch.randn(2, 200, 16, 5, dtype=torch.float64)
    activation = GroupSort(4)
    before = (x - near).flatten(1).norm(dim=1)
    after = (activation(x) - activation(near)).flatten(1).norm(dim=1)
    # Rounding of norms of 80 numbers.
    assert (after <= before * (1 + 1e-13)).all()
    assert (after < 0.99 * before).any()
    torch.testing.assert_close(activation(x).flatten(1).norm(dim=1), x.flatten(1).norm(dim=1), rtol=1e-13, atol=0)


def test_gradients():
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    for activation in (GroupSort(), GroupSort(4)):
        assert torch.autograd.gradcheck(activation, x)
        (gradient,) = torch.autograd.grad(activation(x).square().sum() / 2, x)
        # |x|^2 / 2 stays what it is, so its gradient is x.
        torch.testing.assert_close(gradient, x)


def test_in_a_converted_model():
    model = oni.convert(nn.Sequential(nn.Conv2d(3, 8, 2, stride=2), GroupSort(), nn.Flatten(), nn.Linear(32, 4)))
    assert model(torch.randn(2, 3, 4, 4)).shape == (2, 4)
    assert list(oni.bake(model).state_dict()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    assert str(GroupSort(4, -1)) == "GroupSort(group_size=4, dim=-1)"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: GroupSort(1), ValueError, "group_size must be a whole number of at least 2, got 1"),
        (lambda: GroupSort(2.0), ValueError, "group_size must be a whole number of at least 2, got 2.0"),
        (lambda: GroupSort(True), ValueError, "group_size must be a whole number of at least 2, got True"),
        (lambda: GroupSort(2, "channels"), TypeError, "dim must be a whole number, the axis of the channels, got 'ch"),
        (lambda: GroupSort()(torch.zeros(2, 5)), ValueError, "group_size must divide the 5 channels on axis 1, got 2"),
        (lambda: GroupSort(dim=2)(torch.zeros(2, 4)), ValueError, r"got dim=2 for shape \(2, 4\)"),
        (
            lambda: oni.diagnostics.lipschitz_bound(GroupSort(dim=0), 4),
            ValueError,
            "dim=0 is the batch axis; pass the axis of the channels",
        ),
        (lambda: GroupSort()(torch.zeros(4)), ValueError, r"got dim=1 for shape \(4,\)"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
