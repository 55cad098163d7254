"""The Fashion-MNIST figures: which runs they are, what they share, and claims that hold and fail where they should."""

import pytest

from oni.recipes.charts.curves import draw_charts
from oni.recipes.experiments.experiment import Results, Run, registry
from oni.recipes.experiments.fashion_mnist import claims
from oni.recipes.experiments.fashion_mnist import family as fashion
from oni.recipes.experiments.fashion_mnist.networks import ISOMETRIC, PRINTED, name_of, with_steps
from oni.recipes.training import setting as trained

FIGURES = [one.id for one in fashion.EXPERIMENTS]
WIDTH = 256


def configs(id, monkeypatch, preset="full"):
    """What a figure trains, without training it."""
    found = []
    monkeypatch.setattr(fashion, "trained", lambda config, *_, **__: found.append(config) or {})
    for parameters in registry()[id].planned(preset):
        registry()[id].run(parameters, None)
    return found


def test_runs_are_shared(monkeypatch):
    of = {id: {config.hash for config in configs(id, monkeypatch)} for id in FIGURES}
    six, ten, twenty = (
        Results(Run(p, {}) for p in registry()[id].planned("full")) for id in ("fig7a", "figA3", "fig6")
    )
    assert of["figA2"] < of["fig6"]
    assert of["fig7a"] < of["figA6"]
    assert len(of["fig7a"] & of["fig6"]) == len(six.where(options=with_steps(5))) == 2
    assert len(of["figA3"] & of["fig5"]) == len(ten.where(options={**PRINTED, "groups": 1})) == 2
    assert len(twenty.where(depth=20)) > 0
    # Every run once, however many figures show it.
    assert len(set.union(*of.values())) < sum(map(len, of.values()))


