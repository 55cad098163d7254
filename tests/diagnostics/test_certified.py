"""Certified radii: against attacks, against exact distances, and against the rounding of float32."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import oni
from oni.diagnostics import certified_radius, lipschitz_bound
from oni.diagnostics.certified import allowed_error, bake_in_float64, bound_differences
from oni.diagnostics.follow import Call, Follower, Signal, Step, norms
from oni.diagnostics.functions import FUNCTIONS
from oni.diagnostics.lipschitz import choose_constants, constant_of
from oni.diagnostics.rounding import ROUNDING, rounding_of
from oni.nn import GroupSort
from oni.recipes.attack import attack
from oni.recipes.data.fashion_mnist import load
from oni.recipes.networks.mlp import MLP
from oni.recipes.networks.patch_mix import PatchMix


def train(network, images, labels, epochs):
    """A minute of care that a certificate needs: a loss that asks for margins (temperature 8)."""
    optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(250):
            optimizer.zero_grad()
            F.cross_entropy(8 * network(images[batch]), labels[batch]).backward()
            optimizer.step()
    return network.eval()


NETWORKS = {
    "mlp": (lambda: MLP(3, width=64, activation="groupsort"), 3),
    "patch-mix": (lambda: PatchMix(32, 1, patch=7, size=28, channels=1), 3),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_attacks_fail_inside_and_succeed_outside(name):
    build, epochs = NETWORKS[name]
    data = load("sample")
    network = oni.convert(build(), steps=3)
    train(network, data.train_images[:, None] / 255, data.train_labels.long(), epochs)
    images, labels = data.test_images[:400, None] / 255, data.test_labels[:400].long()
    radii = certified_radius(network, images, labels)
    right = network(images).argmax(1) == labels
    assert (radii[~right] == 0).all()
    chosen = radii.nonzero()[:200, 0]
    assert len(chosen) == 200
    images, labels, radii = images[chosen], labels[chosen], radii[chosen]
    # A margin that means something: a visible part of the 9 or so that images are apart.
    assert float(radii.median()) > 0.1
    oni.bake(network)
    assert not attack(network, images, labels, radii).fooled.any()
    # Outside it has many: the attack works.
    found = attack(network, images, labels, 3 * radii, restarts=1)
    assert found.fooled.sum() > 20
    assert torch.equal(network(found.images).argmax(1) != labels, found.fooled)
    assert (norms(found.images.double() - images.double()) <= 3 * radii).all()


def linear_model(classes=4, features=6):
    model = nn.Sequential(nn.Flatten(), nn.Linear(features, classes)).double().eval()
    x = torch.randn(50, features, dtype=torch.float64)
    return model, x, model(x).argmax(1)


def test_a_linear_model_has_its_exact_distance():
    model, x, labels = linear_model()
    W, logits = model[1].weight.detach(), model(x).detach()
    distance = torch.full((50,), math.inf, dtype=torch.float64)
    for i, y in enumerate(labels):
        for j in set(range(4)) - {int(y)}:
            distance[i] = min(distance[i], (logits[i, y] - logits[i, j]) / (W[y] - W[j]).norm())
    radii = certified_radius(model, x, labels)
    assert (radii < distance).all()
    # What float64 rounds, and the slack for it.
    torch.testing.assert_close(radii, distance, rtol=1e-7, atol=1e-12)
    general = certified_radius(nn.Sequential(model, nn.Identity()), x, labels)
    margins = logits.sort(1).values[:, -1] - logits.sort(1).values[:, -2]
    torch.testing.assert_close(general, margins / (2**0.5 * float(lipschitz_bound(model, 6))), rtol=1e-7, atol=1e-12)
    assert (general < radii).all()
    assert not certified_radius(model, x, (labels + 1) % 4).any()


def test_equal_rows_never_part():
    model, x, _ = linear_model(classes=2)
    with torch.no_grad():
        model[1].weight[1] = model[1].weight[0]
        model[1].bias.copy_(torch.tensor([1.0, 0.0]))
    # The difference of the logits does not depend on x, but rounding grows with it.
    assert (certified_radius(model, x, torch.zeros(50).long()) > 1e10).all()


def test_a_class_that_rounding_decides():
    model = nn.Sequential(nn.Linear(1, 2)).eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0], [0.0]]))
        model[0].bias.fill_(1e4)
    x, label = torch.tensor([[1e-4]]), torch.tensor([0])
    # In float32 the logits are equal: 1e-4 is lost beside 1e4.
    assert model(x)[0, 0] == model(x)[0, 1]
    assert certified_radius(model, x, label) == 0
    assert certified_radius(model.double(), x.double(), label) == pytest.approx(1e-4, rel=1e-3)


def deep_model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 4, stride=4),
        GroupSort(),
        nn.Conv2d(16, 16, 3, padding=1, groups=2),
        nn.BatchNorm2d(16),
        nn.LeakyReLU(0.3),
        nn.AvgPool2d(3, 1, 1),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(64, 5),
    )


def follow(model, x):
    """The signal behind a certificate."""
    has_constant, _ = choose_constants({})

    def of_module(name, module, call):
        return Step(constant_of(module, call.signals[0].value), *rounding_of(module, call))

    with torch.no_grad():
        return Follower(bake_in_float64(model), has_constant, of_module, FUNCTIONS, torch.float32)(x.double())


@pytest.mark.parametrize("name", ["deep", "mlp", "patch-mix"])
def test_rounding_is_within_its_bound_everywhere_in_the_ball(name):
    models = {
        "deep": (deep_model, 3, 16),
        "mlp": (lambda: oni.convert(MLP(4, inputs=768, activation="groupsort"), steps=5), 3, 16),
        "patch-mix": (lambda: oni.convert(PatchMix(size=16), steps=5), 3, 16),
    }
    build, channels, size = models[name]
    model = build()
    x = torch.rand(20, channels, size, size)
    for _ in range(2):
        model(4 * x)  # moves the statistics of batch normalisation
    model.eval()
    signal, exact = follow(model, x), bake_in_float64(model)
    for distance in (0.0, 1.0, 100.0):
        away = torch.randn_like(x)
        moved = x + distance * away / norms(away).float().view(-1, 1, 1, 1)
        with torch.no_grad():
            apart = norms(model(moved).double() - exact(moved.double()))
        bound = allowed_error(signal, torch.float32) + signal.drift * norms(moved - x)
        assert (apart <= bound).all()
        # Real rounding is far from the worst, so the growth of the bound is held against the bound at x' itself.
        there = follow(model, moved)
        assert (there.error <= bound * (1 + 1e-9)).all()
        labels = torch.arange(20) % signal.value.shape[1]
        errors, slopes = bound_differences(signal, labels, torch.float32)
        layer, features = signal.head
        apart = torch.cdist(layer.weight, layer.weight)[labels].detach()
        errors = errors + (slopes - apart * features.slope) * norms(moved - x)[:, None]
        assert (bound_differences(there, labels, torch.float32)[0] <= errors * (1 + 1e-9)).all()
        with torch.no_grad():
            off = model(moved).double() - exact(moved.double())
        assert ((off.gather(1, labels[:, None]) - off).abs() <= errors).all()
        assert (errors <= 2**0.5 * bound[:, None] * (1 + 1e-8)).all()
        # Rounding is random, the bound is for the worst, so it is far above; yet no more than this for sums so short.
        assert (bound < 2e-2 * (1 + distance)).all()


@pytest.mark.parametrize("kind", ROUNDING, ids=lambda kind: kind.__name__)
def test_modules_round_no_more_than_said(kind):
    arguments = {
        nn.Linear: (32, 16),
        nn.Unflatten: (1, (2, -1)),
        nn.PixelShuffle: (2,),
        nn.PixelUnshuffle: (2,),
        nn.ChannelShuffle: (2,),
        nn.LeakyReLU: (0.3,),
        nn.PReLU: (1, 0.3),
    }
    name = kind.__name__
    if kind in arguments:
        given, dimensions = arguments[kind], 2
    else:
        dimensions = int(name[-2]) if name[-2].isdigit() else 2
        given = (32, 16, 3) if "Conv" in name else (32,) if "BatchNorm" in name else (2,) if "Pool" in name else ()
        given = (1,) if "ZeroPad" in name else given
    module = kind(*given).eval()
    if "BatchNorm" in name:
        nn.init.normal_(module.weight)
        module.running_mean.normal_()
        module.running_var.uniform_(0.1, 3)
    x = torch.randn(4, 32, *dimensions * [32 if kind is nn.Linear else 6])
    twin = copy.deepcopy(module).double()
    with torch.no_grad():
        exact = twin(x.double())
        call = Call((Signal(x.double(), 1.0, torch.zeros(4).double()),), {}, exact, torch.float32)
        relative, absolute = rounding_of(twin, call)
        apart = norms(module(x).double() - exact)
    assert (apart <= relative * norms(x) + absolute).all()
    assert relative == absolute == 0 or 0 < relative < 1e-3


class Does(nn.Module):
    def __init__(self, what):
        super().__init__()
        self.what = what

    def forward(self, x):
        return self.what(x)


OFFSET = torch.randn(6)


@pytest.mark.parametrize(
    ("what", "rounds"),
    [
        (lambda x: x.sum(1), True),
        (lambda x: x.mean((1, 2)), True),
        (lambda x: x / 3, True),
        (lambda x: 0.1 * x, True),
        (lambda x: x + 0.1, True),
        (lambda x: x - OFFSET, True),
        (lambda x: x + x / 3, True),
        (lambda x: x / 4, False),
        (lambda x: -x.relu().transpose(1, 2), False),
    ],
)
def test_functions_round_no_more_than_said(what, rounds):
    x = torch.randn(50, 5, 6)
    signal = follow(Does(what), x)
    apart = norms(what(x).double() - what(x.double()))
    assert (apart <= signal.error * (1 + 1e-9)).all()
    assert bool((apart > 0).any()) == rounds
    # Some ten roundings of numbers near 1, or no more than underflow.
    assert (signal.error < (1e-4 if rounds else 1e-36)).all()


def test_the_worst_order_of_a_sum_reaches_the_bound():
    """Half of gamma can happen: 1 + 2^-24 + 2^-24 + ... from left to right stays 1 in float32."""
    n = 256
    x = torch.full((1, n), 2.0**-24)
    x[0, 0] = 1
    layer = nn.Linear(n, 1, bias=False).double()
    nn.init.ones_(layer.weight)
    call = Call((Signal(x.double(), 1.0, torch.zeros(1).double()),), {}, layer(x.double()), torch.float32)
    relative, absolute = rounding_of(layer, call)
    computed = torch.zeros(())
    for value in x[0]:
        computed = computed + value
    lost = abs(float(computed) - float(x.double().sum()))
    # The norm of a row of ones is 16, though here one entry alone is large.
    assert relative * float(norms(x)) / 20 < lost <= relative * float(norms(x)) + absolute


METHODS = {
    "oni": lambda layer: oni.orthogonal(layer, steps=3),
    "learned scale": lambda layer: oni.orthogonal(layer, steps=3, scale="relu", learn_scale=True),
    "spectral norm": parametrizations.spectral_norm,
    "cayley": lambda layer: parametrizations.orthogonal(layer, orthogonal_map="cayley"),
    "weight norm": parametrizations.weight_norm,
}


@pytest.mark.parametrize("method", METHODS)
def test_of_the_weights_that_a_parametrization_gives(method):
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), GroupSort(), nn.Linear(8, 3))
    for index in (1, 3):
        METHODS[method](model[index])
    model.eval()
    x = torch.randn(20, 12)
    labels = model(x).argmax(1)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), GroupSort(), nn.Linear(8, 3)).eval()
    with torch.no_grad():
        for index in (1, 3):
            plain[index].weight.copy_(model[index].weight)
            plain[index].bias.copy_(model[index].bias)
    state, hooks = copy.deepcopy(model.state_dict()), copy.copy(model._forward_pre_hooks)
    random = torch.get_rng_state()
    radii = certified_radius(model, x, labels)
    # The same weights, but they may lie otherwise in memory, and be summed in another order in float64.
    torch.testing.assert_close(radii, certified_radius(plain, x, labels), rtol=1e-10, atol=1e-14)
    assert (radii > 0).any()
    assert torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert model._forward_pre_hooks == hooks
    assert not model.training
    assert torch.equal(model(x).argmax(1), labels)
    # The copy's class was changed, the model's was not.
    assert type(model[1]).__name__ == "ParametrizedLinear"


def test_images_in_parts():
    model, _, _ = linear_model()
    x = torch.randn(600, 6, dtype=torch.float64)
    labels = torch.randint(4, (600,))
    radii = certified_radius(model, x, labels)
    assert radii.shape == (600,)
    assert radii.dtype == torch.float64
    for start in (0, 256, 550):
        part = slice(start, start + 50)
        # Products of other sizes may be summed in another order.
        torch.testing.assert_close(radii[part], certified_radius(model, x[part], labels[part]), rtol=1e-6, atol=1e-12)
    # Whole numbers of any kind are labels.
    assert torch.equal(radii, certified_radius(model, x, labels.to(torch.uint8)))


class Declared(nn.Module):
    def forward(self, x):
        return x / 3 if bool((x > 1e9).any()) else x.abs()

    def lipschitz_constant(self, x):
        return 1.0


def test_a_module_that_declares_itself():
    class Exact(Declared):
        def rounding_error(self, x, dtype):
            assert dtype == torch.float32
            return 0.0, 0.0

    x = torch.randn(5, 4)
    head = nn.Linear(4, 3)
    model = nn.Sequential(Exact(), head).eval()
    labels = model(x).argmax(1)
    assert torch.equal(certified_radius(model, x, labels), certified_radius(nn.Sequential(head), x.abs(), labels))
    with pytest.raises(ValueError, match=r"0: the rounding error of Declared is not known.*rounding_error\(x, dtype\)"):
        certified_radius(nn.Sequential(Declared(), head), x, labels)


def with_hook(model):
    model[0].register_forward_hook(lambda module, inputs, output: 1.01 * output)
    return model


def zeros(*shape, **options):
    return torch.zeros(*shape, **options)


def small(*layers):
    return nn.Sequential(nn.Linear(4, 3), *layers)


NANS = small()
nn.init.constant_(NANS[0].weight, math.nan)
MIXED = nn.Sequential(nn.Linear(4, 4).double(), nn.Linear(4, 3))


@pytest.mark.parametrize(
    ("model", "images", "labels", "words"),
    [
        (small().eval(), zeros(0, 4), zeros(0).long(), r"images must be a non-empty batch .* got \(0, 4\)"),
        (
            small().eval(),
            zeros(4),
            zeros(4).long(),
            r"images must be a non-empty batch .* got \(4,\); for one image, x.unsqueeze\(0\)",
        ),
        (small().eval(), [[0.0]], zeros(1).long(), "images must be a non-empty batch .* got list"),
        (
            small().eval(),
            zeros(2, 4).double(),
            zeros(2).long(),
            "images must have the model's dtype torch.float32, got",
        ),
        (small().eval(), torch.full((2, 4), math.inf), zeros(2).long(), "images must be finite, got 8 entries"),
        (
            small().eval(),
            zeros(2, 4),
            zeros(3).long(),
            r"labels must be whole numbers of shape \(2,\).* got \(3,\) of torch.int64",
        ),
        (small().eval(), zeros(2, 4), zeros(2), r"labels must be whole numbers .* got \(2,\) of torch.float32"),
        (small().eval(), zeros(2, 4), [0, 1], "labels must be whole numbers .* got list"),
        (small().eval(), zeros(2, 4), torch.tensor([0, 3]), "labels must be from 0 to 2, .* got 3"),
        (small().eval(), zeros(2, 4), torch.tensor([0, -1]), "labels must be from 0 to 2, .* got -1"),
        (
            small(nn.Dropout()),
            zeros(2, 4),
            zeros(2).long(),
            "evaluation mode, got Dropout '1' in training; call model.eval",
        ),
        (small(nn.BatchNorm1d(3)), zeros(2, 4), zeros(2).long(), "evaluation mode, got BatchNorm1d '1' in training"),
        (
            parametrizations.spectral_norm(nn.Linear(4, 3)),
            zeros(2, 4),
            zeros(2).long(),
            r"evaluation mode, got _SpectralNorm 'parametrizations.weight.0' in training",
        ),
        (small().half().eval(), zeros(2, 4), zeros(2).long(), "model must have parameters in .* got torch.float16"),
        (MIXED, zeros(2, 4), zeros(2).long(), "model must have parameters in .* got torch.float32, torch.float64"),
        (nn.Identity(), zeros(2, 4), zeros(2).long(), "model must have parameters in .* got no parameters"),
        (small(nn.Tanh()).eval(), zeros(2, 4), zeros(2).long(), "1: the rounding error of Tanh is not known"),
        (
            small(nn.Softmin(1)).eval(),
            zeros(2, 4),
            zeros(2).long(),
            "1: the Lipschitz constant of Softmin is not known",
        ),
        (nn.Linear(4, 1).eval(), zeros(2, 4), zeros(2).long(), r"model must return logits .* got \(2, 1\)"),
        (small().eval(), zeros(2, 5, 4), zeros(2).long(), r"model must return logits .* got \(2, 5, 3\)"),
        (
            nn.utils.spectral_norm(nn.Linear(4, 3)).eval(),
            zeros(2, 4),
            zeros(2).long(),
            r"model must store its tensors as parameters or buffers, got \.weight .as left by old-style",
        ),
        (NANS.eval(), zeros(2, 4), zeros(2).long(), "the model's logits are not finite"),
        (with_hook(small()).eval(), torch.ones(2, 4), zeros(2).long(), "explains .*; remove hooks that change results"),
    ],
)
def test_bad_input(model, images, labels, words):
    with pytest.raises(ValueError, match=words):
        certified_radius(model, images, labels)


def test_no_model():
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got function"):
        certified_radius(lambda x: x, zeros(2, 4), zeros(2).long())


def test_another_precision_is_noticed():
    model = small().eval()
    x = torch.randn(4, 4)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match="autocast"):
        certified_radius(model, x, torch.zeros(4).long())


def test_training_mode_does_not_matter_where_nothing_depends_on_it():
    model, x = small(), torch.randn(4, 4)
    labels = model(x).argmax(1)
    assert torch.equal(certified_radius(model, x, labels), certified_radius(copy.deepcopy(model).eval(), x, labels))
    assert model.training
