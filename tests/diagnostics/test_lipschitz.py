import copy
import math

import pytest
import torch
import torch.nn.functional as F
from rounding import rounding
from torch import nn

import oni
from oni import diagnostics
from oni.diagnostics.lipschitz import KNOWN
from oni.nn import GroupSort


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


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        return x + self.inner(x)


class Averaged(nn.Module):
    def __init__(self, *branch):
        super().__init__()
        self.branch = nn.Sequential(*branch)

    def forward(self, x):
        return (x + self.branch(x)) / 2


class Shortcut(nn.Module):
    """What residual networks do between modules."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1)
        self.offset = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        short = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 0, 2))
        out = F.relu(self.conv(x) + short) - self.offset
        return -0.5 * out.view(out.shape[0], -1)


class Tokens(nn.Module):
    """Mixing on another axis, and sums."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(5, 5)

    def forward(self, x):
        x = self.mix(x.permute(0, 2, 1)).transpose(1, 2)
        return x.sum(1) / 5**0.5 + 2 * x.mT.mean(dim=-1)


class Does(nn.Module):
    """A module that does what it is given."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return self.what(x)


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
    "residual": (nn.Sequential(nn.Linear(4, 3), Residual(), nn.ReLU()), (4,)),
    "averages": (nn.Sequential(nn.Linear(6, 8), Averaged(nn.Linear(8, 8), GroupSort()), GroupSort(4)), (6,)),
    "shortcut": (Shortcut(), (2, 6, 6)),
    "tokens": (Tokens(), (5, 3)),
    "patches": (nn.Sequential(nn.Conv2d(2, 8, 3, stride=3), nn.Flatten(2), nn.Linear(4, 4)), (2, 6, 6)),
    "shapes": (Does(lambda x: x.unsqueeze(1).flatten(2).squeeze(1)[..., :3].contiguous().relu()), (2, 3)),
}


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_steeper(name):
    model, size = MODELS[name]
    bound = diagnostics.lipschitz_bound(model, size)
    assert largest_slope(model, size) <= float(bound)
    assert bound.value == bound.factors[-1].total
    if not any(factor.kind == "add" for factor in bound.factors):
        assert bound.value == pytest.approx(math.prod(factor.constant for factor in bound.factors), rel=1e-12)


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


def test_an_average_keeps_a_bound_of_1():
    turned = nn.Linear(8, 8, bias=False)
    nn.init.orthogonal_(turned.weight)
    bound = diagnostics.lipschitz_bound(Averaged(turned, GroupSort()).double(), 8)
    # But for the rounding that the bound of a float32 weight contains, and of the initialisation.
    assert 1 <= float(bound) <= 1 + 1e-6
    add, half = bound.factors[-2:]
    assert add == ("", "add", 1.0, pytest.approx(2, rel=1e-6))
    assert half == ("", "truediv", 0.5, pytest.approx(1, rel=1e-6))
    # Reached where the branch agrees with what it is added to.
    nn.init.eye_(turned.weight)
    slope = largest_slope(Averaged(turned, nn.ReLU()), (8,))
    assert slope == pytest.approx(float(diagnostics.lipschitz_bound(Averaged(turned, nn.ReLU()), 8)), rel=1e-6)


def test_sums_and_means_reach_their_constants():
    for model, constant in ((Does(lambda x: x.sum(2)), 3.0), (Does(lambda x: x.mean((1, 2))), 1 / 45**0.5)):
        assert float(diagnostics.lipschitz_bound(model, (5, 9))) == pytest.approx(constant, rel=1e-12)
        x = torch.ones(1, 5, 9, dtype=torch.float64)
        assert float(model(x).norm() / x.norm()) == pytest.approx(constant, rel=1e-12)


@pytest.mark.parametrize("layer", [nn.Conv2d(3, 8, 4, stride=4), nn.Conv2d(6, 4, 2, stride=2, groups=2)])
def test_patches_have_the_norm_of_their_reshaped_weight(layer):
    size = (layer.in_channels, 8, 8)
    R = layer.weight.detach().double().flatten(1).unflatten(0, (layer.groups, -1))
    exact = float(torch.linalg.svdvals(R).max())
    # The bound is proved, and so a little above: about 1e-11.
    assert exact < float(diagnostics.lipschitz_bound(layer, size)) < exact * (1 + 1e-9)
    assert diagnostics.operator_norm(layer, (8, 8), tolerance=1e-9).value == pytest.approx(exact, rel=1e-6)


def test_a_module_that_says_its_constant():
    class Own(nn.Module):
        def forward(self, x):
            return x.exp() if float(x.sum()) > 100 else torch.sin(3 * x)

        def lipschitz_constant(self, x):
            assert x.shape == (2, 7)
            return 3.0

    model = nn.Sequential(nn.Linear(4, 7), Own())
    assert diagnostics.lipschitz_bound(model, 4).factors[1][:3] == ("1", "Own", 3.0)
    assert float(diagnostics.lipschitz_bound(model, 4, constants={Own: 5.0})) == pytest.approx(
        5 / 3 * float(diagnostics.lipschitz_bound(model, 4))
    )


def test_an_overwritten_input():
    class Twice(nn.Module):
        def __init__(self, *, inplace):
            super().__init__()
            self.activation = nn.LeakyReLU(-3.0, inplace=inplace)

        def forward(self, x):
            return self.activation(x) + x

    assert float(diagnostics.lipschitz_bound(Twice(inplace=False), 4)) == 4
    # In place it is twice the activation, of constant 6.
    with pytest.raises(ValueError, match="activation: it overwrites an input that is used elsewhere; pass inplace="):
        diagnostics.lipschitz_bound(Twice(inplace=True), 4)
    view = Does(lambda x: inplace(x.flatten(1)) + x)
    inplace = view.inner = nn.ReLU(inplace=True)
    with pytest.raises(ValueError, match="inner: it overwrites an input"):
        diagnostics.lipschitz_bound(view, 4)
    # Not so where the tensor is used no more, under any name.
    chain = nn.Sequential(
        nn.Flatten(), nn.Unflatten(1, (2, 2)), nn.ReLU(inplace=True), nn.Dropout(), nn.ReLU(inplace=True)
    )
    assert float(diagnostics.lipschitz_bound(chain, 4)) == 1
    residual = Averaged(nn.Linear(4, 4), nn.ReLU(inplace=True))
    assert float(diagnostics.lipschitz_bound(residual, 4)) < 1.5


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda x: x * x, "inner: no Lipschitz constant is known for 'mul'"),
        (lambda x: x / x.norm(), "'norm'|norm does not keep the samples separate"),
        (lambda x: torch.exp(x), "'exp'"),
        (lambda x: x * x[0, 0, 0].item(), "getitem"),
        (lambda x: x.flatten(1) * x.flatten(1)[:, :1], "'mul'"),
        (lambda x: x + x[:, :1], "'add'"),
        (lambda x: x - x.mean(0), "'mean'|mean does not keep"),
        (lambda x: x.transpose(0, 1), "'transpose'|transpose does not keep"),
        (lambda x: x.permute(1, 0, 2), "'permute'|permute does not keep"),
        (lambda x: x.reshape(-1, 3), "reshape does not keep the samples separate"),
        (lambda x: x[:, [0, 0]], "'getitem'"),
        (lambda x: F.relu(x, inplace=True), "'relu'"),
        (lambda x: F.pad(x, (1, 1), value=1.0), "'pad'"),
        (lambda x: F.pad(x, (0, 0, 0, 0, 1, -1)), "'pad'"),
        (lambda x: torch.add(x, x, alpha=2), "'add'"),
        (lambda x: x.div(2, rounding_mode="floor"), "'div'"),
        (lambda x: x.sum(), "sum does not keep"),
        (lambda x: x.max(1).values, "max does not return a single tensor"),
        (lambda x: x.add_(1), "'add_'"),
        (lambda x: x if x.sum() > 0 else -x, "the forward of Sequential can't be followed: torch.fx can't trace it"),
    ],
)
def test_unknown_operations_are_named(what, words):
    model = nn.Sequential()
    model.inner = Does(what)
    with pytest.raises(ValueError, match=words):
        diagnostics.lipschitz_bound(model, (2, 3))


def test_unknown_modules_are_named():
    model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.Softmin(1)))
    with pytest.raises(ValueError, match=r"1\.0: the Lipschitz constant of Softmin is not known.*constants=\{'1\.0'"):
        diagnostics.lipschitz_bound(model, 4)
    with pytest.raises(ValueError, match="BatchNorm1d"):
        diagnostics.lipschitz_bound(nn.BatchNorm1d(4, track_running_stats=False), 4)
    with pytest.raises(ValueError, match="the model: the Lipschitz constant of Transformer"):
        diagnostics.lipschitz_bound(nn.TransformerEncoderLayer(4, 2), (3, 4))
    by_type = diagnostics.lipschitz_bound(model, 4, constants={nn.Softmin: 2.0})
    assert by_type == diagnostics.lipschitz_bound(model, 4, constants={"1.0": 2.0})
    assert by_type.factors[1] == ("1.0", "Softmin", 2.0, by_type.value)
    with pytest.raises(ValueError, match="input_size must be positive"):
        diagnostics.lipschitz_bound(model, (0,))


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        ({"1": -2.0}, r"constants\['1'\] must be a number of at least 0, got -2.0"),
        ({"1": float("nan")}, "got nan"),
        ({nn.Linear: "2"}, "got '2'"),
        ({"1.weight": 2.0}, r"constants\['1.weight'\] matches no module; the model has \['0', '1'\]"),
        ({nn.Softmin: 2.0}, "matches no module"),
    ],
)
def test_constants_that_would_be_wrong_or_ignored(constants, words):
    with pytest.raises(ValueError, match=words):
        diagnostics.lipschitz_bound(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), 4, constants=constants)


@pytest.mark.parametrize(
    ("pool", "size"),
    [
        (nn.MaxPool1d(3, 1), 8),
        (nn.MaxPool2d(3, 1), (8, 8)),
        (nn.AvgPool2d(3, 1, 1), (8, 8)),
        (nn.AdaptiveMaxPool2d(3), (8, 8)),
        (nn.AdaptiveAvgPool3d(3), (4, 4, 4)),
    ],
)
def test_pools_without_an_axis_of_channels(pool, size):
    # torch takes the batch for the channels; the axis of pixels where channels are expected would go uncounted.
    with pytest.raises(ValueError, match=rf"{type(pool).__name__} must get .* add the axis of channels"):
        diagnostics.lipschitz_bound(pool, size)


def test_a_subclass_with_a_forward_of_its_own_is_looked_into():
    class Odd(nn.ReLU):
        def forward(self, x):
            return 5 * x

    assert float(diagnostics.lipschitz_bound(Odd(), 4)) == 5
    patched = nn.Sequential(nn.ReLU())
    patched[0].forward = lambda x: 5 * x
    with pytest.raises(ValueError, match="0: the Lipschitz constant of ReLU is not known"):
        diagnostics.lipschitz_bound(patched, 4)


def test_tracing_leaves_nothing_in_the_model():
    model = Does(lambda x: x + torch.ones(4))
    before = dict(vars(model))
    diagnostics.lipschitz_bound(model, 4)
    assert vars(model) == before
    assert model.training
