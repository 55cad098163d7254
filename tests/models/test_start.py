"""start="orthogonal": the proxy begins as its polar factor; what can't be done is said, by layer."""

import copy
import io
import warnings
from itertools import pairwise

import pytest
import torch
from rounding import rounding
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import oni
from oni.newton.polar import find_polar_factor

KINDS = {
    "wide": lambda: nn.Linear(40, 24),
    "square": lambda: nn.Linear(24, 24),
    "tall": lambda: nn.Linear(12, 24),
    "one column more": lambda: nn.Linear(25, 24),
    "convolution": lambda: nn.Conv2d(4, 8, 3),
    "grouped": lambda: nn.Conv2d(6, 12, 3, groups=3),
    "transposed": lambda: nn.ConvTranspose2d(6, 4, 3, groups=2),
    "depthwise": lambda: nn.Conv1d(5, 5, 3, groups=5),
}


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def proxy_of(layer, name="weight"):
    return layer.parametrizations[name].original


def matrices_of(layer, tensor):
    """Filters first, groups apart: what the paper calls the matrix of a layer, without the package's own layout."""
    if isinstance(layer, nn.ConvTranspose2d):
        parts = tensor.chunk(layer.groups)
        return [part.transpose(0, 1).flatten(1) for part in parts]
    return [part.flatten(1) for part in tensor.chunk(getattr(layer, "groups", 1))]


