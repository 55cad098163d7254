"""A smallest singular value instead of a number of steps: chosen, shown, saved, and chosen again."""

import copy
import io

import pytest
import torch
from rounding import rounding
from torch import nn

import oni
from oni.newton.product_count import count_products
from oni.nn.options_codec import decode_options, encode_options


class Mixed(nn.Module):
    """Wide, tall, square, grouped and transposed weights, and attention."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2)
        )
        self.expand, self.reduce = nn.Linear(4, 16), nn.Linear(16, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x):
        x = self.features(x).flatten(2).transpose(1, 2)
        x = self.reduce(self.expand(x).relu())
        return self.attention(x, x, x)[0]


@pytest.fixture
def mixed():
    torch.manual_seed(0)
    return Mixed()


def targets_met(model):
    return all(row.sigma[0] >= row.target for row in oni.summary(model).rows)


@pytest.mark.parametrize("sigma_min", [0.3, 0.9, 0.999])
@pytest.mark.parametrize("options", [{}, {"scale": "relu", "learn_scale": True, "center": False}], ids=str)
def test_every_weight_gets_what_it_needs(mixed, sigma_min, options):
    oni.convert(mixed, sigma_min=sigma_min, **options)
    rows = oni.summary(mixed).rows
    assert len(rows) == 7
    for row in rows:
        assert row.target == sigma_min
        assert row.sigma[0] >= sigma_min, row
        # At most 10 steps of 2.5 products with sums of up to 72 terms.
        assert row.sigma[1] <= 1 + rounding(25, 72)["rtol"], row
        assert not row.would_take
        assert not row.misses_target
    assert mixed(torch.randn(2, 3, 7, 7)).isfinite().all()


@pytest.mark.parametrize("shape", [(16, 144), (64, 256), (32, 32), (48, 8)])
@pytest.mark.parametrize("sigma_min", [0.5, 0.95])
def test_nothing_plain_is_cheaper(shape, sigma_min):
    torch.manual_seed(0)
    layer = oni.nn.Linear(shape[1], shape[0], sigma_min=sigma_min)
    Z = layer.parametrizations.weight.original
    with torch.no_grad():
        # Weights of a condition number below 2 count as those of 2, and get more than they need now.
        Z[0] *= 3
    oni.retune(layer)
    (row,) = oni.summary(layer).rows

    def price(steps, **options):
        return sum(count_products(steps, **options).multiply_adds(*shape))

    for options in ({}, {"bound": "tight"}, {"schedule": "minimax"}, {"bound": "tight", "schedule": "minimax"}):
        steps = oni.steps_for(Z, sigma_min, **options)
        assert price(row.steps, bound=row.bound, schedule=row.schedule) <= price(steps, **options)


def test_what_is_given_stays():
    torch.manual_seed(0)
    for given in ({"bound": "frobenius"}, {"schedule": "newton"}, {"schedule": "minimax:0.01", "bound": "compact"}):
        layer = oni.orthogonal(nn.Linear(40, 16), sigma_min=0.9, **given)
        for _ in range(2):
            (row,) = oni.summary(layer).rows
            assert given.items() <= {"bound": row.bound, "schedule": row.schedule}.items()
            assert row.sigma[0] >= 0.9
            with torch.no_grad():
                layer.parametrizations.weight.original[0] *= 50
            oni.retune(layer)
    layer = oni.orthogonal(nn.Linear(40, 16), sigma_min=0.9, schedule="minimax")
    assert oni.summary(layer).rows[0].schedule.startswith("minimax:")


def test_weights_of_one_shape_stay_in_one_batch(computed):
    torch.manual_seed(0)
    model = oni.convert(nn.Sequential(*(nn.Linear(64, 8) for _ in range(4))), sigma_min=0.9)
    inputs = torch.randn(1, 64)
    with oni.cached(model):
        for layer in model:
            layer(inputs)
    assert computed == [4]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_weight_in_its_own_precision_has_it(dtype):
    torch.manual_seed(0)
    layer = oni.orthogonal(nn.Linear(40, 24, dtype=dtype), sigma_min=0.95)
    assert oni.spectrum(layer.weight)[-1] >= 0.95


def dead_filter(layer):
    layer.weight.data[1] = layer.weight.data[0]


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        (None, {"sigma_min": 0.9, "steps": 5}, "either steps or sigma_min.* got steps=5 and sigma_min=0.9"),
        (None, {"sigma_min": 1.0}, r"sigma_min must be a number in \(0, 1\), got 1.0"),
        (None, {"sigma_min": 0}, r"sigma_min must be a number in \(0, 1\), got 0"),
        (None, {"sigma_min": -0.5}, "got -0.5"),
        (None, {"sigma_min": "0.9"}, "got '0.9'"),
        (None, {"sigma_min": float("nan")}, "got nan"),
        (None, {"sigma_min": True}, "got True"),
        (None, {"sigma_min": 0.9, "bound": "spectral"}, "bound must be one of"),
        (None, {"sigma_min": 0.9, "schedule": "polar"}, "schedule must be one of"),
        (None, {"sigma_min": 0.9, "groups": 5}, "0: groups must divide the 8 rows"),
        (None, {"sigma_min": 0.9, "center": True}, '1: sigma_min=0.9 can.t be .* centred 8 x 8 .* center="auto"'),
        (
            None,
            {"sigma_min": 1 - 1e-7},
            "0: sigma_min=0.9999999 can.t .* too close to 1 for the precision of torch.float32",
        ),
        (nn.Module.bfloat16, {"sigma_min": 0.999}, "0: .*too close to 1 for the precision of torch.bfloat16"),
        (lambda model: nn.init.zeros_(model[1].weight), {"sigma_min": 0.9}, "1: .*it is zero.* initialise"),
        (
            lambda model: nn.init.ones_(model[0].weight),
            {"sigma_min": 0.9},
            "0: .*constant, so centring makes them zero",
        ),
        (lambda model: dead_filter(model[1]), {"sigma_min": 0.9}, "1: .*8 x 8 matrix of rank 7 .*initialise it again"),
        (
            lambda model: model.double()[1].weight.data.copy_(torch.diag(torch.logspace(0, -12, 8))),
            {"sigma_min": 0.9, "schedule": "minimax"},
            '1: .*no minimax schedule .* from 1e-12 of the bound; pass schedule="newton"',
        ),
        (lambda model: model.to("meta"), {"sigma_min": 0.9}, "0: .*no values yet .*pass steps"),
    ],
    # A function's text has its address, and several processes must agree on the names.
    ids=lambda value: "change" if callable(value) else str(value)[:40],
)
def test_what_cannot_be_reached_changes_nothing(change, options, words):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.Linear(8, 8))
    if change is not None:
        change(model)
    before = repr(model)
    with pytest.raises(ValueError, match=words):
        oni.convert(model, **options)
    assert repr(model) == before
    assert not model._forward_pre_hooks


def test_converting_twice_keeps_the_choice(mixed):
    oni.convert(mixed, sigma_min=0.9)
    before = repr(mixed)
    with torch.no_grad():
        mixed.reduce.parametrizations.weight.original[0] *= 30
    oni.convert(mixed, sigma_min=0.9)
    assert repr(mixed) == before
    for others in ({"sigma_min": 0.8}, {"steps": 5}, {"sigma_min": 0.9, "bound": "tight"}):
        with pytest.raises(ValueError, match=r"already orthogonal, with other options: steps=.* sigma_min=0.9"):
            oni.convert(mixed, **others)


class TestRetune:
    def test_it_says_what_changed_and_summary_foretells_it(self, mixed):
        oni.convert(mixed, sigma_min=0.9)
        assert oni.retune(mixed) == []
        with torch.no_grad():
            mixed.reduce.parametrizations.weight.original[0] *= 30
        rows = {row.layer: row for row in oni.summary(mixed).rows}
        assert [name for name, row in rows.items() if row.misses_target] == ["reduce"]
        assert "Below their target: 1" in str(oni.summary(mixed))
        (change,) = oni.retune(mixed)
        assert (change.layer, change.sigma_min) == ("reduce", 0.9)
        assert change.before == (rows["reduce"].bound, rows["reduce"].schedule, rows["reduce"].steps)
        assert str(change.after) == rows["reduce"].would_take
        assert f"reduce: {change.before} -> {change.after}" == str(change)
        assert targets_met(mixed)
        with torch.no_grad():
            mixed.reduce.parametrizations.weight.original[0] /= 30
        (back,) = oni.retune(mixed)
        assert (back.before, back.after) == (change.after, change.before)

    def test_a_layer_out_of_reach_is_named_and_nothing_changes(self, mixed):
        oni.convert(mixed, sigma_min=0.9)
        before = repr(mixed)
        with torch.no_grad():
            mixed.expand.parametrizations.weight.original[:, 0] *= 30
            mixed.reduce.parametrizations.weight.original[1:] = 0
        with pytest.raises(ValueError, match=r"reduce: sigma_min=0.9 can't be reached: .*rank 1 "):
            oni.retune(mixed)
        assert repr(mixed) == before
        assert "rank 1" in next(row.would_take for row in oni.summary(mixed).rows if row.layer == "reduce")

    def test_without_a_target(self):
        with pytest.raises(ValueError, match=r"no weight .* has a target; .*sigma_min=0.9"):
            oni.retune(oni.convert(nn.Sequential(nn.Linear(4, 4)), steps=2))

    def test_shared_weights_are_one(self):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        model[1].weight = model[0].weight
        oni.convert(model, sigma_min=0.9)
        with torch.no_grad():
            model[0].parametrizations.weight.original[0] *= 100
        assert len(oni.retune(model)) == 1
        assert torch.equal(model[0].weight, model[1].weight)
        assert targets_met(model)

    def test_held_weights_are_computed_again(self, mixed):
        oni.convert(mixed, sigma_min=0.9)
        with oni.cached(mixed), torch.no_grad():
            mixed.reduce.parametrizations.weight.original[0] *= 30
            assert oni.spectrum(mixed.reduce.weight)[-1] < 0.9
            oni.retune(mixed)
            assert oni.spectrum(mixed.reduce.weight)[-1] >= 0.9


class TestCheckpoints:
    def test_the_choice_comes_with_the_weights(self, mixed):
        oni.convert(mixed, sigma_min=0.9)
        with torch.no_grad():
            mixed.reduce.parametrizations.weight.original[0] *= 30
        oni.retune(mixed)
        file = io.BytesIO()
        torch.save(mixed.state_dict(), file)
        file.seek(0)
        state = torch.load(file, weights_only=True)
        other = oni.convert(Mixed(), sigma_min=0.9)
        sizes = {key: value.shape for key, value in other.state_dict().items()}
        assert {key: value.shape for key, value in state.items()} == sizes
        other.load_state_dict(state, strict=True)
        assert repr(other) == repr(mixed)
        assert torch.equal(other.reduce.weight, mixed.reduce.weight)
        assert oni.retune(other) == []
        baked = oni.models.bake_state_dict(state)
        # One by one instead of in a batch: no more than 10 steps of 2.5 products.
        torch.testing.assert_close(baked["reduce.weight"], mixed.reduce.weight, **rounding(25, 16))

    @pytest.mark.parametrize("options", [{"steps": 4}, {"sigma_min": 0.5}, {"sigma_min": 0.9, "center": False}])
    def test_other_options_are_those_of_the_code(self, options):
        layer = oni.nn.Linear(12, 8, sigma_min=0.9)
        other = oni.nn.Linear(12, 8, **options)
        before = repr(other)
        with pytest.warns(UserWarning, match="the model's options are used"):
            other.load_state_dict(layer.state_dict())
        assert repr(other) == before

    def test_bake_forgets_it(self, mixed):
        oni.bake(oni.convert(mixed, sigma_min=0.9))
        assert all(row.target is None for row in oni.summary(mixed).rows)
        with pytest.raises(ValueError, match="no weight of the model has a target"):
            oni.retune(mixed)
        state = oni.nn.Linear(12, 8, sigma_min=0.9).state_dict()
        with pytest.raises(ValueError, match="baked as it was trained, so sigma_min is not an option"):
            oni.models.bake_state_dict(state, sigma_min=0.8)

    def test_a_saved_target_is_checked(self):
        layer = oni.nn.Linear(12, 8, sigma_min=0.9)
        parametrization, before = layer.parametrizations.weight[0], repr(layer)
        text = bytes(encode_options(parametrization.options, parametrization.layout).byte().tolist())
        for bad in (b'"sigma_min":1.5', b'"sigma_min":"x"', b'"steps":3   '):
            state = torch.tensor(list(text.replace(b'"sigma_min":0.9', bad))).float()
            with pytest.raises(ValueError, match="not the saved options"):
                decode_options(state)
            layer.load_state_dict({**layer.state_dict(), "parametrizations.weight.0._extra_state": state})
            assert repr(layer) == before


def test_training_with_retune_once_an_epoch_keeps_the_target():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 2))
    for layer in (model[0], model[2]):
        # Singular values within 2.1 of each other need few steps; training spreads them, most where they are small.
        nn.init.orthogonal_(layer.weight)
        with torch.no_grad():
            layer.weight.mul_(0.3 * torch.linspace(1, 2.1, len(layer.weight))[:, None])
    oni.convert(model, skip="4", sigma_min=0.95)
    without = copy.deepcopy(model)
    x = torch.randn(128, 24)
    y = (x[:, :2].prod(-1) > 0).long()

    def train(net, retune):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
        losses, lowest, changes = [], [], 0
        for _ in range(8):
            for part in torch.randperm(len(x)).chunk(8):
                loss = nn.functional.cross_entropy(net(x[part]), y[part])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            changes += len(oni.retune(net)) if retune else 0
            rows = [row for row in oni.summary(net).rows if not row.why]
            lowest.append(min(row.sigma[0] for row in rows))
            losses.append(nn.functional.cross_entropy(net(x), y).item())
        return losses, lowest, changes

    losses, lowest, changes = train(model, retune=True)
    assert min(lowest) >= 0.95
    assert changes
    assert losses[-1] < 0.8 * losses[0]
    _, lowest, _ = train(without, retune=False)
    # Four seeds gave 0.46 to 0.73.
    assert min(lowest) < 0.8
