"""Jacobians and the signal through a network, and that looking leaves no trace."""

import math
from itertools import pairwise

import pytest
import torch
from rounding import rounding
from torch import nn

import oni
from oni import diagnostics


def mlp(depth, width, first=None):
    sizes = [first or width] + [width] * depth
    return nn.Sequential(*(part for a, b in pairwise(sizes) for part in (nn.Linear(a, b, bias=False), nn.ReLU())))


class TestJacobian:
    def test_of_a_linear_layer_is_its_spectrum(self):
        for layer in (nn.Linear(5, 3), nn.Linear(3, 5)):
            found = diagnostics.jacobian_spectrum(layer, torch.randn(2, layer.in_features))
            assert found.sigma.shape == (2, 3)
            # float32 derivatives of a linear map are its weights.
            torch.testing.assert_close(found.sigma[1], oni.spectrum(layer.weight), **rounding(2, 5))
            assert found.smallest <= found.mean <= found.largest
            assert found.mean_square == pytest.approx(float(found.sigma.square().mean()))

    def test_against_autograd(self):
        model = nn.Sequential(
            nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Tanh(), nn.Flatten(), nn.Dropout(), nn.Linear(12, 4)
        )
        model = oni.convert(model, steps=3).double()
        x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
        found = diagnostics.jacobian_spectrum(model, x)
        assert torch.equal(found.sigma, diagnostics.jacobian_spectrum(model, x, chunk_size=1).sigma)
        assert model.training
        model.eval()
        for one, sigma in zip(x, found.sigma, strict=True):
            J = torch.autograd.functional.jacobian(lambda x: model(x[None])[0], one).reshape(4, -1)
            torch.testing.assert_close(sigma, torch.linalg.svdvals(J), atol=1e-12, rtol=0)

    @pytest.mark.parametrize(("scale", "expected"), [(1.0, 0.5), (2**0.5, 1.0)])
    def test_isometry_on_average(self, scale, expected):
        layer = nn.Sequential(
            oni.nn.Linear(16, 16, bias=False, steps=30, center=False, scale=scale), nn.ReLU()
        ).double()
        found = diagnostics.jacobian_spectrum(layer, torch.randn(4000, 16, dtype=torch.float64))
        # Half of 64,000 squares are scale^2, the others 0: a standard deviation of scale^2 / 2 / sqrt(64,000) = 0.002
        # scale^2; five of them. 30 steps leave a Gaussian 16 x 16 within 1e-3 of orthogonal.
        assert found.mean_square == pytest.approx(expected, abs=0.01 * scale**2)
        distance = torch.minimum(found.sigma, (found.sigma - scale).abs())
        assert float(distance.max()) < 1e-3

    def test_bad_input(self):
        with pytest.raises(ValueError, match=r"got \(3,\)"):
            diagnostics.jacobian_spectrum(nn.Linear(3, 3), torch.ones(3))
        with pytest.raises(TypeError, match="must return a tensor, got tuple"):
            diagnostics.jacobian_spectrum(nn.LSTM(3, 3), torch.ones(2, 3, 3))


class TestSignal:
    def test_definition(self):
        model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(inplace=True), nn.Linear(4, 3))
        x = torch.randn(7, 5)
        rows = diagnostics.signal(model, x, lambda y: y.square().sum())
        h = model[0](x).detach().requires_grad_()
        y = model[2](h.relu())
        (gradient,) = torch.autograd.grad(y.square().sum(), h)
        h, y = h.detach(), y.detach()
        assert [row.layer for row in rows] == ["0", "2"]
        assert [row.kind for row in rows] == ["Linear", "Linear"]
        # float32: two layers of sums of 5, backward again, then a mean of 35.
        close = {"rel": rounding(4, 35)["rtol"]}
        assert rows[0].input == pytest.approx(float(x.abs().mean()), **close)
        assert rows[0].output == pytest.approx(float(h.abs().sum()) / (7 * 4), **close)
        assert rows[0].gradient == pytest.approx(float(gradient.abs().sum()) / (7 * 4), **close)
        assert rows[1].input == pytest.approx(float(h.relu().abs().mean()), **close)
        assert rows[1].gradient == pytest.approx(float((2 * y).abs().mean()), **close)

    def test_gains_per_layer(self):
        def gains(**options):
            torch.manual_seed(1)
            model = oni.convert(mlp(8, 256, 784), steps=40, **options)
            rows = diagnostics.signal(model, torch.randn(256, 784), lambda y: (y * torch.randn_like(y)).sum())
            # Mean absolute values go as the square root of mean squares.
            return [(rows[-1].output / rows[1].output) ** (2 / 6), (rows[1].gradient / rows[-1].gradient) ** (2 / 6)]

        # Three per cent: widths of 256, and one draw of the weights.
        assert gains(center=False)[0] == pytest.approx(0.5, rel=0.03)
        assert gains(center=False, scale="relu") == pytest.approx([1, 1], rel=0.03)
        assert gains(center=True, scale="relu")[0] == pytest.approx(0.6817, rel=0.03)

    def test_no_trace(self):
        model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3))
        model(torch.randn(6, 5)).sum().backward()
        model[3].weight.grad = None
        model[2].eval()
        modes = [m.training for m in model.modules()]
        before = {k: v.clone() for k, v in model.state_dict().items()}
        gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        random = torch.random.get_rng_state()

        def check():
            assert [m.training for m in model.modules()] == modes
            assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
            for p, gradient in zip(model.parameters(), gradients, strict=True):
                assert (p.grad is None) if gradient is None else torch.equal(p.grad, gradient)
            assert torch.equal(torch.random.get_rng_state(), random)
            assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())

        x = torch.ones(6, 5)
        with torch.no_grad():
            assert len(diagnostics.signal(model, x, lambda y: y.sum())) == 2
        check()

        def broken(y):
            torch.rand(3)
            raise KeyError("mine")

        with pytest.raises(KeyError, match="mine"):
            diagnostics.signal(model, x, broken)
        check()
        with pytest.raises(RuntimeError):
            diagnostics.signal(model, torch.ones(6, 4), lambda y: y.sum())
        check()
        with pytest.raises(ValueError, match=r"scalar tensor, got \(6, 3\)"):
            diagnostics.signal(model, x, lambda y: y)
        check()
        diagnostics.jacobian_spectrum(model, x)
        check()
        diagnostics.cost(model, 5, 2)
        check()

    def test_layers_used_twice_unused_or_frozen(self):
        layer, lost = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.lost = layer, lost

            def forward(self, x, y):
                self.lost(y)
                return self.layer(self.layer(x).relu_())

        rows = diagnostics.signal(Model(), (torch.ones(2, 3), torch.ones(1, 3)), lambda y: y.sum())
        assert [row.layer for row in rows] == ["lost", "layer", "layer"]
        assert math.isnan(rows[0].gradient)
        assert rows[2].gradient == 1