def test_the_networks_are_the_paper_s(monkeypatch):
    every = [config for id in FIGURES for config in configs(id, monkeypatch, "paper")]
    assert {config.network_options["width"] for config in every} == {WIDTH}
    assert {config.batch_size for config in every} == {256}
    assert {config.momentum for config in every} == {config.weight_decay for config in every} == {0.0}
    assert {config.data for config in every} == {"fashion-mnist"}
    assert {config.network_options["depth"] for config in configs("fig5", monkeypatch)} == {10}
    assert {config.network_options["depth"] for config in configs("fig6", monkeypatch)} == {6, 20}
    assert {config.method_options["steps"] for config in configs("fig7a", monkeypatch)} == set(range(1, 8))
    groups = {config.method_options["groups"] for config in configs("figA3", monkeypatch)}
    assert {WIDTH // group for group in groups} == {16, 32, 64, 128, 256}
    assert fashion.GRID == [0.05, 0.1, 0.5, 1.0]


def test_names_tell_networks_apart():
    for one in fashion.EXPERIMENTS:
        planned = one.planned("full")
        names = {(run["depth"], name_of(run)) for run in planned}
        networks = {(run["depth"], run["method"], str(run["options"])) for run in planned}
        assert len(names) == len(networks)


def made(id, train, spectrum=None, signal=None):
    """Results of a figure, with the errors that a function of the parameters gives."""
    runs = []
    for parameters in registry()[id].planned("full"):
        errors = [value / 100 for value in train(parameters)]
        measured = {"train_error": errors, "test_error": errors, "learning_rate": 0.1}
        measured["spectrum"] = spectrum(parameters) if spectrum else {}
        measured["signal"] = signal(parameters) if signal else {}
        runs.append(Run({**parameters, "epochs": 2}, measured))
    return Results(runs)


def as_the_paper_has_it5(run):
    return {"plain": (90, 80), "lecun": (60, 20), "orth-init": (50, 20), "oni": (30, 5)}[run["method"]]


def spectrum5(run):
    kept = {"1": [1.0, 1.0], "5": [1.0, 0.9]}
    moved = {"1": [1.0, 1.0], "5": [1.3, 0.7]} if run["method"] == "orth-init" else kept
    start = {"1": [1.0, 1.0], "5": [1.0, 1.0]} if run["method"] == "orth-init" else kept
    return {"0": start, "200": moved, "2340": moved}


def held(test, results):
    verdict, said = test(results)
    assert said.isascii()
    return verdict


def test_claims_of_figure_5():
    results = made("fig5", as_the_paper_has_it5, spectrum5)
    assert [claim["held"] for claim in registry()["fig5"].judged(results)] == 5 * [True] + [False]
    slow = made("fig5", lambda run: (70, 5) if run["method"] == "orth-init" else as_the_paper_has_it5(run), spectrum5)
    assert not held(claims.faster_at_first, slow)
    assert not held(claims.overtaken, slow)
    lost = made("fig5", lambda run: (50, 30) if run["method"] == "oni" else as_the_paper_has_it5(run), spectrum5)
    assert not held(claims.lowest_at_the_end, lost)
    still = made("fig5", as_the_paper_has_it5, lambda _: spectrum5({"method": "oni"}))
    assert not held(claims.spread_out, still)
    assert not held(claims.drifts_less, still)
    apart = made("fig5", lambda run: (50, 5) if run["options"] == ISOMETRIC else as_the_paper_has_it5(run), spectrum5)
    assert held(claims.choice_matters, apart)


def as_the_paper_has_it6(run):
    return (90, 90) if run["depth"] == 20 and run["method"].endswith("-ns") else (50, 10)


def test_claims_of_figure_6():
    results = made("fig6", as_the_paper_has_it6)
    assert all(claim["held"] for claim in registry()["fig6"].judged(results))
    every = made("fig6", lambda _: (90, 90))
    assert [claim["held"] for claim in registry()["fig6"].judged(every)] == [True, True, False, True, False]
    one = made("fig6", lambda run: (50, 20) if run["method"] == "oni-ns" else as_the_paper_has_it6(run))
    assert [claim["held"] for claim in registry()["fig6"].judged(one)] == [False, False, True, True, False]
    worse = made("fig6", lambda run: (50, 20) if run["method"] == "olm" else as_the_paper_has_it6(run))
    assert not held(claims.same_as_olm, worse)


def test_claims_of_figure_7a():
    hollow = made("fig7a", lambda run: (50, 10 + (run["options"]["steps"] - 5) ** 2))
    assert [claim["held"] for claim in registry()["fig7a"].judged(hollow)] == [True, True, True, False]
    flat = made("fig7a", lambda run: (50, 10))
    assert [claim["held"] for claim in registry()["fig7a"].judged(flat)] == [False, False, True, True]
    falling = made("fig7a", lambda run: (50, 30 - run["options"]["steps"]))
    assert [claim["held"] for claim in registry()["fig7a"].judged(falling)] == [True, False, False, False]


def signals(run):
    def falling(ratio):
        down = [ratio**layer for layer in range(21)]
        return {"input": down, "gradient": down[::-1]}

    found = falling(0.5 if run["method"] == "oni-ns" else 0.9)
    return {"0": found, "2340": found}


def test_claims_of_figure_A2():
    results = made("figA2", lambda _: (50, 10), signal=signals)
    assert all(claim["held"] for claim in registry()["figA2"].judged(results))
    swapped = made(
        "figA2",
        lambda _: (50, 10),
        signal=lambda run: signals({"method": {"oni": "oni-ns", "oni-ns": "oni"}[run["method"]]}),
    )
    assert not any(claim["held"] for claim in registry()["figA2"].judged(swapped))


def test_claims_of_figure_A3():
    def judged(end):
        return [claim["held"] for claim in registry()["figA3"].judged(made("figA3", lambda run: (50, end(run))))]

    assert judged(lambda run: 5 + 0.05 * run["options"]["groups"]) == [True, True, True]
    assert judged(lambda run: 5 - 0.05 * run["options"]["groups"]) == [False, False, True]
    assert judged(lambda run: 5 + run["options"]["groups"]) == [True, True, False]


def test_claims_of_figure_A6():
    def spectrum(run):
        values = {"1": [1.0, run["options"]["steps"] / 8], "5": [1.0]}
        return {"0": values, "200": values}

    assert held(claims.nearer_one, made("figA6", lambda _: (50, 10), spectrum))
    assert not held(claims.nearer_one, made("figA6", lambda _: (50, 10), lambda _: spectrum({"options": {"steps": 3}})))


def test_a_diverged_run_is_all_wrong():
    results = made("fig7a", lambda _: (50, 10))
    results[0].measured["train_error"][:] = [None]
    assert claims.errors(results)[0] == 100.0
    assert claims.summary({"x": results}).rows[0][0] == "x"


@pytest.mark.parametrize("id", FIGURES)
def test_charts_have_every_network_once(id):
    every = made(
        id, lambda _: (50, 10), lambda _: {"0": {"1": [1.0], "5": [1.0]}, "200": {"1": [0.5], "5": [0.5]}}, signals
    )
    charts = registry()[id].charts(every)
    names = {series.name for chart in charts for series in chart.series}
    assert len(names - {"train", "test"}) == len({name_of(run) for run in registry()[id].planned("full")})
    figure = draw_charts(charts, 2)
    assert len(figure.axes) == len(charts)
    assert len(figure.legends[0].get_texts()) == len(names)
    for axes, chart in zip(figure.axes, charts, strict=True):
        assert axes.get_xlabel() == chart.x
        assert len(axes.lines) == len(chart.series)


def test_changes_concern_those_that_know_them():
    from oni.recipes.training.config import Config

    setting = trained.Setting("runs", changes=["method_options.steps=3", "epochs=2"])
    assert setting.changed(Config(method="oni")).method_options["steps"] == 3
    assert setting.changed(Config(method="plain")).epochs == 2
    with pytest.raises(ValueError, match="the nearest is 'steps'"):
        trained.Setting("runs", changes=["method_options.setps=3"]).changed(Config(method="oni"))
    for change, remedy in (("seed=1", "pass --seed"), ("watch=x", "watches what it needs")):
        with pytest.raises(ValueError, match=remedy):
            trained.Setting("runs", changes=[change])
