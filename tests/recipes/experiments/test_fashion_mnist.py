"""The Fashion-MNIST figures: which runs they are, what they share, and claims that hold and fail where they should."""

import pytest

from oni.recipes.charts.matplotlib import draw_charts
from oni.recipes.experiments.errors import errors_at
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.fashion_mnist import family, fig5, fig6, fig7a, figA2, figA3, figA6
from oni.recipes.experiments.fashion_mnist.family import (
    ISOMETRIC,
    PRINTED,
    Network,
    TrainingSizes,
    make_config,
    make_run,
    name_network,
)
from oni.recipes.experiments.fashion_mnist.reading import find_runs

FIGURES = {module.EXPERIMENT.id: module for module in (fig5, fig6, fig7a, figA2, figA3, figA6)}
WIDTH = 256


def configs(id, preset="full"):
    """What a figure trains, its learning rates not yet chosen."""
    return [make_config(run) for run in FIGURES[id].EXPERIMENT.planned(preset)]


# The runs.


def test_figures_share_runs():
    hashes = {id: {config.hash for config in configs(id)} for id in FIGURES}
    assert hashes["figA2"] < hashes["fig6"]
    assert hashes["fig7a"] < hashes["figA6"]
    # Five steps are ONI's own number, and one group is all rows.
    assert len(hashes["fig7a"] & hashes["fig6"]) == 2
    assert len(hashes["figA3"] & hashes["fig5"]) == 2
    assert len(set.union(*hashes.values())) < sum(map(len, hashes.values()))


