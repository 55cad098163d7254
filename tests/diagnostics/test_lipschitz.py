import copy

import pytest
import torch
from rounding import rounding
from torch import nn

import oni
from oni import diagnostics
from oni.diagnostics.lipschitz import KNOWN


def largest_slope(model, size, tries=64):
    """The steepest that can be found: of random pairs, and of the Jacobian at random inputs."""
    model = copy.deepcopy(model).double().eval()
    x, near = torch.randn(2, tries, *size, dtype=torch.float64) * 2
    with torch.no_grad():
        apart = (model(x) - model(near)).flatten(1).norm(dim=1) / (x - near).flatten(1).norm(dim=1)
    return max(float(apart.max()), diagnostics.jacobian_spectrum(model, x[:8]).largest)


def running(norm):
    """With statistics that are not those of a new layer."""
    if norm.running_var is not None:
        norm.running_var.uniform_(0.2, 3)
        norm.running_mean.normal_()
    nn.init.normal_(norm.weight)
    return norm


MODELS = {
    "mlp": (nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(-2.0), nn.Linear(8, 3), nn.Sigmoid()), (6,)),
    "convolutions": (
        nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1),
            running(nn.BatchNorm2d(4)),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            nn.Sequential(nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=2), nn.SiLU(), nn.Dropout(0.5)),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 3),
        ),
        (2, 8, 8),
    ),
    "transposed": (
        nn.Sequential(nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1), nn.Tanh(), nn.AvgPool1d(3, 1)),
        (3, 5),
    ),
    "unpadded averages": (nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False)), (1, 4, 4)),
    "maxima that overlap": (nn.Sequential(nn.MaxPool1d(3, 1), nn.AdaptiveMaxPool1d(3)), (1, 6)),
    "statistics of its own": (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU()), (4,)),
    "groups": (
        nn.Sequential(nn.Conv1d(2, 4, 3), nn.GroupNorm(2, 4), nn.Mish(), running(nn.InstanceNorm1d(4, affine=True))),
        (2, 9),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_steeper(name):
    model, size = MODELS[name]
    bound = diagnostics.lipschitz_bound(model, size)
    assert largest_slope(model, size) <= float(bound)
    assert bound.value == pytest.approx(
        torch.tensor([f.constant for f in bound.factors]).double().prod().item(), rel=1e-6
    )


SMOOTH = [module for module, constant in KNOWN.items() if isinstance(constant, float) and "Drop" not in module.__name__]
SMOOTH = [m for m in SMOOTH if m.__module__.endswith("activation") and m is not nn.Softmax]


@pytest.mark.parametrize("kind", [*SMOOTH, nn.ELU, nn.RReLU, nn.PReLU, nn.LeakyReLU], ids=lambda kind: kind.__name__)
def test_activations_reach_their_constant(kind):
    activation = kind().double().eval()
    x = torch.linspace(-6, 6, 12001, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(activation(x).sum(), x)
    constant = float(diagnostics.lipschitz_bound(activation, 1))
    # Rounded up in the third digit or beyond; the grid's own error is far less.
    assert 0.995 * constant <= float(slopes.abs().max()) <= constant * (1 + 1e-12)


def test_gelu_by_tanh_and_softmax():
    x = torch.linspace(-6, 6, 12001, dtype=torch.float64, requires_grad=True)
    (slopes,) = torch.autograd.grad(nn.GELU("tanh")(x).sum(), x)
    assert 1.12 < float(slopes.max()) <= float(diagnostics.lipschitz_bound(nn.GELU("tanh"), 1))
    assert diagnostics.jacobian_spectrum(nn.Softmax(1), torch.tensor([[0.0, 0.0, -30.0]]).double()).largest <= 0.5 * (
        1 + 1e-12
    )


def test_an_orthogonal_mlp_is_1_lipschitz():
    model = oni.convert(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), steps=3)
    before = [p.clone() for p in model.parameters()]
    # sigma_max <= 1 but for float32's rounding: two layers, 7 products for 3 steps of each.
    assert 0 < float(diagnostics.lipschitz_bound(model, 6)) <= 1 + rounding(14, 8)["rtol"]
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return x + self.inner(x)


class Odd(nn.ReLU):
    def forward(self, x):
        return 5 * x


def test_unknown_modules_are_named():
    model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(Residual()))
    with pytest.raises(ValueError, match=r"1\.0: the Lipschitz constant of Residual is not known.*constants=\{'1\.0'"):
        diagnostics.lipschitz_bound(model, 4)
    with pytest.raises(ValueError, match="Odd"):
        diagnostics.lipschitz_bound(Odd(), 4)
    with pytest.raises(ValueError, match="BatchNorm1d"):
        diagnostics.lipschitz_bound(nn.BatchNorm1d(4, track_running_stats=False), 4)
    by_type = diagnostics.lipschitz_bound(model, 4, constants={Residual: 2.0})
    assert by_type == diagnostics.lipschitz_bound(model, 4, constants={"1.0": 2.0})
    assert by_type.factors[1] == ("1.0", "Residual", 2.0)
    with pytest.raises(ValueError, match="input_size must be positive"):
        diagnostics.lipschitz_bound(model, (0,))
