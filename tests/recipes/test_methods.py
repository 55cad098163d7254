"""One contract for every method, and what each does to a model."""

import copy
import io
import math

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.testing import assert_close

import oni
from oni.machine import find_version
from oni.recipes.exact_maps import PEERS
from oni.recipes.methods import METHODS, apply, extra_loss, plain


def network():
    return nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 6, 2, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 64, 12),
        nn.ReLU(),
        nn.Linear(12, 3),
    )


OUTPUT = "8"
X = torch.randn(32, 2, 4, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(32) % 3


def train(method, model, steps=6):
    extra = extra_loss(method, skip=OUTPUT)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(X), Y)
        if extra is not None:
            loss = loss + extra(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


INSTALLED = [method for method in METHODS if method not in PEERS or find_version(PEERS[method])]


@pytest.mark.parametrize("method", INSTALLED)
class TestContract:
    def test_trains(self, method):
        model = apply(method, network(), skip=OUTPUT)
        before = {name: value.clone() for name, value in model.named_parameters()}
        losses = train(method, model, steps=20)
        assert all(map(math.isfinite, losses))
        # 32 images, learnt by heart: any of these methods gets on within twenty steps.
        assert losses[-1] < 0.9 * losses[0]
        for name, value in model.named_parameters():
            assert not torch.equal(value, before[name]), name

    def test_becomes_plain_again(self, method):
        model = apply(method, network(), skip=OUTPUT)
        train(method, model)
        kept = copy.deepcopy(model)
        model.eval()
        y = model(X)
        made_plain = plain(model)
        assert made_plain is model
        assert all(type(module).__module__.startswith("torch.nn.modules") for module in model.modules())
        fresh = network().eval()
        fresh.load_state_dict(model.state_dict(), strict=True)
        # The same weights through the same kernels.
        assert torch.equal(fresh(X), y)
        assert torch.equal(model(X), y)
        assert torch.equal(kept.eval()(X), y), "a copy made before lives on"
        before = {key: value.clone() for key, value in model.state_dict().items()}
        after = plain(model).state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[key], after[key]) for key in before), "twice is as good as once"

    def test_saves_and_loads(self, method):
        model = apply(method, network(), skip=OUTPUT)
        train(method, model)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other = apply(method, network(), skip=OUTPUT)
        other.load_state_dict(torch.load(file, weights_only=True), strict=True)
        assert torch.equal(other.eval()(X), model.eval()(X))

    def test_copies_are_independent(self, method):
        model = apply(method, network(), skip=OUTPUT)
        twin = copy.deepcopy(model)
        y = copy.deepcopy(model).eval()(X)
        train(method, model)
        assert torch.equal(twin.eval()(X), y)
        assert not torch.equal(model.eval()(X), y)

    def test_leaves_what_is_skipped(self, method):
        model = network()
        skipped = copy.deepcopy(model[8].state_dict())
        apply(method, model, skip=["8", "0"])
        assert torch.equal(model[8].weight, skipped["weight"])
        assert type(model[8]) is nn.Linear
        assert type(model[0]) is nn.Conv2d
        with pytest.raises(ValueError, match="skip='head' matches no layer"):
            apply(method, network(), skip="head")

    def test_describes_itself(self, method):
        entry = METHODS[method]
        assert entry.name == method
        assert entry.description
        assert "\n" not in entry.description
        assert not entry.description.endswith(".")
        assert len(entry.description) < 90

    def test_bad_options(self, method):
        model = network()
        before = repr(model)
        with pytest.raises(TypeError, match=f"method '{method}' has no option 'stepz'; its options are: "):
            apply(method, model, stepz=3)
        with pytest.raises(TypeError, match="has no option 'stepz'"):
            extra_loss(method, stepz=3)
        with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got Tensor"):
            apply(method, X)
        assert repr(model) == before

    def test_a_changed_model_is_refused_or_stays(self, method):
        model = apply("sn", network())
        before = repr(model)
        with pytest.raises(ValueError, match="0: weight is already parametrised by _SpectralNorm"):
            apply(method, model)
        assert repr(model) == before


def weights(model):
    """The three weights that are not skipped, as matrices of output filters."""
    with torch.no_grad():
        model.eval()
        return [model[0].weight.flatten(1), model[3].weight.transpose(0, 1).flatten(1), model[6].weight]


def test_plain_and_xavier():
    model = network()
    before = [W.clone() for W in weights(model)]
    assert all(torch.equal(a, b) for a, b in zip(weights(apply("plain", model)), before, strict=True))
    limit = math.sqrt(6 / (6 * 64 + 12))
    W = weights(apply("xavier", model))[2]
    # Of 4608 uniform numbers the largest is this near to the limit, but for a chance of 1e-20.
    assert 0.99 * limit < W.abs().max() <= limit
    W = weights(apply("xavier", model, gain="relu"))[2]
    assert W.abs().max() > 1.4 * 0.99 * limit


