"""That the demo shows what it is for is proven where it is run in full: by `make demo` in .ci/run."""

import json
from collections import Counter

import pytest

from oni.cli import main
from oni.recipes.demo import NEXT
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.fashion_mnist.demo import EXPERIMENT, RATES
from oni.recipes.experiments.runs import Training


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "[bold]:smile:"
    return out, main(["demo", "--out", str(out), "--preset", "smoke", "--plain"])


def test_everything_is_written(shown):
    out, code = shown
    assert code == 0
    record = json.loads((out / "demo" / "results.json").read_text())
    trained = Counter()
    for run in record["runs"]:
        config = Training.from_record(run["parameters"]).config
        trained[config.method, config.network_options["norm"], config.learning_rate] += 1
    networks = (("he", "none"), ("orth-init", "none"), ("he", "batch"), ("oni", "none"))
    assert trained == {(*network, rate): 1 for network in networks for rate in RATES}
    assert len(list((out / "runs").iterdir())) == 4 * len(RATES)
    report = (out / "report.html").read_text("utf-8")
    assert "batch norm" in report
    assert "Test error over learning rate" in report


def test_again_it_trains_nothing(shown, capsys):
    out, _ = shown
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}
    assert main(["demo", "--out", str(out), "--preset", "smoke", "--plain"]) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")} == before
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert str(out / "report.html") in printed


def make_results(largest):
    """Results in which every network trains up to some learning rate, and diverges above it."""
    runs = []
    for parameters in EXPERIMENT.planned("laptop"):
        config = parameters.config
        name = "bn" if config.network_options["norm"] == "batch" else config.method
        errors = [0.5, 0.4, 0.3, 0.2] if parameters.learning_rate <= largest[name] else []
        runs.append(Run(parameters, {f"{part}_error": errors for part in ("train", "validation", "test")}))
    return Results(runs)


@pytest.mark.parametrize(
    ("largest", "verdict"),
    [
        ({"he": 0.3, "orth-init": 0.3, "bn": 1.0, "oni": 1.0}, "held"),
        ({"he": 0.3, "orth-init": 1.0, "bn": 1.0, "oni": 1.0}, "not held"),
        ({"he": 0.3, "orth-init": 0.3, "bn": 1.0, "oni": 0.3}, "not held"),
        ({"he": 0.0, "orth-init": 0.0, "bn": 0.0, "oni": 0.0}, "not held"),
    ],
)
def test_the_claim_can_fail(largest, verdict):
    results = make_results(largest)
    assert [claim["verdict"] for claim in EXPERIMENT.judge(results, "laptop")] == [verdict]
    assert [claim["verdict"] for claim in EXPERIMENT.judge(results, "smoke")] == ["not tested"]


def test_what_comes_next_runs():
    exec(NEXT, {})
