"""Practice: the best rate is chosen on held-out images, time counts, and claims hold and fail where they should."""

from dataclasses import replace

import pytest

from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.studies import practice, step_times
from oni.recipes.experiments.studies.family import MethodTimes
from oni.recipes.experiments.studies.step_times import StepTimes, time_networks, time_steps
from oni.recipes.experiments.studies.trials import BATCH_NORM, HE, ONI, best_trials, find_longer, make_rows

EXPERIMENT = practice.EXPERIMENT
TIMES = {
    "He initialisation": [9.0, 10.0, 11.0],
    "OrthInit x sqrt 2": [9.0, 10.0, 11.0],
    "batch norm": [14.0, 15.0, 16.0],
}


def is_trial(run):
    return not isinstance(run, StepTimes) and run.group.startswith("learning rate")


def is_longer(run):
    return not isinstance(run, StepTimes) and run.group == "longer"


def depth_of(run):
    return run.config.network_options["depth"]


def is_oni(run):
    return run.config.method == "oni"


def make_results(test=lambda run: 20.0, validation=None, train=lambda run: 20.0, later=lambda run: 15.0, oni_ms=100.0):
    """Results of the preset full, with errors in percent that functions of the run give."""
    runs = []
    for parameters in EXPERIMENT.planned("full"):
        if isinstance(parameters, StepTimes):
            measured = {"milliseconds": {**TIMES, "ONI": [oni_ms, oni_ms, oni_ms]}}
        elif is_longer(parameters):
            measured = {"learning_rate": 0.1, "test_error": [later(parameters) / 100] * parameters.epochs}
        else:
            parts = {"test": test, "validation": validation or test, "train": train}
            measured = {f"{part}_error": [0.9, 0.5, errors(parameters) / 100] for part, errors in parts.items()}
        runs.append(Run(parameters, measured))
    return Results(runs)


def replace_seed(run, seed):
    parameters = run.parameters
    return Run(replace(parameters, config=replace(parameters.config, seed=seed)), run.measured)


def verdicts(results):
    return {claim["text"]: claim["verdict"] for claim in EXPERIMENT.judge(results, "full")}


def test_the_runs():
    planned = EXPERIMENT.planned("full")
    trials = [run for run in planned if is_trial(run)]
    assert len({run.row for run in trials}) == 3 * 4
    assert {run.seed for run in trials} == {0, 1, 2}
    for depth in (10, 20, 50):
        rates = {run.learning_rate for run in trials if depth_of(run) == depth}
        assert max(rates) / min(rates) == pytest.approx(100)
    assert len({run.config.hash for run in trials}) == len(trials)
    assert {run.config.validation for run in trials} == {5000}
    assert {run.search for run in trials} == {None}
    # The quick networks come first, so that there is something to look at.
    assert [is_oni(run) for run in trials] == sorted(is_oni(run) for run in trials)


def test_longer_runs_choose_among_the_trials_of_their_seed():
    planned = EXPERIMENT.planned("full")
    trials = {run.config.hash for run in planned if is_trial(run)}
    longer = [run for run in planned if is_longer(run)]
    assert len(longer) == 3 * 3
    for run in longer:
        assert (run.seed, run.epochs, run.trial_epochs, is_oni(run)) == (0, 30, 3, False)
        hashes = {config.hash for config in run.trials()}
        assert len(hashes) == 5
        assert hashes < trials, "nothing is trained twice"


def test_the_best_rate_is_chosen_on_held_out_images():
    results = make_results(
        test=lambda run: 10.0 if run.learning_rate == 0.3 else 20.0,
        validation=lambda run: 10.0 if run.learning_rate == 0.1 else 20.0,
    )
    best = best_trials(results, HE, 20)
    assert {run.parameters.learning_rate for run in best} == {0.1}
    assert len(best) == 3


def test_a_run_that_diverged_is_never_the_best():
    results = make_results()
    for run in results:
        if is_trial(run.parameters) and run.parameters.learning_rate == 0.01:
            for values in run.measured.values():
                values[:] = []
    assert best_trials(results, HE, 20)[0].parameters.learning_rate != 0.01


def error_of(ours, others, spread=0.1):
    """Errors by method; the second seed is higher than the first by ``spread``, the third lower."""
    return lambda run: (ours if is_oni(run) else others) + (0, spread, -spread)[run.seed]


def test_claims_about_test_errors():
    text = "20 layers: ONI has the lowest test error"
    assert verdicts(make_results(error_of(10, 12)))[text] == "held"
    assert verdicts(make_results(error_of(12, 10)))[text] == "not held"
    # Two points are less than seeds differ, or less than half a point on 10,000 test images.
    assert verdicts(make_results(error_of(10, 12, spread=3)))[text] == "undecided"
    assert verdicts(make_results(error_of(10, 10.5)))[text] == "undecided"
    assert verdicts(make_results(error_of(10.5, 10)))[text] == "undecided"
    assert {claim["kind"] for claim in EXPERIMENT.judge(make_results(), "full")} == {"ours"}


