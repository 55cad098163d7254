"""Soft penalties: values by hand, gradients, which layers, and what can't be."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import oni
from oni.baselines import penalty


def by_hand(W, kind):
    W = W.double()
    rows = W @ W.T - torch.eye(len(W))
    columns = W.T @ W - torch.eye(W.shape[1])
    if kind == "soft":
        return rows.square().sum()
    if kind == "double":
        return rows.square().sum() + columns.square().sum()
    return torch.linalg.matrix_norm(columns if len(W) > W.shape[1] else rows, 2)


@pytest.mark.parametrize("shape", [(6, 4), (4, 4), (3, 9)], ids=str)
@pytest.mark.parametrize("kind", ["soft", "double"])
def test_value_and_gradient(kind, shape):
    layer = nn.Linear(*reversed(shape))
    found = penalty(layer, 0.1, kind=kind)
    # A sum of about a hundred float32 numbers.
    assert_close(found.double(), 0.1 * by_hand(layer.weight, kind), rtol=1e-5, atol=0)
    layer.double()
    assert torch.autograd.gradcheck(
        lambda W: torch.func.functional_call(Penalised(layer, kind), {"layer.weight": W}, ()), layer.weight
    )


class Penalised(nn.Module):
    def __init__(self, layer, kind):
        super().__init__()
        self.layer, self.kind = layer, kind

    def forward(self):
        return penalty(self, kind=self.kind)


def test_gradient_of_soft_is_what_the_docstring_says():
    layer = nn.Linear(9, 5).double()
    penalty(layer, 0.5).backward()
    W = layer.weight.detach()
    # float64 rounding.
    assert_close(layer.weight.grad, 4 * 0.5 * (W @ W.T - torch.eye(5)) @ W)


@pytest.mark.parametrize("shape", [(12, 5), (5, 12)], ids=str)
def test_srip_is_the_spectral_norm_from_below(shape):
    layer = nn.Linear(*reversed(shape)).double()
    nn.init.normal_(layer.weight)
    exact = float(by_hand(layer.weight.detach(), "srip"))
    found = [float(penalty(layer, 1.0, kind="srip").detach()) for _ in range(20)]
    # Above it only by rounding. Two iterations weigh eigenvalues by their fourth power in the square of the result, so
    # that a random start of 5 entries seldom gives less than half.
    assert max(found) <= exact * (1 + 1e-12)
    assert sum(found) / len(found) > 0.5 * exact
    penalty(layer, 1.0, kind="srip").backward()
    assert layer.weight.grad.isfinite().all()
    nn.init.orthogonal_(layer.weight)
    layer.weight.grad = None
    penalty(layer, 1.0, kind="srip").backward()
    assert layer.weight.grad.isfinite().all()


@pytest.mark.parametrize("kind", ["soft", "double", "srip"])
def test_it_makes_weights_orthogonal(kind):
    layer = nn.Linear(12, 12)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    before = float(oni.orthogonality(layer.weight.detach()).row)
    for _ in range(200):
        optimizer.zero_grad()
        penalty(layer, 1.0 if kind == "srip" else 0.5, kind=kind).backward()
        optimizer.step()
    # From about 3.1. The norm, unlike its square, has a kink at zero, around which steps of .05 go to and fro.
    assert float(oni.orthogonality(layer.weight.detach()).row) < (1.0 if kind == "srip" else 0.01) < before


def test_tall_weights_have_a_floor():
    layer = nn.Linear(4, 10)
    nn.init.orthogonal_(layer.weight)
    # Float32 rounding of 10 - 4.
    assert float(penalty(layer, 1.0).detach()) == pytest.approx(6.0, abs=1e-5)


def test_every_layer_as_output_filters():
    model = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2), nn.ConvTranspose2d(6, 4, 3), nn.BatchNorm2d(4), nn.Linear(7, 5))
    first, second = model[0].weight.flatten(1).chunk(2)
    parts = [first, second, model[1].weight.transpose(0, 1).flatten(1), model[3].weight]
    # Sums of float32 numbers.
    assert_close(penalty(model, 1.0).double(), sum(by_hand(part, "soft") for part in parts), rtol=1e-5, atol=0)
    assert_close(penalty(model, 1.0, only=nn.Linear).double(), by_hand(model[3].weight, "soft"), rtol=1e-5, atol=0)
    assert_close(penalty(model, 1.0, skip=["0", "1"]).double(), by_hand(model[3].weight, "soft"), rtol=1e-5, atol=0)


def test_attention_has_three_matrices():
    attention = nn.MultiheadAttention(8, 2)
    parts = [*attention.in_proj_weight.chunk(3), attention.out_proj.weight]
    assert_close(penalty(attention, 1.0).double(), sum(by_hand(part, "soft") for part in parts), rtol=1e-5, atol=0)


def test_effective_and_shared_weights():
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6))
    model[1].weight = model[0].weight
    alone = penalty(model, 1.0)
    # float32 sums.
    assert_close(alone.double(), by_hand(model[0].weight, "soft"), rtol=1e-5, atol=0)
    oni.convert(model, steps=20, center=False)
    converted = penalty(model, 1.0)
    assert float(converted.detach()) < 1e-8
    converted.backward()
    assert model[0].parametrizations.weight.original.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast(dtype):
    layer = nn.Linear(16, 8)
    exact = penalty(layer, 1.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(penalty(layer, 1.0), exact)
    found = penalty(layer.to(dtype), 1.0)
    assert found.dtype == torch.float32
    # The weights themselves are rounded to 8 bits at worst, each entry of the sum in its own direction.
    assert_close(found, exact, rtol=1e-2, atol=0)


@pytest.mark.parametrize(
    ("make", "arguments", "error", "words"),
    [
        (lambda: nn.Linear(4, 4), {"coefficient": -1.0}, ValueError, "coefficient must not be negative, got -1.0"),
        (lambda: nn.Linear(4, 4), {"coefficient": float("nan")}, ValueError, "coefficient must be a finite number"),
        (lambda: nn.Linear(4, 4), {"coefficient": "1e-4"}, ValueError, "coefficient must be .* got '1e-4'"),
        (lambda: nn.Linear(4, 4), {"kind": "hard"}, ValueError, "kind must be one of 'soft', 'double', 'srip', got"),
        (lambda: nn.Linear(4, 4), {"skip": "x"}, ValueError, "skip='x' matches no layer"),
        (lambda: nn.ReLU(), {}, ValueError, "model has no layer to penalise"),
        (lambda: nn.Linear(4, 4), {"skip": nn.Linear}, ValueError, "model has no layer to penalise"),
        (lambda: torch.ones(2, 2), {}, TypeError, "model must be a torch.nn.Module, got Tensor"),
    ],
)
def test_errors(make, arguments, error, words):
    with pytest.raises(error, match=words):
        penalty(make(), **arguments)