@pytest.mark.parametrize(("method", "variance"), [("lecun", 1), ("he", 2)])
def test_normal_starts(method, variance):
    layer = apply(method, nn.Linear(400, 500))
    # The standard deviation of 200,000 normal numbers varies by 0.16 %; six of that.
    assert layer.weight.std().item() == pytest.approx(math.sqrt(variance / 400), rel=0.01)


@pytest.mark.parametrize("method", ["orth-init", "orth-reg"])
def test_orthogonal_start(method):
    for W in weights(apply(method, network(), gain=2.0)):
        # Float32 rounding of a QR decomposition.
        assert_close(W @ W.T, 4 * torch.eye(len(W)), atol=1e-5, rtol=0)
    attention = apply(method, nn.MultiheadAttention(8, 2))
    for part in attention.in_proj_weight.detach().chunk(3):
        assert_close(part @ part.T, torch.eye(8), atol=1e-5, rtol=0)


def test_only_orth_reg_has_an_extra_loss():
    assert [method for method in METHODS if extra_loss(method) is not None] == ["orth-reg"]
    model = network()
    extra = extra_loss("orth-reg", skip=OUTPUT, coefficient=0.5, kind="double")
    expected = oni.baselines.penalty(model, 0.5, kind="double", skip=OUTPUT)
    assert torch.equal(extra(model), expected)


@pytest.mark.parametrize("options", [{}, {"start": "orthogonal", "scale": 0.8}, {"sigma_min": 0.9}])
def test_oni_start_is_where_oni_starts(options):
    torch.manual_seed(0)
    model = apply("oni", network(), skip=OUTPUT, learn_scale=False, **options)
    torch.manual_seed(0)
    free = apply("oni-start", network(), skip=OUTPUT, **options)
    assert all(type(module).__module__.startswith("torch.nn.modules") for module in free.modules())
    assert torch.equal(model.eval()(X), free.eval()(X))


def test_oni_start_leaves_an_orthogonal_layer_that_is_skipped():
    model = oni.convert(network(), only="0")
    before = model[0].weight.detach().clone()
    apply("oni-start", model, skip=["0", OUTPUT])
    assert [name for name, module in model.named_modules() if parametrize.is_parametrized(module)] == ["0"]
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("method", ["wn", "centred-wn"])
def test_norms(method):
    for W in weights(apply(method, network())):
        # A few float32 roundings.
        assert_close(W.norm(dim=1), torch.full((len(W),), math.sqrt(2)))
        assert (W.sum(1).abs().max() < 1e-5) == (method == "centred-wn")
    start = weights(copy.deepcopy(model := network()))
    for before, W in zip(start, weights(apply("wn", model, scale=None)), strict=True):
        # With scale=None the weights start as they are.
        assert_close(W, before)


def test_spectral_norm():
    model = apply("sn", network(), n_power_iterations=50)
    model(X)
    for module in (model[0], model[6]):
        # 15 power iterations at the start and 50 in the forward pass bring it this near.
        assert float(oni.spectrum(module.eval().weight.detach().flatten(1))[0]) == pytest.approx(1.0, abs=1e-2)


@pytest.mark.parametrize(("method", "scale"), [("olm", math.sqrt(2)), ("olm-ns", 1.0)])
def test_olm_is_orthogonal(method, scale):
    for W in weights(apply(method, network())):
        # float32 rounding of the result.
        assert_close(W @ W.T, scale**2 * torch.eye(len(W)), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("method", "scale"), [("oni", math.sqrt(2)), ("oni-ns", 1.0)])
def test_oni_is_convert(method, scale):
    model = network()
    proxies = [W.clone() for W in weights(model)]
    for Z, W in zip(proxies, weights(apply(method, model)), strict=True):
        # Batched or not: rounding.
        assert_close(W, scale * oni.orthogonalize(Z, 5, center=True), atol=1e-6, rtol=0)


def test_olm_takes_queries_keys_and_values_apart():
    attention = apply("olm-ns", nn.MultiheadAttention(9, 3), center=False, group_size=7)
    for part in attention.in_proj_weight.detach().chunk(3):
        for group in (part[:7], part[7:]):
            # float32 rounding of the result.
            assert_close(group @ group.T, torch.eye(len(group)), atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["wn", "centred-wn", "sn", "olm", "olm-ns"])
