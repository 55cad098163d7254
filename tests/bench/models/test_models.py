import copy
import json
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized, register_parametrization

import oni
from oni.bench.models import cases as models
from oni.bench.models import methods as methods_module
from oni.bench.models.methods import Unrolled, find_fastest_map, layers_of, list_training_methods, predict_seconds
from oni.bench.models.recurrent import Recurrent
from oni.bench.models.result import ForwardTimes, ModelResult
from oni.bench.settings import Settings
from oni.bench.targets import MODEL_TARGETS, judge_targets
from oni.bench.training import TrainingStep, adversarial, classification
from oni.bench.training_times import MethodTimes, TrainingMethod
from oni.cli import main
from oni.recipes.networks.mlp import MLP
from oni.timing import share_of_addition

EPS = torch.finfo(torch.float32).eps


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.score = nn.Linear(4, 1)

    def forward(self, images):
        return self.score(self.conv(images).mean((2, 3))).squeeze(1)


SMALL = models.ModelCase("mlp20-b256", "a small one", partial(MLP, 2, width=8, inputs=12), (12,), 4, quick=True)
CRITIC = models.ModelCase("dcgan-b64", "a critic", Critic, (3, 6, 6), 2, adversarial=True)


@pytest.fixture
def net():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 4 * 4, 8), nn.Linear(8, 5))


def weights(net):
    return [layer.weight.detach() for layer in layers_of(net)]


# The share of what is added


def test_share_is_paired():
    base = {0: 1.0, 1: 100.0, 2: 10.0}
    own = {number: seconds + 1 for number, seconds in base.items()}
    other = {number: seconds + 4 for number, seconds in base.items()}
    assert share_of_addition(own, other, base) == pytest.approx((0.25, 0.25, 0.25))
    # Only rounds in which all three ran count.
    assert share_of_addition(own | {3: 500.0}, other | {4: 7.0}, base).value == pytest.approx(0.25)


def test_share_is_a_ratio_of_medians_with_a_spread():
    base = dict.fromkeys(range(5), 1.0)
    own = {number: 1.0 + extra for number, extra in enumerate([1, 2, 3, 4, 90])}
    other = {number: 1.0 + extra for number, extra in enumerate([5, 6, 6, 6, 0.001])}
    low, value, high = share_of_addition(own, other, base)
    assert value == pytest.approx(3 / 6)
    assert low < value < high
    assert share_of_addition(own, other, base) == (low, value, high)


def test_no_share_of_nothing():
    assert share_of_addition({0: 2.0}, {0: 1.0}, {0: 1.0}) is None
    assert share_of_addition({0: 2.0}, {0: 0.9}, {0: 1.0}) is None
    assert share_of_addition({0: 2.0}, {1: 3.0}, {0: 1.0}) is None
    # What is added may well be less than nothing, in a noisy run.
    assert share_of_addition({0: 0.5}, {0: 2.0}, {0: 1.0}).value == -0.5


# The methods


def test_everyone_starts_from_the_same_weights(net):
    start = weights(net)
    for method in list_training_methods(cached=True):
        dressed = copy.deepcopy(net)
        method.apply(dressed)
        if method.name.startswith(("oni T", "authors", "spectral")):
            originals = [layer.parametrizations.weight.original for layer in layers_of(dressed)]
            assert all(map(torch.equal, originals, start)), method.name
        assert all(torch.equal(a, b) for a, b in zip(weights(net), start, strict=True)), method.name


def test_methods_change_no_more_than_the_layer_asked_for():
    torch.manual_seed(0)
    plain = Recurrent(width=16)
    changed = []
    for method in list_training_methods(only="recurrent"):
        net = copy.deepcopy(plain)
        method.apply(net)
        changed += [(method.name, name) for name, layer in net.named_children() if is_parametrized(layer)]
    assert changed == [(method.name, "recurrent") for method in list_training_methods()[1:]]


@pytest.mark.parametrize("steps", [2, 5])
def test_the_authors_form_is_the_papers(net, steps):
    dressed = copy.deepcopy(net)
    methods_module.apply_authors_form(dressed, steps)
    for Z, W in zip(weights(net), weights(dressed), strict=True):
        expected = oni.orthogonalize(Z.flatten(1), steps, center=True)
        # Theirs adds 1e-5 to a diagonal of 1/3 in the Gram matrix: 3e-5, times the slope of 5 steps, 1.5^5,
        # and the largest singular value over the smallest. Rounding in float32 is below that.
        torch.testing.assert_close(W.flatten(1), expected, rtol=0, atol=1e-3)