def test_time_counts():
    # By epoch ONI is ahead; in the time that it takes, the others go further.
    results = make_results(error_of(12, 20), later=lambda run: 11.0)
    assert verdicts(results)["20 layers: ONI has the lowest test error"] == "held"
    assert practice.errors_at_equal_time(results, HE, 20) == [11.0]
    # Three epochs of ONI in 100 ms steps are 30 epochs of 10 ms and 20 of 15 ms.
    results = make_results(later=lambda run: 50.0)
    for network, epochs in ((HE, 30), (BATCH_NORM, 20)):
        (longer,) = find_longer(results, network, 20)
        longer.measured["test_error"][epochs - 1] = 0.125
        assert practice.errors_at_equal_time(results, network, 20) == [12.5]


def test_rates_that_can_be_used():
    results = make_results(lambda run: 10.0 if is_oni(run) or run.learning_rate == 0.1 else 12.5)
    assert len(practice.usable_rates(results, ONI, 20)) == 5
    assert practice.usable_rates(results, HE, 20) == [0.1]
    # Wide around a bad error is not usable.
    results = make_results(lambda run: 30.0 if is_oni(run) else 10.0)
    assert practice.usable_rates(results, ONI, 20) == []


def test_depth_50():
    assert verdicts(make_results(train=lambda run: 20.0))["ONI trains 50 layers"] == "held"
    results = make_results(train=lambda run: 90.0 if depth_of(run) == 50 and is_oni(run) else 20.0)
    assert verdicts(results)["ONI trains 50 layers"] == "not held"
    # Where He initialisation does not train either, that says nothing of ONI.
    results = make_results(train=lambda run: 90.0 if depth_of(run) == 50 else 20.0)
    assert verdicts(results)["ONI trains 50 layers"] == "not tested"
    results = make_results(train=lambda run: 50.0 + run.seed if depth_of(run) == 50 and is_oni(run) else 20.0)
    assert verdicts(results)["ONI trains 50 layers"] == "undecided"


def test_fewer_seeds_judge_nothing():
    results = make_results()
    first = Results(run for run in results if run.parameters.seed == 0)
    assert {claim["verdict"] for claim in EXPERIMENT.judge(first, "full")} == {"not tested"}


def test_table_and_charts():
    results = make_results()
    rows = EXPERIMENT.table(results).rows
    assert [row[0] for row in rows[:4]] == [
        "10 layers, He initialisation",
        "10 layers, OrthInit x sqrt 2",
        "10 layers, batch norm",
        "10 layers, ONI",
    ]
    assert rows[0][2:] == ["20.00 ± 0.00", "20.00 ± 0.00", "5 of 5", "5 of 5", "10.0", "15.00", "3"]
    charts = practice.charts(results)
    assert len(charts) == 9
    for chart in charts:
        assert [series.name for series in chart.series] == [*practice.NETWORKS]
    by_time = charts[6]
    # 214 batches of the 55,000 images in an epoch, 10 ms each.
    assert by_time.series[0].x[0] == pytest.approx(2.14)
    assert by_time.series[3].x[0] == pytest.approx(21.4)


@pytest.mark.parametrize("key", ["learning_rate", "method", "network_options.depth", "method_options.steps"])
def test_what_it_sweeps_is_refused(key):
    with pytest.raises(ValueError, match=f"{key} can't be overridden for practice, which "):
        EXPERIMENT.check_overrides({key: 1})


def test_the_networks_that_are_timed_have_the_user_s_changes(monkeypatch):
    """Otherwise errors at equal time would be those of other networks."""
    timed = []
    monkeypatch.setattr(step_times, "time_networks", lambda configs, **_: timed.append(configs) or {})
    changes = {"network_options.width": 16, "batch_size": 8, "precision": "64-true"}
    row = make_rows(2)[ONI]
    time_steps(StepTimes(2, 0, 0.01).override(changes), {"oni": row})
    MethodTimes("fashion-mnist", 0, 0.01).override(changes).measure()
    for config in [configs[name] for configs, name in zip(timed, ("oni", "oni-2"), strict=True)]:
        assert (config.network_options["width"], config.batch_size, config.precision) == (16, 8, "64-true")
    monkeypatch.undo()
    assert time_networks({"oni": timed[0]["oni"]}, seed=0, seconds=0.01)["milliseconds"]["oni"][1] > 0


def test_steps_are_timed_in_turns():
    rows = make_rows(2)
    measured = time_steps(StepTimes(2, 0, 0.01), {"a": rows[HE], "b": rows[ONI]})["milliseconds"]
    assert list(measured) == ["a", "b"]
    for low, median, high in measured.values():
        assert 0 < low <= median <= high