@pytest.mark.parametrize("center", [False, "auto"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_proxy_is_the_polar_factor(kind, center):
    layer = KINDS[kind]()
    before = layer.weight.detach().clone()
    parameter = layer.weight
    oni.orthogonal(layer, steps=0, bound="trace", center=center, start="orthogonal")
    assert proxy_of(layer) is parameter
    for old, new, W in zip(*(matrices_of(layer, t.detach()) for t in (before, parameter, layer.weight)), strict=True):
        old = old.double()
        if center and old.shape[0] < old.shape[1]:
            old = old - old.mean(1, keepdim=True)
        U, _, Rh = torch.linalg.svd(old, full_matrices=False)
        # Computed in float64, rounded to float32 once.
        torch.testing.assert_close(new, (U @ Rh).float(), rtol=0, atol=2 * torch.finfo(torch.float32).eps)
        # So what is made of it has condition 1, centred or not: sums of up to 40 terms.
        sigma = oni.spectrum(W.double())
        assert sigma[0] / sigma[-1] <= 1 + rounding(2, 40)["rtol"]


def test_why_the_centred_matrix_is_taken():
    """The polar factor of Z itself loses a singular value to centring."""
    Z = torch.randn(24, 25, dtype=torch.float64)
    conditions = []
    for center in (True, False):
        Q = find_polar_factor(Z, center=center, groups=1).factor
        sigma = oni.spectrum(Q - Q.mean(1, keepdim=True))
        conditions.append(float(sigma[0] / sigma[-1]))
    # Rounding of float64; and 24 of 25 directions hold nearly all of the ones.
    assert conditions[0] < 1 + 1e-12
    assert conditions[1] > 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_in_other_precisions(dtype):
    layer = oni.orthogonal(nn.Linear(30, 20, dtype=dtype), steps=2, start="orthogonal")
    assert proxy_of(layer).dtype == dtype
    sigma = oni.spectrum(proxy_of(layer).double())
    # Each entry is rounded by half an epsilon of itself: sqrt(20) of that in the norm, at most.
    assert abs(sigma - 1).max() <= 20**0.5 * torch.finfo(dtype).eps


def test_attention_s_queries_keys_and_values_start_each_alone():
    model = oni.convert(nn.MultiheadAttention(16, 2), steps=2, start="orthogonal")
    Z = proxy_of(model, "in_proj_weight")
    for part in Z.chunk(3):
        # In float32: sums of 16 terms.
        torch.testing.assert_close(part @ part.T, torch.eye(16), **rounding(2, 16))


def test_shared_weights_start_once_and_stay_shared():
    first, second = nn.Linear(12, 12), nn.Linear(12, 12)
    second.weight = first.weight
    model = oni.convert(nn.Sequential(first, second), steps=2, start="orthogonal")
    assert proxy_of(model[0]) is proxy_of(model[1])
    assert torch.equal(model[0].weight, model[1].weight)
    assert [row.start for row in oni.summary(model).rows] == ["orthogonal"] * 2


def test_drop_in_layers():
    layer = oni.nn.Conv2d(3, 8, 3, start="orthogonal", steps=2, center=False)
    Z = proxy_of(layer).flatten(1)
    torch.testing.assert_close(Z @ Z.T, torch.eye(8), **rounding(2, 27))


class TestTarget:
    def test_a_square_gaussian_weight_needs_two_steps(self):
        given = oni.orthogonal(nn.Linear(64, 64), sigma_min=0.9)
        started = oni.orthogonal(nn.Linear(64, 64), sigma_min=0.9, start="orthogonal")
        steps = [oni.summary(layer).rows[0].steps for layer in (given, started)]
        assert steps[0] >= 5
        assert steps[1] == 2

    @pytest.mark.parametrize("shape", [(64, 64), (24, 100), (100, 24), (1, 9)])
    @pytest.mark.parametrize("sigma_min", [0.5, 0.9, 0.99])
    def test_the_choice_outlasts_the_first_steps_of_training(self, shape, sigma_min):
        """An orthogonal weight starts at 1 under the trace bound, so no step at all would certify it as it is."""
        n, d = shape
        layer = oni.orthogonal(nn.Linear(d, n), sigma_min=sigma_min, start="orthogonal")
        assert oni.retune(layer) == []
        U, sigma, Rh = torch.linalg.svd(proxy_of(layer).detach(), full_matrices=False)
        for condition in (1.0, 1.05, 1.2, 2.0):
            spread = torch.linspace(1, 1 / condition, len(sigma))
            with torch.no_grad():
                proxy_of(layer).copy_((U * spread) @ Rh)
            (row,) = oni.summary(layer).rows
            assert row.sigma[0] >= sigma_min

    def test_the_same_for_weights_that_are_orthogonal_already(self):
        layer = nn.Linear(32, 32)
        nn.init.orthogonal_(layer.weight)
        oni.orthogonal(layer, sigma_min=0.9)
        assert oni.summary(layer).rows[0].steps == 2
        assert oni.steps_for(proxy_of(layer), 0.9, bound="trace") == 0, "asked for as it is, none is needed"


class TestWhatCannotBeDone:
    def make(self):
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(12, 8))
        nn.init.zeros_(model[1].weight)
        with torch.no_grad():
            model[2].weight[1] = model[2].weight[0]
            model[2].weight[4] = 0.0
            model[3].weight.copy_(torch.arange(8.0)[:, None].expand(8, 12))
        return model

    def test_it_is_said_by_layer(self):
        model = self.make()
        constant = model[3].weight.detach().clone()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            oni.convert(model, steps=2, start="orthogonal")
        zero, deficient = (str(warning.message) for warning in caught)
        assert zero.startswith("1: all weights are zero")
        assert "2 (rank 6 of 8, so its zero singular values stay zero), 3 (rank 0 of 8" in deficient
        assert {warning.filename for warning in caught} == {__file__}
        starts = [row.start for row in oni.summary(model).rows]
        assert starts == ["orthogonal", *(f"orthogonal, rank {rank} of 8" for rank in (0, 6, 0))]
        # What has no direction stays as it is; the rest of a deficient weight is as orthogonal as it can be.
        assert not proxy_of(model[1]).any()
        assert torch.equal(proxy_of(model[3]), constant)
        sigma = oni.spectrum(proxy_of(model[2]).detach().double())
        # Rounded to float32 once; zeros come of the rounding of 8 entries.
        expected = torch.tensor([1.0] * 6 + [0.0] * 2, dtype=torch.float64)
        torch.testing.assert_close(sigma, expected, rtol=0, atol=8 * torch.finfo(torch.float32).eps)

    def test_of_a_single_module(self):
        layer = self.make()[2]
        with pytest.warns(UserWarning, match="Linear: weight has rank 6 of 8, .*initialise it again"):
            oni.orthogonal(layer, steps=2, start="orthogonal")

    def test_centring_a_square_by_request_is_no_surprise(self):
        layer = oni.orthogonal(nn.Linear(8, 8), steps=2, center=True, start="orthogonal")
        assert oni.summary(layer).rows[0].start == "orthogonal"

    @pytest.mark.parametrize("index", [1, 2, 3])
    def test_an_error_changes_no_value(self, index):
        model = nn.Sequential(nn.Linear(8, 8), self.make()[index])
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(ValueError, match=r"1: sigma_min=0.9 can't be reached"):
            oni.convert(model, sigma_min=0.9, start="orthogonal")
        after = model.state_dict()
        assert before.keys() == after.keys()
        assert all(torch.equal(before[name], after[name]) for name in before)

    @pytest.mark.parametrize("start", ["given", "Orthogonal", "", True, 1])
    def test_other_words(self, start):
        for call in (oni.orthogonal, oni.convert):
            layer = nn.Linear(4, 4)
            with pytest.raises(ValueError, match=f"start must be None.*got {start!r}"):
                call(layer, start=start)
            assert not hasattr(layer, "parametrizations")

    def test_weights_without_values(self):
        with pytest.raises(
            ValueError, match=r"0: start='orthogonal' is not possible: it has no values yet \(device meta"
        ):
            oni.convert(nn.Sequential(nn.Linear(4, 4, device="meta")), start="orthogonal")
        with FakeTensorMode():
            with pytest.raises(ValueError, match=r"Linear: start='orthogonal' .*no values yet"):
                oni.orthogonal(nn.Linear(4, 4), start="orthogonal")
            # As on the meta device, a number of steps needs no values.
            assert oni.orthogonal(nn.Linear(4, 3), steps=2).weight.shape == (3, 4)


class TestOnce:
    def test_converting_twice_replaces_once(self):
        model = oni.convert(nn.Sequential(nn.Linear(8, 8)), steps=2, start="orthogonal")
        with torch.no_grad():
            proxy_of(model[0]).add_(torch.randn(8, 8))
        moved = proxy_of(model[0]).detach().clone()
        oni.convert(model, steps=2, start="orthogonal")
        assert torch.equal(proxy_of(model[0]), moved)

    def test_it_is_no_option_of_a_checkpoint(self):
        started = oni.convert(nn.Sequential(nn.Linear(8, 8)), steps=2, start="orthogonal")
        given = oni.convert(nn.Sequential(nn.Linear(8, 8)), steps=2)
        key = "0.parametrizations.weight.0._extra_state"
        assert torch.equal(started.state_dict()[key], given.state_dict()[key])
        file = io.BytesIO()
        torch.save(started.state_dict(), file)
        file.seek(0)
        # Warnings are errors here, so none is given.
        given.load_state_dict(torch.load(file))
        assert torch.equal(given[0].weight, started[0].weight)
        assert "start" not in str(oni.summary(given))

    def test_summary_shows_it_and_copies_keep_it(self):
        model = oni.convert(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), only="0", start="orthogonal")
        for each in (model, copy.deepcopy(model)):
            heading, _, row, *_ = str(oni.summary(each)).splitlines()
            assert "start       scale" in heading
            assert "orthogonal  1.000" in row
        oni.bake(model)
        assert not any(row.start for row in oni.summary(model).rows)