def test_the_authors_form_runs_at_each_use(net, monkeypatch):
    calls = []
    whole = methods_module.authors
    monkeypatch.setattr(methods_module, "authors", lambda Z, **options: calls.append(Z.shape) or whole(Z, **options))
    methods_module.apply_authors_form(net, 2)
    calls.clear()
    for _ in range(2):
        net(torch.randn(1, 3, 6, 6))
    assert calls == 2 * [(8, 27), (8, 128), (5, 8)]


def test_torch_orthogonal_is_orthogonal_in_rows(net):
    methods_module.apply_torch_orthogonal(net)
    for W in weights(net):
        W = W.flatten(1)
        # A solve and two products with matrices of the long side, up to 128, whose entries are up to 1; 20 of them.
        torch.testing.assert_close(W @ W.T, torch.eye(len(W)), rtol=0, atol=20 * EPS * 128**0.5)
    net(torch.randn(2, 3, 6, 6)).sum().backward()
    for layer in layers_of(net):
        assert layer.parametrizations.weight.original.grad.abs().sum() > 0


def test_slow_maps_are_foreseen_not_run(net, monkeypatch):
    tried = []

    def fastest(job, *options):
        tried.append(tuple(job.leaves[0].shape))
        return [], (), 0.5

    monkeypatch.setattr(methods_module, "run_fastest", fastest)
    find_fastest_map.cache_clear()
    try:
        # Cayley's is timed at an eighth of the size, Householder's at a quarter.
        assert find_fastest_map((256, 4096), "cpu") == ("householder", 0.5 * 4**3)
        assert tried == [(32, 512), (64, 1024)]
        assert find_fastest_map((256, 512), "cpu") == ("cayley", 0.5)
        assert predict_seconds(net) == 3 * 0.5
    finally:
        find_fastest_map.cache_clear()


def test_what_would_take_too_long_gets_a_word():
    slow = TrainingMethod("slow", lambda net: None, patient=False, predict=lambda net: 15.0)
    assert models.why_skip(slow, nn.Linear(2, 2), 1, 20) == ""
    assert models.why_skip(slow, nn.Linear(2, 2), 2, 20) == "skipped: one step would take about 30 s"


@pytest.mark.parametrize("cached", [False, True])
def test_a_step_trains(cached):
    net = oni.convert(MLP(2, width=8, inputs=12), steps=2)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    step = TrainingStep(net, classification((12,), 4, 10, "cpu"), cached=cached)
    step.optimizer.param_groups[0]["lr"] = 0.1
    first = step()
    assert all(not torch.equal(*pair) for pair in zip(net.parameters(), before, strict=True))
    assert step() < first


def test_the_adversarial_loss_is_cross_entropy():
    torch.manual_seed(3)
    loss = adversarial((2,), 5, "cpu")
    torch.manual_seed(3)
    real, fake = torch.randn(2, 5, 2).unbind()
    score = lambda images: images[:, 0]  # noqa: E731
    expected = nn.functional.binary_cross_entropy_with_logits(
        torch.cat([score(real), score(fake)]), torch.cat([torch.ones(5), torch.zeros(5)])
    )
    # Two formulas for the mean of ten numbers near 1.
    assert loss(score) == pytest.approx(2 * expected, rel=10 * EPS)


# Networks that are done with training


def test_in_evaluation():
    plain = MLP(2, width=8, inputs=12)
    x = torch.randn(3, 12)
    with models.evaluation_copies(plain) as nets:
        assert list(nets) == ["plain", "oni T=5", "oni T=5 cached", "oni T=5 baked", "authors T=5"]
        assert not torch.is_grad_enabled()
        assert not any(module.training for net in nets.values() for module in net.modules())
        outputs = {name: nets[name](x) for name in nets}
        for name in ("oni T=5 cached", "oni T=5 baked"):
            # Three layers, whose weights of up to 12 columns are the result of 29 products, here alone and there in a
            # batch; signals are up to 3.
            torch.testing.assert_close(outputs[name], outputs["oni T=5"], rtol=0, atol=3 * 3 * 29 * EPS * 12**0.5)
        # Equal in time because equal in kind.
        baked, ordinary = nets["oni T=5 baked"], nets["plain"]
        assert [type(module) for module in baked.modules()] == [type(module) for module in ordinary.modules()]
        assert baked.state_dict().keys() == ordinary.state_dict().keys()
        assert not any(module._forward_pre_hooks or module._forward_hooks for module in baked.modules())
    assert torch.is_grad_enabled()


