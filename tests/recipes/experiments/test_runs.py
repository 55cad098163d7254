"""One machinery for all experiments: rows become runs, trials choose, what is trained is found again."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from oni.recipes.experiments import runs
from oni.recipes.experiments.errors import list_rates
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.fashion_mnist.family import watch_network
from oni.recipes.experiments.run_costs import estimate_cost
from oni.recipes.experiments.runs import (
    Row,
    Training,
    apply_changes,
    count_steps,
    describe_sweeps,
    measure,
    plan_rows,
    read_finished,
)
from oni.recipes.experiments.search import Search, choose, format_changes, lower_rates
from oni.recipes.experiments.setting import Setting
from oni.recipes.run_files.config import Config
from oni.recipes.training import run as training_run

RESULTS = Path(__file__).parents[3] / "results"
CONFIG = Config(
    data="fashion-mnist-sample",
    samples=64,
    batch_size=16,
    epochs=2,
    drops=(1,),
    network_options={"depth": 1, "width": 4},
    method="plain",
)
TRIAL = {"epochs": 1, "drops": (), "validation": 32, "seed": 0}
ROW = Row("mlp", "MLP", rates=(1e-3, 0.3), rate=0.1)


def make_training(rates=(1e-3, 0.3), **changes):
    candidates = tuple({"learning_rate": rate} for rate in rates)
    return Training("mlp", replace(CONFIG, **changes), Search(candidates, TRIAL))


def list_files(folder):
    return sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))


# What is committed.


needs_results = pytest.mark.skipif(
    not RESULTS.is_dir(), reason="the committed results are not part of the installed package"
)


def read_committed():
    for path in sorted(RESULTS.glob("*/results.json")):
        record = json.loads(path.read_text("utf-8"))
        for run in record["runs"]:
            if "config" in run["parameters"]:
                yield record["id"], Training.from_record(run["parameters"]), run["measured"]


@needs_results
def test_committed_runs_keep_their_hash():
    """Who has trained them finds them again, and their trials are in the order of their candidates."""
    ids = set()
    for id, training, measured in read_committed():
        chosen = measured.get("chosen", {})
        config = training.with_choice(chosen)
        assert config.name == measured["run"], (id, training.describe())
        assert measured["run"].endswith(f"-{config.hash}")
        if training.search:
            assert chosen in training.search.candidates
            assert list(measured["tried"]) == [format_changes(candidate) for candidate in training.search.candidates]
        assert config.learning_rate == pytest.approx(measured.get("learning_rate", config.learning_rate), rel=1e-5)
        ids.add(id)
    assert {"fig5", "fig8a", "table2", "table3", "practice"} <= ids, "one of each family at least"


@needs_results
def test_committed_choices_are_the_best_of_what_was_tried():
    searched = unrecorded = 0
    for id, training, measured in read_committed():
        if training.search:
            errors = list(measured["tried"].values())
            trials = [SimpleNamespace(diverged=error is None, metrics={"validation_error": error}) for error in errors]
            search = replace(training.search, radius=None)  # the record has the numbers, whatever they are of
            best, own = choose(search, trials)
            assert own == errors, (id, training.describe())
            # A lower rate than the best one only where the run diverged at that.
            attempts = [best, *lower_rates(search, best)]
            diverged = measured.get("diverged")
            if diverged is None and measured["chosen"] != best:
                # From before these were recorded.
                assert measured["chosen"] in attempts, (id, training.describe())
                unrecorded += 1
            else:
                diverged = diverged or []
                assert diverged == [attempt["learning_rate"] for attempt in attempts[: len(diverged)]]
                assert measured["chosen"] == attempts[len(diverged)], (id, training.describe())
            searched += 1
    assert searched > 50
    assert unrecorded <= 1  # certified: Cholesky on CIFAR-10


# Records.


@pytest.mark.parametrize(
    "training",
    [
        Training("mlp", CONFIG),
        Training("mlp", Config()),
        make_training(),
        Training("a", CONFIG, Search(({"method_options.x": None, "learning_rate": 0.1}, {}), TRIAL, 0.5), "g, batch 2"),
        Training("gan", replace(CONFIG, momentum=0.5), None, "DCGAN", 20, 30, "learning rate 0.1"),
    ],
)
def test_a_record_is_read_back(training):
    record = json.loads(json.dumps(training.as_record()))
    assert Training.from_record(record) == training
    # What has its default is left out, so that a field that is added later changes no record.
    assert record["config"].keys().isdisjoint({"nesterov", "accumulate", "weight_decay"})
    assert ("search" in record) == (training.search is not None)
    assert ("group" in record) == bool(training.group)
    assert ("images" in record) == bool(training.images)


@pytest.mark.parametrize("record", [{"row": "mlp"}, {"row": "mlp", "config": {}, "widht": 3}])
def test_what_is_no_run_is_refused(record):
    with pytest.raises(ValueError, match="a run has config, group, images"):
        Training.from_record(record)


# From rows to runs.


def test_a_run_of_every_row_with_every_seed():
    rows = [ROW, replace(ROW, name="oni", changes={"method": "oni", "method_options.steps": 3}, rate=0.2, seeds=2)]
    runs = plan_rows(rows, CONFIG, range(5, 8), group="small")
    # All rows with the first seed come first; a row may have fewer.
    assert [(run.row, run.seed) for run in runs] == [("mlp", 5), ("oni", 5), ("mlp", 6), ("oni", 6), ("mlp", 7)]
    assert {(run.row, run.learning_rate, run.search, run.group) for run in runs} == {
        ("mlp", 0.1, None, "small"),
        ("oni", 0.2, None, "small"),
    }
    assert runs[1].config == replace(
        CONFIG, seed=5, learning_rate=0.2, method="oni", method_options={**runs[1].config.method_options, "steps": 3}
    )


def test_trials_choose_among_rates_and_candidates():
    decays = ({"weight_decay": 1e-4}, {"weight_decay": 2e-4})
    row = replace(ROW, candidates=decays, trial={"momentum": 0.5})
    (run,) = plan_rows([row], CONFIG, [3], trial=TRIAL)
    assert run.search.candidates == tuple({**decay, "learning_rate": rate} for decay in decays for rate in ROW.rates)
    # Trials have what is said of them, and what the row says of its own.
    for trial, candidate in zip(run.trials(), run.search.candidates, strict=True):
        assert trial == replace(CONFIG, **TRIAL, **candidate, momentum=0.5)
        assert run.with_choice(candidate) == replace(CONFIG, seed=3, **candidate)
    assert (run.epochs, run.trial_epochs) == (2, 1)
    assert run.describe() == "mlp, best of 4 trials, seed 3"
    (fewer,) = plan_rows([row], CONFIG, [3], trial=TRIAL, every_candidate=False, rates=(0.5, 0.6, 0.7))
    assert fewer.search.candidates == tuple({"weight_decay": 1e-4, "learning_rate": rate} for rate in (0.5, 0.6, 0.7))
    # Without trials, the first candidate and the row's own rate.
    (alone,) = plan_rows([row], CONFIG, [3], group="g")
    assert (alone.search, alone.trials(), alone.trial_epochs) == (None, [], 0)
    assert alone.config == replace(CONFIG, seed=3, weight_decay=1e-4, learning_rate=0.1)
    assert alone.describe() == "g/mlp, seed 3"
    # With one to choose from there is nothing to try.
    (single,) = plan_rows([replace(ROW, rates=(0.3,))], CONFIG, [0], trial=TRIAL)
    assert (single.search, single.learning_rate) == (None, 0.3)


def test_rates_are_scaled_where_batches_have_another_size():
    searched, alone = (
        plan_rows([ROW], replace(CONFIG, batch_size=4), [0], trial=trial, rate_factor=0.25, images=(7, 9))[0]
        for trial in ({**TRIAL, "batch_size": 16}, None)
    )
    assert {(trial.batch_size, trial.learning_rate) for trial in searched.trials()} == {(16, 1e-3), (16, 0.3)}
    config = searched.with_choice({"learning_rate": 0.3})
    assert (config.batch_size, config.learning_rate) == (4, 0.075)
    assert alone.learning_rate == 0.025
    assert (alone.images, alone.real_images) == (7, 9)


@pytest.mark.parametrize("options", [{}, {"trial": TRIAL}, {"trial": TRIAL, "rates": (0.0,)}])
def test_a_row_without_a_rate_is_an_error(options):
    with pytest.raises(ValueError, match="mlp has no learning rate; give its row a rate, or rates to choose from"):
        plan_rows([Row("mlp", "MLP")], CONFIG, [0], **options)


def test_an_option_of_another_method_does_not_concern_a_run():
    assert apply_changes(CONFIG, {"method_options.steps": 3}) == CONFIG
    assert apply_changes(CONFIG, {"method_options.steps": 3, "method": "oni"}).method_options["steps"] == 3
    for key in ("method_options.setps", "widht"):
        with pytest.raises(ValueError, match=key.rpartition(".")[2]):
            apply_changes(CONFIG, {key: 3})


def test_what_rows_differ_in_is_not_overridden():
    rows = [
        Row("a", "A", {"method": "oni", "method_options.start": "given", "method_options.steps": 1}),
        Row("b", "B", {"method": "oni", "method_options.start": "given", "method_options.steps": 2}),
        Row("c", "C", {"method": "oni", "method_options.start": "given", "network_options.norm": "batch"}),
    ]
    compares = "compares A, B, C"
    varied = {"method": compares, "method_options.steps": compares, "network_options.norm": compares}
    assert describe_sweeps(rows, network="has its own") == {**varied, "network": "has its own"}
    # The method is what rows are named after, also where they share it; rates are chosen on what is held out.
    decays = ({"weight_decay": 0.0}, {"weight_decay": 1e-4})
    row = replace(rows[0], candidates=decays, rates=(0.1,))
    assert describe_sweeps([row, replace(row, name="d")]) == {
        "method": "compares A",
        "weight_decay": "compares A",
        "validation": "holds samples out to choose learning rates by",
    }


# Overrides.


def test_what_the_user_says_counts_in_trials():
    training = make_training().override({"momentum": 0.5, "validation": 16, "method_options.steps": 3})
    assert {(trial.momentum, trial.validation, trial.epochs) for trial in training.trials()} == {(0.5, 16, 1)}
    assert (training.config.momentum, training.config.validation) == (0.5, 16)
    drops = make_training().override({"drops": "1"})
    assert {config.drops for config in (drops.config, *drops.trials())} == {(1,)}


def test_sizes_are_the_preset_s():
    training = make_training()
    assert training.override({"epochs": 9, "samples": 5, "data": "fashion-mnist"}) == training


def test_a_learning_rate_leaves_nothing_to_search():
    training = make_training().override({"learning_rate": 0.7})
    assert (training.search, training.trials(), training.learning_rate) == (None, [], 0.7)
    assert training.with_choice({}) == replace(CONFIG, learning_rate=0.7)


def test_a_batch_size_is_that_of_trials_too_and_the_rate_is_not_scaled():
    searched = replace(make_training(), search=Search(({"learning_rate": 0.4},) * 2, {**TRIAL, "batch_size": 16}, 0.25))
    assert searched.with_choice({"learning_rate": 0.4}).learning_rate == 0.1
    training = searched.override({"batch_size": 8})
    assert {config.batch_size for config in (training.config, *training.trials())} == {8}
    assert training.with_choice({"learning_rate": 0.4}).learning_rate == 0.4
    assert searched.override({"momentum": 0.5}).search.rate_factor == 0.25


# Choosing.


@pytest.mark.parametrize(
    ("errors", "best"),
    [((0.3, 0.2, 0.4), 1), ((0.2, 0.1, 0.1), 1), ((None, 0.5, 0.4), 2), ((None, None, 0.9), 2), ((None,) * 3, 0)],
)
def test_the_least_error_on_held_out_samples_is_chosen(errors, best):
    """The first of equals; the first where all diverge."""
    training = make_training((0.1, 0.2, 0.3))
    # The error of a run that diverged is that of weights before it did, and may be low.
    metrics = [{"validation_error": 0.01 if error is None else error} for error in errors]
    tried = [
        SimpleNamespace(diverged=error is None, metrics=numbers) for error, numbers in zip(errors, metrics, strict=True)
    ]
    assert choose(training.search, tried) == (training.search.candidates[best], list(errors))


def test_nothing_is_chosen_without_a_search():
    assert choose(None, []) == ({}, [])


def test_a_search_is_trained_and_measured(tmp_path):
    # So large a rate that the first step overflows.
    training, setting = make_training((1e-4, 0.5, 1e38)), Setting(tmp_path, progress="none")
    measured = measure(training, setting)
    errors = measured["tried"]
    assert list(errors) == ["learning rate 0.0001", "learning rate 0.5", "learning rate 1e+38"]
    assert errors["learning rate 1e+38"] is None
    rate = min((1e-4, 0.5), key=lambda rate: errors[f"learning rate {rate:g}"])
    assert (measured["chosen"], measured["learning_rate"]) == ({"learning_rate": rate}, rate)
    assert measured["run"] == replace(CONFIG, learning_rate=rate).name
    assert len(measured["train_error"]) == len(measured["test_error"]) == CONFIG.epochs
    assert "validation_error" not in measured, "nothing is held out once the rate is known"
    assert measured["cost"]["steps"] == training.steps == 2 * (64 // 16)
    # The trials are runs like all others: what is there is not trained again, by whoever needs it.
    before = list_files(tmp_path)
    assert measure(training, setting) == measured
    (trial, *_) = training.trials()
    alone = measure(Training("alone", trial), setting)
    assert alone["validation_error"] == [errors["learning rate 0.0001"]]
    assert "chosen" not in alone
    assert list_files(tmp_path) == before


def test_a_run_of_which_no_rate_trains_shows_that(tmp_path):
    training = make_training((1e38, 3e38))
    measured = measure(training, Setting(tmp_path, progress="none"))
    assert (measured["chosen"], measured["status"]) == ({"learning_rate": 1e38}, "diverged")
    assert set(measured["tried"].values()) == {None}


def test_a_run_that_diverges_is_trained_again_at_the_next_lower_rate(tmp_path, monkeypatch):
    """Trials are short, so the rate that is best in them may be too large for the run."""
    training, setting = make_training(rates=(1e-3, 1e-2, 1e38)), Setting(tmp_path, progress="none")
    monkeypatch.setattr(runs, "choose", lambda search, tried: (search.candidates[-1], [0.3, 0.2, 0.1]))
    measured = measure(training, setting)
    assert (measured["chosen"], measured["status"]) == ({"learning_rate": 1e-2}, "finished")
    assert (measured["learning_rate"], measured["diverged"]) == (1e-2, [1e38])
    assert str(list_rates(Results([Run(training, measured)]))) == "0.01; diverged at 1e+38"
    assert read_finished(training, setting)[-1].folder.name == measured["run"]


def test_what_is_watched_is_kept_if_asked_for(tmp_path):
    training = Training("mlp", replace(CONFIG, watch=("spectrum", "signal")))
    setting = Setting(tmp_path, progress="none")
    assert measure(training, setting, watchers=watch_network).keys().isdisjoint({"spectrum", "signal"})
    kept = measure(training, setting, keep=["signal"], watchers=watch_network)
    assert "spectrum" not in kept
    assert sorted(kept["signal"]) == [0, training.steps]


# What is finished.


def test_a_run_is_finished_when_it_and_all_its_trials_are(tmp_path, monkeypatch):
    training, setting = make_training(), Setting(tmp_path, progress="none")
    first, second = training.trials()

    def find():
        with monkeypatch.context() as patch:
            patch.setattr(training_run, "train", lambda *_, **__: pytest.fail("trained"))
            return read_finished(training, setting)

    assert find() is None
    # The run itself alone says nothing: which one it is depends on the trials.
    for config in (training.with_choice({"learning_rate": 1e-3}), training.with_choice({"learning_rate": 0.3})):
        measure(Training("mlp", config), setting)
        assert find() is None
    measure(Training("mlp", first), setting)
    assert find() is None
    measure(Training("mlp", second), setting)
    before = list_files(tmp_path)
    results = find()
    assert [result.config for result in results[:2]] == [first, second]
    chosen, _ = choose(training.search, results[:2])
    assert results[2].config == training.with_choice(chosen)
    assert list_files(tmp_path) == before
    # Without a search, the run alone is enough.
    alone = Training("mlp", training.with_choice(chosen))
    assert [result.config for result in read_finished(alone, setting)] == [alone.config]
    assert read_finished(replace(alone, config=replace(alone.config, seed=1)), setting) is None


# How long runs take.


def test_steps():
    assert count_steps(CONFIG) == 2 * 4
    whole = replace(CONFIG, samples=0, batch_size=256)
    assert count_steps(whole) == 2 * (10_000 // 256)
    assert count_steps(replace(whole, validation=1000)) == 2 * (9000 // 256)
    assert count_steps(replace(CONFIG, validation=32)) == 2 * 4, "samples are those that are left to train on"


def make_gan(**options):
    return Training(
        "gan",
        Config(
            data="fashion-mnist-sample",
            task="gan",
            task_options={"updates": 7, **options},
            network="dcgan",
            network_options={"width": 2, "channels": 1},
            method="sn",
            optimizer="adam",
            batch_size=8,
            epochs=3,
            drops=(),
        ),
    )


def test_cost_grows_with_all_that_takes_time():
    def cost(**changes):
        options = {"depth": 2, "width": 64, **changes.pop("network_options", {})}
        return estimate_cost(Training("mlp", replace(CONFIG, network_options=options, **changes)))

    assert cost(epochs=4) == 2 * cost() > 0
    assert cost(samples=128) == 2 * cost()
    # Twice the batch: half the steps, of which each takes less than twice as long.
    assert 0.5 * cost() < cost(batch_size=32) < cost()
    assert cost(network_options={"depth": 4}) > cost()
    assert cost(network_options={"width": 128}) > cost()
    assert cost(method="oni") > cost()
    searched = make_training()
    alone = estimate_cost(replace(searched, search=None))
    # Two trials of half the length.
    assert estimate_cost(searched) == 2 * alone
    assert make_gan().steps == 3 * 7
    assert estimate_cost(make_gan(n_dis=5)) == 3 * estimate_cost(make_gan(n_dis=1))


def test_a_search_by_certificates():
    """The candidate that certifies most is chosen, whatever its error."""
    candidates = ({"learning_rate": 0.1}, {"learning_rate": 0.2})
    tried = [
        SimpleNamespace(
            diverged=False,
            metrics={"validation_error": error},
            watched={"certified": {10: {"radius": [0.0, 0.5, 1.0], "share": [1 - error, share, 0.0]}}},
        )
        for error, share in ((0.1, 0.25), (0.2, 0.75))
    ]
    assert choose(Search(candidates, {}, radius=0.5), tried) == (candidates[1], [0.75, 0.25])
    assert choose(Search(candidates, {}), tried) == (candidates[0], [0.1, 0.2])