def test_a_deep_relu_network_keeps_its_signal():
    """Twenty layers, forward and backward, at the first step. Without it they lose nearly all."""

    def norms(**options):
        torch.manual_seed(0)
        sizes = [96] * 20
        layers = [nn.Linear(n, d, bias=False) for n, d in pairwise(sizes)]
        model = nn.Sequential(*(module for layer in layers for module in (layer, nn.ReLU())))
        oni.convert(model, scale="relu", **options)
        x = torch.randn(256, sizes[0], requires_grad=True)
        y = model(x)
        G = torch.randn_like(y)
        (gradient,) = torch.autograd.grad(y, x, G)
        return float(y.detach().norm() / x.detach().norm()), float(gradient.norm() / G.norm())

    # 19 layers of singular values of at least 0.9, at the start 0.98: 0.7. A ReLU keeps half of the mean square on
    # average; with 96 units in a row of 19 that varies by a factor of about 2.
    assert all(0.25 <= norm <= 2 for norm in norms(sigma_min=0.9, start="orthogonal", center=False))
    assert all(norm < 0.1 for norm in norms(steps=5))


@pytest.mark.parametrize("condition", [1.0, 1.08, 1.12, 1.5])
def test_what_is_chosen_outlasts_an_epoch(condition):
    """Between two calls of retune training moves singular values: up to condition 2 the target holds all the same."""
    U, _, Rh = torch.linalg.svd(torch.randn(48, 48))
    layer = nn.Linear(48, 48)
    with torch.no_grad():
        layer.weight.copy_((U * torch.linspace(1, 1 / condition, 48)) @ Rh)
    oni.orthogonal(layer, sigma_min=0.9)
    with torch.no_grad():
        proxy_of(layer).copy_((U * torch.linspace(1, 1 / 2, 48)) @ Rh)
    assert oni.summary(layer).rows[0].sigma[0] >= 0.9


@pytest.mark.parametrize("options", [{"start": "orthogonal"}, {"sigma_min": 0.5}])
def test_weights_near_the_end_of_the_range_are_centred_without_overflow(options):
    layer = nn.Linear(12, 8, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.uniform_(-1, 1).mul_(1.7e308)
    oni.orthogonal(layer, center=True, **options)
    assert torch.linalg.svdvals(layer.weight).min() > 0.5


def list_starts(model):
    return [row.start for row in oni.summary(model).rows]


def test_a_start_that_comes_too_late_is_said():
    model = oni.convert(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)))
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.warns(UserWarning, match=r"start='orthogonal' does not change layers that are .* already: 0, 2; oni.b"):
        oni.convert(model, start="orthogonal")
    assert all(map(torch.equal, before, model.parameters()))
    oni.bake(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        oni.convert(model, start="orthogonal")
        oni.convert(model, start="orthogonal")
    assert list_starts(model) == ["orthogonal", "orthogonal"]


def test_a_start_is_forgotten_with_its_proxy():
    def make():
        return oni.convert(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), start="orthogonal")

    model = make()
    model[0].weight = torch.randn(8, 8)
    model[1].bias = nn.Parameter(torch.randn(8))
    assert list_starts(model) == ["", "orthogonal"]
    other = make()
    other.load_state_dict(
        {key: value for key, value in model.state_dict().items() if key.startswith("0.")}, strict=False
    )
    assert list_starts(other) == ["", "orthogonal"]
    # What was not loaded, because its shape is another, has not changed.
    wrong = {**make().state_dict(), "0.parametrizations.weight.original": torch.randn(4, 4)}
    third = make()
    with pytest.raises(RuntimeError, match="size mismatch"):
        third.load_state_dict(wrong)
    assert list_starts(third) == ["orthogonal", ""]
    # A plain checkpoint's weights become the proxies.
    other.load_state_dict(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)).state_dict())
    assert list_starts(other) == ["", ""]