def test_tied_weights_are_refused(method):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    with pytest.raises(ValueError, match="1 shares its parameter with 0; skip both"):
        apply(method, model)
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize("method", ["centred-wn", "olm"])
def test_a_layer_that_cannot_be_is_named_and_nothing_changes(method):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(1, 4))
    with pytest.raises(ValueError, match="1: center=True makes rows with one column zero"):
        apply(method, model)
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ONI", r"unknown method 'ONI'; did you mean 'oni'\? Choose from plain, lecun, he, xavier, orth-init"),
        ("orthreg", r"did you mean 'orth-reg'\?"),
        ("olm_ns", r"did you mean 'olm-ns'\?"),
        ("centered-wn", r"did you mean 'centred-wn'\?"),
        ("zzz", "unknown method 'zzz'; choose from plain"),
        (None, "unknown method None; choose from plain"),
    ],
)
def test_unknown_names(name, message):
    for call in (lambda: apply(name, network()), lambda: extra_loss(name)):
        with pytest.raises(ValueError, match=message):
            call()


def test_lecun_has_the_variance_of_its_inputs():
    layer = apply("lecun", nn.Linear(400, 2000, bias=False), gain=2.0)
    # 800,000 entries: their variance is known to 0.2 %, and five times that.
    assert float(layer.weight.detach().var()) == pytest.approx(4 / 400, rel=0.01)


def test_a_proxy_that_starts_orthogonal():
    net = nn.Sequential(nn.Linear(24, 16), nn.Conv2d(4, 8, 3), nn.Linear(16, 32))
    apply("oni", net, start="orthogonal", center=False, scale=1.0)
    for layer in net:
        Z = layer.parametrizations.weight.original.detach().flatten(1)
        sigma = torch.linalg.svdvals(Z)
        # Rounding of a QR decomposition in float32.
        torch.testing.assert_close(sigma, torch.ones_like(sigma), atol=1e-5, rtol=0)
        effective = torch.linalg.svdvals(layer.weight.detach().flatten(1))
        assert float(effective.max() - effective.min()) < 1e-5


def test_an_unknown_start_changes_nothing():
    net = nn.Linear(6, 4)
    before = net.weight.detach().clone()
    with pytest.raises(ValueError, match="start must be one of given, orthogonal, polar, got 'random'"):
        apply("oni", net, start="random")
    assert type(net) is nn.Linear
    assert torch.equal(net.weight, before)


@pytest.mark.parametrize("method", [method for method in PEERS if method not in INSTALLED])
def test_a_method_of_a_library_that_is_not_installed(method):
    model = network()
    before = repr(model)
    package = PEERS[method]
    with pytest.raises(ValueError, match=f"'{method}' needs {package}, which is not installed; run pip install"):
        apply(method, model)
    assert repr(model) == before


@pytest.mark.parametrize("method", ["cayley", "cholesky"])
def test_exact_maps_are_orthogonal_whatever_the_layer(method):
    model = apply(method, network())
    train(method, model)
    for module, rows in ((model[0], 0), (model[3], 1), (model[6], 0), (model[8], 0)):
        W = module.weight.detach().double().movedim(rows, 0).flatten(1)
        W = W if W.shape[0] <= W.shape[1] else W.T
        # A few hundred epsilons of float32 for sums of up to 384 products.
        assert_close(W @ W.T, torch.eye(len(W)).double(), atol=1e-4, rtol=0)


def test_spectral_norm_from_an_orthogonal_start():
    weight = apply("sn", nn.Sequential(nn.Linear(16, 8)), start="orthogonal").eval()[0].weight
    assert_close(weight @ weight.T, torch.eye(8), atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="start must be one of given, orthogonal, got 'polar'"):
        apply("sn", network(), start="polar")


def test_oni_by_its_smallest_singular_value():
    model = apply("oni-ns", nn.Sequential(nn.Linear(32, 16)), sigma_min=0.9, start="orthogonal", center=False)
    assert "sigma_min=0.9" in repr(model)
    assert oni.spectrum(model[0].weight.detach()).min() >= 0.9


def test_cholesky_starts_well_conditioned_and_diverges_aloud():
    torch.manual_seed(0)
    layer = nn.Linear(128, 128)
    expected = oni.baselines.orthogonalize_cholesky(layer.weight.detach().double())
    (changed,) = apply("cholesky", nn.Sequential(layer))
    assert_close(changed.weight.double(), expected, atol=1e-5, rtol=0)
    assert torch.linalg.cond(changed.parametrizations.weight.original) < 1.001
    with torch.no_grad():
        changed.parametrizations.weight.original[1] = changed.parametrizations.weight.original[0]
    assert changed.weight.isnan().all()
