"""The study of certificates: its plan, claims that hold and fail where they should, and the smallest preset."""

import json

import pytest
import torch

import oni
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.studies import family
from oni.recipes.experiments.studies.certified import EXPERIMENT
from oni.recipes.networks.mlp import MLP
from oni.recipes.training.watch import RADII, certify


def make_results(certified, accuracy=lambda run: 85.0, bound=lambda run: 1.0):
    """Results of the preset full, in percent by functions of the run; seeds are a tenth of a point apart."""
    runs = []
    for run in EXPERIMENT.planned("full"):
        if isinstance(run, family.MethodTimes):
            runs.append(Run(run, {"milliseconds": {"sn": [9.0, 10.0, 11.0], "oni-2": [19.0, 20.0, 21.0]}}))
            continue
        shift = run.seed / 10
        share = [max(0.0, (certified(run) + shift) / 100)] * len(RADII)
        measured = {
            "status": "finished",
            "learning_rate": 0.001,
            "test_error": [0.5, 1 - (accuracy(run) + shift) / 100],
            "certified": {"bound": bound(run), "radius": [round(radius, 4) for radius in RADII], "share": share},
            "cost": {"steps": 585, "seconds": 60.0, "threads": 1, "precision": "32-true"},
        }
        runs.append(Run(run, measured))
    return Results(runs)


def verdicts(results):
    return {claim["text"]: claim["verdict"] for claim in EXPERIMENT.judge(results, "full")}


def is_sn(run):
    return run.row.startswith("sn")


def test_the_plan():
    planned = [run for run in EXPERIMENT.planned("full") if not isinstance(run, family.MethodTimes)]
    assert {run.row for run in planned} == {row.name for row in family.ROWS}
    assert {run.seed for run in planned} == {0, 1, 2}
    assert all(run.config.change_output for run in planned), "a plain output layer would have no bound"
    temperatures = {
        row: {run.config.task_options["temperature"] for run in planned if run.row == row and "fashion" in run.group}
        for row in ("sn", "sn-orthogonal", "oni-2", "oni-5", "oni-0.99", "cayley", "oni-0", "cholesky", "torchlip")
    }
    assert set(map(len, list(temperatures.values())[:6])) == {4}
    assert set(map(len, list(temperatures.values())[6:])) == {1}
    # Each row chooses its rate once, at one temperature and with one seed, by what it certifies.
    for name, exact in (("fashion-mnist", "cayley"), ("cifar10", "cholesky")):
        for row in ("sn", "oni-2", exact):
            runs = [run for run in planned if run.row == row and run.group.startswith(name)]
            assert {run.search.radius for run in runs} == {family.USUAL[name]}
            assert len({config.hash for run in runs for config in run.trials()}) == len(family.RATES)
    assert len({run.config.hash for run in planned}) == len(planned)


def test_claims_hold_where_newton_is_ahead_of_spectral_norm():
    results = make_results(lambda run: 50.0 if is_sn(run) else 60.0)
    assert set(verdicts(results).values()) == {"held"}


def test_claims_do_not_hold_where_it_is_behind():
    results = make_results(
        lambda run: 70.0 if is_sn(run) else 80.0 if run.row in ("cayley", "cholesky") else 60.0,
        lambda run: 88.0 if is_sn(run) else 85.0,
        lambda run: 1.01,
    )
    assert set(verdicts(results).values()) == {"not held"}


def test_one_temperature_that_is_behind_is_enough_to_fail():
    def certified(run):
        return 50.0 if is_sn(run) != (run.config.task_options["temperature"] == 32) else 60.0

    found = verdicts(make_results(certified))
    assert (
        found[
            "Fashion-MNIST: at equal temperature ONI with 2 and with 5 steps certifies more at 0.5 than spectral norm"
        ]
        == "not held"
    )
    assert (
        found["CIFAR-10: at equal temperature ONI with 2 and with 5 steps certifies more at 36/255 than spectral norm"]
        == "held"
    )


def test_less_than_the_test_images_tell_is_undecided():
    # 10,000 images tell two shares of 55 % apart if they differ by 1.4 points.
    found = verdicts(make_results(lambda run: 55.0 if is_sn(run) else 56.0))
    assert {verdict for text, verdict in found.items() if "certifies more" in text} == {"undecided"}


def test_one_seed_and_no_runs_decide_nothing():
    results = make_results(lambda run: 50.0 if is_sn(run) else 60.0)
    found = verdicts(Results(run for run in results if run.parameters.seed == 0))
    assert {verdict for text, verdict in found.items() if "Lipschitz" not in text} == {"not tested"}
    found = verdicts(Results(run for run in results if run.parameters.group.startswith("fashion")))
    assert {verdict for text, verdict in found.items() if "CIFAR" in text} == {"not tested"}