def test_the_networks_are_the_paper_s():
    everything = [config for id in FIGURES for config in configs(id, "paper")]
    assert {config.network_options["width"] for config in everything} == {WIDTH}
    assert {config.batch_size for config in everything} == {256}
    assert {config.momentum for config in everything} == {config.weight_decay for config in everything} == {0.0}
    assert {config.data for config in everything} == {"fashion-mnist"}
    assert {config.network_options["depth"] for config in configs("fig5")} == {10}
    assert {config.network_options["depth"] for config in configs("fig6")} == {6, 20}
    assert {config.method_options["steps"] for config in configs("fig7a")} == set(range(1, 8))
    groups = {config.method_options["groups"] for config in configs("figA3")}
    assert {WIDTH // group for group in groups} == {16, 32, 64, 128, 256}
    assert family.GRID == (0.05, 0.1, 0.5, 1.0)


@pytest.mark.parametrize("id", ["fig5", "fig6"])
def test_what_a_practitioner_would_choose_is_there(id):
    names = {name_network(run) for run in FIGURES[id].EXPERIMENT.planned("full")}
    assert {"He's start", "OrthInit x sqrt 2", "batch norm"} < names
    normed = [config for config in configs(id) if config.network_options.get("norm") == "batch"]
    assert {config.method for config in normed} == {"he"}


def test_names_tell_networks_apart():
    for module in FIGURES.values():
        planned = module.EXPERIMENT.planned("full")
        names = {(run.depth, name_network(run)) for run in planned}
        networks = {(run.depth, run.method, str(run.options), str(run.network_options)) for run in planned}
        assert len(names) == len(networks)


def test_a_network_without_a_learning_rate_is_an_error():
    sizes = TrainingSizes("fashion-mnist-sample", 0, 1, 1)
    with pytest.raises(ValueError, match="ONI, T = 3 of 10 layers has no learning rate"):
        make_run(Network(10, "oni", {**PRINTED, "steps": 3}), sizes, first_seed=0, seed=0)


def test_renaming_a_label_changes_no_learning_rate(monkeypatch):
    before = [run.grid for run in fig5.EXPERIMENT.planned("laptop")]
    monkeypatch.setitem(family.NAMES, "oni", "Newton")
    assert [run.grid for run in fig5.EXPERIMENT.planned("laptop")] == before


# Overrides.


def test_overrides_are_what_is_run_and_recorded():
    (run, *_) = fig5.EXPERIMENT.planned("full", epochs=30)
    run = run.override({"epochs": 30, "momentum": 0.9, "network_options.depth": 4, "learning_rate": 0.25})
    config = make_config(run)
    assert (run.epochs, run.depth, run.grid) == (30, 4, (0.25,))
    assert run.overrides == {"momentum": 0.9}
    assert (config.epochs, config.drops, config.momentum, config.network_options["depth"]) == (30, (15,), 0.9, 4)
    # Networks without orthogonalisation choose their rate on whole runs, however long these are.
    assert run.select_epochs == 30


def test_an_option_of_a_method_concerns_those_that_have_it():
    for run in fig5.EXPERIMENT.planned("smoke"):
        config = make_config(run.override({"method_options.bound": "tight"}))
        assert config.method_options.get("bound") == ("tight" if run.method == "oni" else None)
    with pytest.raises(ValueError, match="setps"):
        make_config(run.override({"method_options.setps": 3}))


def test_runs_are_found_though_an_option_was_overridden():
    overrides = {"method_options.center": False}
    results = Results(Run(run.override(overrides), {}) for run in fig7a.EXPERIMENT.planned("smoke"))
    for steps, network in fig7a.BY_STEPS.items():
        (run,) = find_runs(results, network)
        assert run.parameters.options == {"start": "given", "center": False, "steps": steps}


# Claims.


def make_results(id, train, spectrum=None, signal=None):
    """Results of a figure, with the errors that a function of the parameters gives."""
    runs = []
    for parameters in FIGURES[id].EXPERIMENT.planned("full"):
        errors = [value / 100 for value in train(parameters)]
        errors = [errors[0], *[errors[-1]] * (parameters.epochs - 1)]
        measured = {"train_error": errors, "test_error": errors, "learning_rate": 0.1}
        measured["spectrum"] = spectrum(parameters) if spectrum else {}
        measured["signal"] = signal(parameters) if signal else {}
        runs.append(Run(parameters, measured))
    return Results(runs)


def verdicts(id, results, preset="full"):
    claims = FIGURES[id].EXPERIMENT.judge(results, preset)
    assert all(claim["detail"].isascii() for claim in claims)
    return [{"held": True, "not held": False, "not tested": None}[claim["verdict"]] for claim in claims]


def is_held(judge, results):
    return judge(results)[0]


def errors_as_in_figure_5(run):
    if (run.method == "orth-init" and run.options) or run.method == "he":
        return 40, 10
    return {"plain": (90, 80), "lecun": (60, 20), "orth-init": (50, 20), "oni": (30, 5)}[run.method]


def spectrum_as_in_figure_5(run):
    kept = {"1": [1.0, 1.0], "5": [1.0, 0.9]}
    moved = {"1": [1.0, 1.0], "5": [1.3, 0.7]} if run.method == "orth-init" else kept
    start = {"1": [1.0, 1.0], "5": [1.0, 1.0]} if run.method == "orth-init" else kept
    return {"0": start, "200": moved, "2340": moved}


def test_claims_of_figure_5():
    results = make_results("fig5", errors_as_in_figure_5, spectrum_as_in_figure_5)
    assert verdicts("fig5", results) == [True, True, True, True, True, False, True, True]

    def change(method, errors):
        def errors_of(run):
            return errors if run.method == method else errors_as_in_figure_5(run)

        return make_results("fig5", errors_of, spectrum_as_in_figure_5)

    slow = change("orth-init", (70, 5))
    assert not is_held(fig5.faster_at_first, slow)
    assert not is_held(fig5.overtaken, slow)
    assert not is_held(fig5.lowest_at_the_end, change("oni", (50, 30)))
    assert verdicts("fig5", change("he", (50, 1)))[-2:] == [False, False]
    still = make_results("fig5", errors_as_in_figure_5, lambda _: spectrum_as_in_figure_5(Network(10, "oni")))
    assert not is_held(fig5.spectrum_spreads, still)
    assert not is_held(fig5.spectrum_changes_less, still)
    apart = make_results(
        "fig5",
        lambda run: (50, 5) if run.options == ISOMETRIC else errors_as_in_figure_5(run),
        spectrum_as_in_figure_5,
    )
    assert is_held(fig5.choice_matters, apart)


@pytest.mark.parametrize("id", ["fig5", "fig6"])
def test_rows_that_were_not_measured_are_named(id):
    errors = errors_as_in_figure_5 if id == "fig5" else errors_as_in_figure_6
    results = make_results(id, errors, spectrum_as_in_figure_5)
    old = Results(run for run in results if run.parameters.method != "he" and "gain" not in run.parameters.options)
    claims = FIGURES[id].EXPERIMENT.judge(old, "full")
    practice = [claim for claim in claims if "batch normalisation" in claim["text"]]
    assert {claim["verdict"] for claim in practice} == {"not tested"}
    assert {claim["detail"] for claim in practice} == {"not yet measured: He's start, OrthInit x sqrt 2, batch norm"}
    assert {claim["verdict"] for claim in claims if claim not in practice} <= {"held", "not held"}
    rows = FIGURES[id].EXPERIMENT.table(old).rows
    assert sum("not yet measured" in row for row in rows) == (3 if id == "fig5" else 6)
    assert {series.name for chart in FIGURES[id].charts(old) for series in chart.series} & {"batch norm"} == set()


def errors_as_in_figure_6(run):
    if run.method in ("he", "orth-init"):
        return 60, 30
    return (90, 90) if run.depth == 20 and run.method.endswith("-ns") else (50, 10)


def test_claims_of_figure_6():
    assert all(verdicts("fig6", make_results("fig6", errors_as_in_figure_6)))
    nothing_trains = make_results("fig6", lambda _: (90, 90))
    assert verdicts("fig6", nothing_trains) == [True, True, False, True, False, False]

    def change(method, errors):
        return make_results("fig6", lambda run: errors if run.method == method else errors_as_in_figure_6(run))

    assert verdicts("fig6", change("oni-ns", (50, 20))) == [False, False, True, True, False, True]
    assert not is_held(fig6.same_as_olm, change("olm", (50, 20)))


def test_claims_of_figure_7a():
    hollow = make_results("fig7a", lambda run: (50, 10 + (run.options["steps"] - 5) ** 2))
    assert verdicts("fig7a", hollow) == [True, True, True, False]
    flat = make_results("fig7a", lambda run: (50, 10))
    assert verdicts("fig7a", flat) == [False, False, True, True]
    falling = make_results("fig7a", lambda run: (50, 30 - run.options["steps"]))
    assert verdicts("fig7a", falling) == [True, False, False, False]


def make_signal(method):
    ratio = 0.5 if method == "oni-ns" else 0.9
    falling = [ratio**layer for layer in range(21)]
    signal = {"input": falling, "gradient": falling[::-1]}
    return {"0": signal, "2340": signal}


def test_claims_of_figure_A2():
    results = make_results("figA2", lambda _: (50, 10), signal=lambda run: make_signal(run.method))
    assert all(verdicts("figA2", results))
    swap = {"oni": "oni-ns", "oni-ns": "oni"}
    swapped = make_results("figA2", lambda _: (50, 10), signal=lambda run: make_signal(swap[run.method]))
    assert not any(verdicts("figA2", swapped))


def test_claims_of_figure_A3():
    def judge(end):
        return verdicts("figA3", make_results("figA3", lambda run: (50, end(run))))

    assert judge(lambda run: 5 + 0.05 * run.options["groups"]) == [True, True, True]
    assert judge(lambda run: 5 - 0.05 * run.options["groups"]) == [False, False, True]
    assert judge(lambda run: 5 + run.options["groups"]) == [True, True, False]


def test_claims_of_figure_A6():
    def make_spectrum(steps):
        values = {"1": [1.0, steps / 8], "5": [1.0]}
        return {"0": values, "200": values}

    by_steps = make_results("figA6", lambda _: (50, 10), lambda run: make_spectrum(run.options["steps"]))
    assert is_held(figA6.nearer_to_one, by_steps)
    assert not is_held(figA6.nearer_to_one, make_results("figA6", lambda _: (50, 10), lambda _: make_spectrum(3)))


@pytest.mark.parametrize("id", FIGURES)
def test_short_runs_and_few_seeds_are_not_judged(id):
    experiment = FIGURES[id].EXPERIMENT
    signal = {"signal": make_signal("oni")}
    results = Results(Run(run, signal) for run in experiment.planned("laptop", epochs=1))
    claims = experiment.judge(results, "laptop")
    # Whether a signal vanishes at the start needs no training.
    late = claims[1:] if id == "figA2" else claims
    assert {claim["verdict"] for claim in late} == {"not tested"}
    assert all("needs at least" in claim["detail"] for claim in late)


def test_a_diverged_run_is_all_wrong():
    results = make_results("fig7a", lambda _: (50, 10))
    results[0].measured["train_error"].clear()  # no epoch was finished
    assert errors_at(results)[0] == 100.0
    assert fig7a.EXPERIMENT.table(results).rows[0][0] == "6 layers, ONI, T = 1"


@pytest.mark.parametrize("id", FIGURES)
def test_charts_have_every_network_once(id):
    spectrum = {"0": {"1": [1.0], "5": [1.0]}, "200": {"1": [0.5], "5": [0.5]}}
    results = make_results(id, lambda _: (50, 10), lambda _: spectrum, lambda run: make_signal(run.method))
    charts = FIGURES[id].charts(results)
    names = {series.name for chart in charts for series in chart.series}
    networks = {name_network(run) for run in FIGURES[id].EXPERIMENT.planned("full")}
    assert networks <= names
    figure = draw_charts(charts, 2)
    assert len(figure.axes) == len(charts)
    for axes, chart in zip(figure.axes, charts, strict=True):
        assert axes.get_xlabel() == chart.x
        assert len(axes.lines) == len(chart.series)