# What follows from the times


@pytest.fixture
def result():
    seconds = {"plain": 1.0, "oni T=2": 1.5, "authors T=2": 3.0, "oni T=5": 3.0, "authors T=5": 5.0}
    result = ModelResult("dcgan-b64", "known times")
    for method in list_training_methods():
        # The second round is slower by the same 10 seconds for all.
        times = {0: seconds[method.name], 1: seconds[method.name] + 10} if method.name in seconds else {}
        result.entries[method.name] = MethodTimes(method, times, "" if times else "skipped: [slow]")
    forward = {"plain": 1.0, "oni T=5 cached": 1.02, "oni T=5 baked": 1.0}
    result.forward = {name: ForwardTimes({0: time, 1: 7 * time}) for name, time in forward.items()}
    return result


def test_verdicts(result):
    verdicts = {
        (verdict.target.quantity, verdict.target.contender): (
            verdict.measured and verdict.measured.value,
            verdict.reached,
        )
        for verdict in judge_targets([result], MODEL_TARGETS)
        if verdict.target.case == "dcgan-b64"
    }
    assert verdicts == {
        ("added time", "oni T=2"): (pytest.approx(0.25), True),
        ("added time", "oni T=5"): (pytest.approx(0.5), True),
        ("step time", "oni T=2 compiled"): (None, None),
        ("step time", "oni T=5 compiled"): (None, None),
        ("forward time", "oni T=5 cached"): (pytest.approx(1.02), True),
        ("forward time", "oni T=5 baked"): (1, True),
    }
    others = [verdict for verdict in judge_targets([result], MODEL_TARGETS) if verdict.target.case != "dcgan-b64"]
    assert {(verdict.measured, verdict.reached) for verdict in others} == {(None, None)}
    assert all(verdict.reached is None for verdict in judge_targets([ModelResult("dcgan-b64", "")], MODEL_TARGETS))


def test_every_target_is_about_someone_who_runs():
    cases = {case.name: case for case in models.MODEL_CASES}
    assert {target.case for target in MODEL_TARGETS} == cases.keys()
    with models.evaluation_copies(nn.Sequential(nn.Linear(3, 3))) as nets:
        forward = set(nets)
    for target in MODEL_TARGETS:
        assert (target.at_least is None) != (target.at_most is None)
        case = cases[target.case]
        trained = {method.name for method in list_training_methods(cached=case.adversarial, compiled=case.compiled)}
        known = forward if target.quantity == "forward time" else trained
        assert target.quantity in ("added time", "step time", "forward time", "delta")
        assert {target.contender, target.over} <= known
    asked = {(t.case, t.contender): t.at_most for t in MODEL_TARGETS if t.quantity == "added time"}
    assert len(asked) == 16
    assert (asked["mlp20-b256", "oni 0.9"], asked["rnn256-b64", "oni 0.9"]) == (0.45, 0.45)
    assert (asked["vgg-g2k1-b8", "oni 0.9"], asked["resnet18-b32", "oni 0.9"]) == (0.8, 0.8)
    assert asked["resnet110-b2", "oni T=2"] == asked["resnet110-b128", "oni T=5"] == pytest.approx(1 / 3)
    assert asked["mlp20-b256", "oni T=5"] == 0.55
    assert (
        asked["vgg-g2k1-b128", "oni T=2"] == asked["resnet18-b32", "oni T=5"] == asked["dcgan-b64", "oni T=2"] == 0.75
    )


def test_settings():
    assert (Settings("models").least_rounds, Settings("models").patience) == (5, 20)
    assert Settings("models", quick=True).patience == 1
    assert (Settings().least_rounds, Settings().patience) == (5, 5)


def test_cases_are_what_they_say():
    for case in models.MODEL_CASES:
        assert case.name.endswith(f"-b{case.batch}")
        assert str(case.batch) in case.about


