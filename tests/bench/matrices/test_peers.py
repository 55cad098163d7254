import sys
import types

import pytest
import torch
from torch.testing import assert_close

import oni
from oni.bench.matrices import peers
from oni.bench.matrices.cases import CASES, draw_inputs, list_contenders
from oni.newton.reference import literal, oracle

f64 = torch.float64
EPS = torch.finfo(torch.float32).eps
SHAPES = [(6, 10), (7, 7), (10, 6), (3, 6, 10)]


def gradient(function, Z, G):
    leaf = Z.clone().requires_grad_()
    return torch.autograd.grad(function(leaf), leaf, G)[0]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("steps", [2, 5])
def test_the_authors_form_is_the_paper_s(shape, center, steps):
    # Large, so that the 1e-5 they add to the Gram matrix is small, 1e-5 / 1e6; the gradient is ten times as steep and
    # more at the smallest singular values. Rounding in float64 is far below both.
    Z, G = 1e3 * torch.randn(2, *shape, dtype=f64)
    W = peers.authors(Z, steps, center=center)
    assert_close(W, literal(Z, steps, center=center), atol=1e-10, rtol=0)
    expected = gradient(lambda Z: literal(Z, steps, center=center), Z, G)
    assert_close(gradient(lambda Z: peers.authors(Z, steps, center=center), Z, G), expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", [peers.polar_factor, peers.olm])
def test_decompositions_lead_where_many_steps_do(shape, method):
    Z, G = torch.randn(2, *shape, dtype=f64)
    center = shape[-2] < shape[-1]
    # Float64 rounding, 2e-16, times conditions of some hundred, which the Gram matrix squares and gradients once more.
    assert_close(method(Z, center=center), oracle(Z, 40, center=center), atol=1e-9, rtol=0)
    expected = gradient(lambda Z: oni.orthogonalize(Z, 30, center=center), Z, G)
    assert_close(gradient(lambda Z: method(Z, center=center), Z, G), expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", peers.MAPS)
def test_torch_s_own(shape, name):
    Z, G = torch.randn(2, *shape)
    (W,), (dZ,) = peers.torch_orthogonal(Z, G, name).run()
    delta = oni.orthogonality(W)
    # Some 10 products of at most 10 x 10 matrices with entries up to 1, then the norm of as many entries.
    assert min(delta.row.max(), delta.column.max()) < EPS * 10**0.5 * 10 * 10
    assert dZ.abs().max() > 0


class Layer(torch.nn.Linear):
    """A dense layer with a parametrized weight, as libraries bring them."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        torch.nn.utils.parametrize.register_parametrization(self, "weight", PolarFactor())


class PolarFactor(torch.nn.Module):
    def forward(self, Z):
        return peers.polar_factor(Z, center=False)


FAKES = {
    "geotorch": (
        "geotorch",
        {"orthogonal": lambda module, name: torch.nn.utils.parametrizations.orthogonal(module, name)},
    ),
    "orthogonium": ("orthogonium.layers", {"OrthoLinear": Layer}),
    "deel-torchlip": ("deel.torchlip", {"SpectralLinear": Layer}),
}


@pytest.mark.parametrize("shape", [(6, 6), (4, 6), (3, 4, 6)], ids=str)
@pytest.mark.parametrize("name", FAKES)
def test_libraries_where_they_are_installed(monkeypatch, name, shape):
    assert not {contender.name for contender in others()} & FAKES.keys()
    module, contents = FAKES[name]
    for part in (module.partition(".")[0], module):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    vars(sys.modules[module]).update(contents)
    monkeypatch.setattr(peers, "find_version", lambda asked: "1" if asked == name else None)
    *_, peer = peers.list_peers(center=True, against="oni T=5")
    assert peer.name == name
    Z, G = torch.randn(2, *shape)
    Ws, gradients = peer.prepare(Z, G).run()
    assert sum(W.numel() for W in Ws) == sum(gradient.numel() for gradient in gradients) == Z.numel()
    # As above, of at most 6 x 6.
    assert all(oni.orthogonality(W).row.max() < EPS * 6**0.5 * 10 * 6 for W in Ws)


def others():
    """Who runs where none of these libraries is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "find_version", lambda asked: None)
        return peers.list_peers(center=True, against="oni T=5")


def by_name(case):
    return {contender.name: contender for contender in list_contenders(case, draw_inputs(case.shape)[0])}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_who_runs(case):
    rows = by_name(case)
    assert len(rows) == len(list_contenders(case, draw_inputs(case.shape)[0]))
    tall, batch = case.shape[-2] > case.shape[-1], len(case.shape) > 2
    assert ("literal T=2" in rows, "literal T=5" in rows) == (not tall, True)
    assert ("36 single calls T=5" in rows) == batch
    wide = case.name in ("256x784", "256x2304", "512x4608")
    assert ("oni tight T=3" in rows) == wide
    assert any(name.startswith("oni minimax") for name in rows) == wide
    assert {"svd", "eigh (OLM)", *(f"torch {name}" for name in peers.MAPS)} <= rows.keys()
    before = []
    for name, contender in rows.items():
        # A contender is compared with one that has been tried before it.
        assert contender.against in ("", *before)
        before.append(name)


def test_the_schedules_certify_the_same():
    case = CASES[1]
    start = oni.spectrum(oni.orthogonalize(draw_inputs(case.shape)[0], 0))
    interval = (float(start.min()), float(start.max()))
    (minimax,) = (contender for name, contender in by_name(case).items() if "minimax" in name)
    newton = by_name(case)[minimax.against]
    for contender, schedule in ((newton, "newton"), (minimax, "minimax")):
        steps = contender.steps
        assert oni.certified_range(interval, steps, schedule=schedule)[0] >= 0.9
        assert oni.certified_range(interval, steps - 1, schedule=schedule)[0] < 0.9
    assert minimax.steps < newton.steps


def test_inputs_are_fixed():
    for first, second in zip(draw_inputs((4, 5)), draw_inputs((4, 5)), strict=True):
        assert torch.equal(first, second)
    Z, G = draw_inputs((4, 5))
    assert not torch.equal(Z, G)