def test_a_run_that_diverged_certifies_nothing_and_one_of_a_missing_library_is_left_out():
    results = list(make_results(lambda run: 60.0))
    diverged = next(index for index, run in enumerate(results) if run.parameters.row == "oni-2")
    results[diverged] = Run(
        results[diverged].parameters,
        {"status": "diverged", "learning_rate": 0.03, "test_error": [], "cost": results[0].measured["cost"]},
    )
    assert family.certified_at(results[diverged], 0.5) == 0
    assert family.clean_accuracy(results[diverged]) == 10
    skipped = {"status": "skipped", "reason": "orthogonium is not installed"}
    is_missing = [getattr(run.parameters, "row", "") == "orthogonium" for run in results]
    left = Results(
        Run(run.parameters, skipped) if missing else run for run, missing in zip(results, is_missing, strict=True)
    )
    table = EXPERIMENT.table(left)
    assert "Not trained: orthogonium is not installed." in table.note
    assert not any("orthogonium" in row[0] for row in table.rows)
    assert EXPERIMENT.charts(left)


def test_what_the_study_sweeps_is_refused():
    for key in ("data", "network", "learning_rate", "method", "method_options.steps", "task_options.temperature"):
        with pytest.raises(ValueError, match="can't be overridden for certified"):
            EXPERIMENT.check_overrides({key: 1})


def test_certify_is_the_share_of_radii_above():
    from oni.recipes.data.datasets import load_dataset
    from oni.recipes.run_files.config import Config
    from oni.recipes.training.parts import split

    config = Config(data="fashion-mnist-sample", normalise="mean-std")
    part = split(load_dataset("fashion-mnist-sample"), config, torch.device("cpu"), torch.float32).test
    network = oni.convert(MLP(1, width=16, activation="groupsort"), steps=3)
    found = certify(network, part)
    images, labels = part.batch(torch.arange(len(part)))
    plain = oni.bake(network).eval()
    radii = oni.diagnostics.certified_radius(plain, images, labels) * part.deviation.min()
    assert found["share"][0] == pytest.approx(float((radii > 0).double().mean()))
    assert found["share"][1] == pytest.approx(float((radii > 0.05).double().mean()))
    assert found["bound"] <= 1.0001
    accuracy = float((plain(images).argmax(1) == labels).double().mean())
    assert 0 < found["share"][2] <= found["share"][0] <= accuracy


def test_the_smallest_preset_by_the_command(run, tmp_path):
    code, out, _ = run("reproduce", "certified", "--preset", "smoke", "--out", tmp_path, "--plain", "--only", "*oni-2*")
    assert code == 0, out
    assert "fashion-mnist/oni-2" in out
    assert "cifar10/oni-2" in out
    code, out, _ = run("reproduce", "certified", "--preset", "smoke", "--out", tmp_path, "--json", "--finished")
    assert code == 0
    record = json.loads((tmp_path / "certified" / "results.json").read_text())
    assert {claim["verdict"] for claim in record["claims"]} == {"not tested"}
    certificate = record["runs"][0]["measured"]["certified"]
    assert certificate["bound"] <= 1.0001
    assert certificate["share"] == sorted(certificate["share"], reverse=True)


def test_times_are_measured_in_turns_and_shown():
    results = make_results(lambda run: 60.0)
    table = EXPERIMENT.table(results)
    shown = {row[0]: row[table.columns.index("ms per step")] for row in table.rows}
    assert shown["fashion-mnist, 8, spectral norm"] == "10"
    assert shown["fashion-mnist, 8, Cayley"] == "-"
    by_time = next(chart for chart in EXPERIMENT.charts(results) if "by time" in chart.title)
    # 5 epochs of 117 batches.
    assert {series.name: series.x[0] for series in by_time.series} == {
        "spectral norm": pytest.approx(585 * 0.01 / 60),
        "ONI, T = 2": pytest.approx(585 * 0.02 / 60),
    }
    without = Results(run for run in results if not isinstance(run.parameters, family.MethodTimes))
    assert not any("by time" in chart.title for chart in EXPERIMENT.charts(without))


def test_the_time_of_a_step(monkeypatch):
    monkeypatch.setattr(family, "ROWS", (family.SN, family.ONI[2]))
    milliseconds = family.MethodTimes("fashion-mnist", 0, 0.01).measure()["milliseconds"]
    assert list(milliseconds) == ["sn", "oni-2"]
    assert all(0 < low <= median <= high for low, median, high in milliseconds.values())
