import sys
import types

import pytest
import torch
from torch.testing import assert_close

import oni
from oni.bench import peers
from oni.bench.contender import join
from oni.newton.reference import authors, literal, oracle

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
    W = authors(Z, steps, center=center)
    assert_close(W, literal(Z, steps, center=center), atol=1e-10, rtol=0)
    expected = gradient(lambda Z: literal(Z, steps, center=center), Z, G)
    assert_close(gradient(lambda Z: authors(Z, steps, center=center), Z, G), expected, atol=1e-8, rtol=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", [peers.polar_factor, peers.by_eigenvectors])
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

    def __init__(self, columns, rows, *, bias, ortho_params=None):
        super().__init__(columns, rows, bias=bias)
        torch.nn.utils.parametrize.register_parametrization(self, "weight", PolarFactor())


class PolarFactor(torch.nn.Module):
    def forward(self, Z):
        return peers.polar_factor(Z, center=False)


def orthogonal(module, name, triv):
    return torch.nn.utils.parametrizations.orthogonal(module, name, triv)


PARAMS = {name: name for name in ("DEFAULT_ORTHO_PARAMS", "CHOLESKY_ORTHO_PARAMS", "QR_ORTHO_PARAMS")}
FAKES = {
    "geotorch": ({"geotorch": {"orthogonal": orthogonal}}, ["geotorch cayley"]),
    "orthogonium": (
        {"orthogonium": {}, "orthogonium.layers": {"OrthoLinear": Layer}, "orthogonium.reparametrizers": PARAMS},
        ["orthogonium", "orthogonium cholesky", "orthogonium qr"],
    ),
    "deel-torchlip": ({"deel": {}, "deel.torchlip": {"SpectralLinear": Layer}}, ["torchlip bjorck_norm"]),
}


@pytest.fixture
def install(monkeypatch):
    """Put a library of this name in place, with as much of it as is used."""

    def install(library):
        for name, contents in FAKES[library][0].items():
            module = types.ModuleType(name)
            vars(module).update(contents)
            monkeypatch.setitem(sys.modules, name, module)
            parent, _, child = name.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)
        monkeypatch.setattr(peers, "find_version", lambda asked: "1" if asked == library else None)

    return install


@pytest.mark.parametrize("shape", [(6, 6), (4, 6), (6, 4), (3, 4, 6), (3, 6, 4)], ids=str)
@pytest.mark.parametrize("library", FAKES)
def test_libraries_where_they_are_installed(install, library, shape):
    names = FAKES[library][1]
    assert not {contender.name for contender in others()} & {*names}
    install(library)
    contenders = peers.list_peers(center=True)[-len(names) :]
    assert [contender.name for contender in contenders] == names
    Z, G = torch.randn(2, *shape)
    for contender in contenders:
        Ws, gradients = contender.prepare(Z, G).run()
        assert sum(gradient.numel() for gradient in gradients) == Z.numel()
        W = join(Ws)
        assert W.shape == Z.shape
        delta = oni.orthogonality(W)
        # As above, of at most 6 x 6.
        assert min(delta.row.max(), delta.column.max()) < EPS * 6**0.5 * 10 * 6


def test_orthogonium_s_cholesky_gets_the_short_side_first(install, monkeypatch):
    """It works on the rows, whatever the shape: a tall weight would have no full rank."""
    install("orthogonium")
    seen = []

    class Seen(Layer):
        def __init__(self, columns, rows, **options):
            super().__init__(columns, rows, **options)
            seen.append((rows, columns, options))

    monkeypatch.setattr(sys.modules["orthogonium.layers"], "OrthoLinear", Seen)
    cholesky = next(peer for peer in peers.list_peers(center=False) if peer.name == "orthogonium cholesky")
    cholesky.prepare(*torch.randn(2, 6, 4))
    assert seen == [(4, 6, {"bias": False, "ortho_params": "CHOLESKY_ORTHO_PARAMS"})]


def others():
    """Who runs where none of these libraries is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "find_version", lambda asked: None)
        return peers.list_peers(center=True)


WORDS = {
    "cholesky": "not polar, needs full rank",
    "eigh": "polar, needs full rank",
    "svd": "polar, needs full rank",
    "torch cayley": "not polar",
    "torch matrix_exp": "not polar",
    "torch householder": "not polar",
}


@pytest.mark.parametrize("contender", others(), ids=lambda contender: contender.name)
def test_each_gives_what_it_says(contender):
    assert str(contender.gives) == WORDS[contender.name]
    Z, G = torch.randn(2, 6, 9, generator=torch.Generator().manual_seed(0))
    (W,), _ = contender.prepare(Z, G).run()
    polar = peers.polar_factor(Z, center=True)
    # Some 10 products and a decomposition of a matrix whose condition number, below 10, may enter squared. What is
    # not the polar factor is not near it: two random orthonormal sets of 6 rows differ by about sqrt 12.
    assert ((W - polar).norm() < EPS * 9**0.5 * 10 * 100) == contender.gives.polar
    assert contender.gives.polar or (W - polar).norm() > 0.1