# The command


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setattr(models, "MODEL_CASES", [SMALL, CRITIC])

    def run(*arguments):
        code = main(["bench", "models", *map(str, arguments)])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_the_command(run, tmp_path):
    path = tmp_path / "bench.json"
    code, out, err = run("--quick", "--cases", "*", "--json", path, "--plain", "--threads", 1)
    assert code == 0
    assert err == "mlp20-b256 (1 of 2)\ndcgan-b64 (2 of 2)\n"
    assert out.isascii()
    assert max(map(len, out.splitlines())) <= 120
    for word in ("a small one", "oni T=5", "authors T=5", "spectral norm", "torch orthogonal", "oni T=2 cached"):
        assert word in out
    assert "Targets" in out
    assert "Left out: 24 targets" in out

    record = json.loads(path.read_text())
    assert record["command"].startswith("oni bench models --quick '--cases=*' --threads=1 --json=")
    assert record["complete"] is True
    assert record["machine"]["threads"] == 1
    assert record["settings"]["patience_seconds"] == 1
    small, critic = record["cases"]
    assert [contender["name"] for contender in small["contenders"]] == [
        method.name for method in list_training_methods()
    ]
    for contender in small["contenders"] + critic["contenders"]:
        assert contender["rounds"] >= 3, contender["note"]
        assert contender["note"] is None
        assert (contender["added_milliseconds"] is None) == (contender["name"] == "plain")
    assert {entry["name"] for entry in small["forward"]} >= {"plain", "oni T=5 cached", "oni T=5 baked"}
    for target in record["targets"]:
        # Compiled ones are left out of a quick run. On a busy machine a peer may seem to add nothing: then there is
        # nothing to divide by, and nothing was measured.
        ran = target["case"] in (SMALL.name, CRITIC.name) and target["quantity"] != "step time"
        assert target["reached"] is None or target["measured"] is not None
        assert ran or target["measured"] is None
        assert (target["measured"] is not None) or not ran or target["quantity"] == "added time"


def test_quick_leaves_the_large_ones_out(run, monkeypatch):
    monkeypatch.setattr(models, "list_training_methods", lambda **options: list_training_methods()[:3])
    assert run("--quick")[2] == "mlp20-b256 (1 of 1)\n"


def test_ctrl_c_keeps_what_was_measured(run, tmp_path, monkeypatch):
    whole = models.interleaved

    def interrupted(calls, times, **options):
        rounds = whole(calls, times, **options)
        next(rounds)
        next(rounds)
        yield 0.1
        raise KeyboardInterrupt

    monkeypatch.setattr(models, "interleaved", interrupted)
    code, out, err = run("--quick", "--json", tmp_path / "bench.json")
    assert code == 130
    assert err.endswith("oni: interrupted\n")
    assert "authors T=5" in out
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["complete"] is False
    assert {contender["rounds"] for contender in record["cases"][0]["contenders"]} == {1}
    assert record["cases"][0]["forward"] == []


def test_who_fails_or_is_slow_gets_a_word(run, monkeypatch):
    def broken(net):
        raise RuntimeError("no [bold] such thing")

    def not_finite(net):
        with torch.no_grad():
            next(net.parameters()).fill_(float("nan"))

    words = [
        TrainingMethod("broken", broken),
        TrainingMethod("wild", not_finite),
        TrainingMethod("slow", lambda net: None, patient=False, predict=lambda net: 60.0),
    ]
    monkeypatch.setattr(models, "list_training_methods", lambda **options: [*list_training_methods()[:2], *words])
    code, out, _ = run("--quick")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line}
    assert rows["broken"].rstrip().endswith("failed: no [bold] such thing")
    assert rows["wild"].rstrip().endswith("failed: not finite")
    assert rows["slow"].rstrip().endswith("skipped: one step would take about 60 s")


def test_a_pattern_that_matches_nothing(run):
    code, out, err = run("--cases", "vgg*")
    assert (code, out) == (2, "")
    assert err == "oni: --cases 'vgg*' matches none of: mlp20-b256, dcgan-b64\n"


def test_delta_is_that_of_all_weights_together():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 6), nn.Conv2d(2, 4, 3))
    for layer in net:
        nn.init.orthogonal_(layer.weight)
    # In float64, of weights in float32: sums of 18 terms.
    assert models.measure_delta(net) < 18 * torch.finfo(torch.float32).eps
    with torch.no_grad():
        for layer in net:
            layer.weight.mul_(0.5**0.5)
    # W W^T is half the identity, of 6 and of 4 rows.
    assert models.measure_delta(net) == pytest.approx((10 / 4) ** 0.5, rel=1e-5)


def test_the_recurrent_weight_is_computed_once():
    calls = []
    net = Recurrent(width=8)
    register_parametrization(net.recurrent, "weight", Unrolled(lambda W: calls.append(0) or W), unsafe=True)
    calls.clear()
    assert net(torch.randn(3, 20, 10)).shape == (3, 10)
    assert len(calls) == 1
