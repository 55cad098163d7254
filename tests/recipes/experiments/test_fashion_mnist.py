"""The Fashion-MNIST figures: which runs they are, what they share, and what can be overridden."""

from dataclasses import asdict

import pytest
from torch.nn.utils import parametrize

from oni.recipes.experiments.errors import find_runs
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.fashion_mnist import family, fig5, fig6, fig7a, figA2, figA3, figA6
from oni.recipes.experiments.fashion_mnist.family import PRINTED, make_plan, mlp
from oni.recipes.experiments.runs import Training
from oni.recipes.tasks.classification import build_network

FIGURES = {module.EXPERIMENT.id: module for module in (fig5, fig6, fig7a, figA2, figA3, figA6)}
WIDTH = 256


def configs(id, preset="full"):
    """What a figure trains, its learning rates not yet chosen."""
    return [run.config for run in FIGURES[id].EXPERIMENT.planned(preset)]


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
    trained = {run.row for run in FIGURES[id].EXPERIMENT.planned("full")}
    titles = {row.title for row in FIGURES[id].ROWS if row.name in trained}
    assert {"He initialisation", "OrthInit x sqrt 2", "batch norm"} < titles
    normed = [config for config in configs(id) if config.network_options["norm"] == "batch"]
    assert {config.method for config in normed} == {"he"}


def find_differences(first, second):
    """Where two configurations differ, by their keys."""

    def flatten(config):
        values = asdict(config)
        options = values.pop("method_options")
        return values | {f"method_options.{key}": value for key, value in options.items()}

    first, second = flatten(first), flatten(second)
    return {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}


def first_run(row):
    """The run of a row of Figure 6 with the first seed."""
    return next(run for run in fig6.EXPERIMENT.planned("full") if run.row == row.name)


def test_matched_rows_of_figure_6_differ_in_one_thing():
    runs = {key: first_run(row) for key, row in fig6.MATCHED.items()}
    matched = {key: run.config for key, run in runs.items()}
    for method in ("OLM", "T = 5", "T = 9"):
        assert find_differences(matched[method, "fixed"], matched[method, "learnable"]) == {
            "method_options.learn_scale"
        }
    for scale in ("fixed", "learnable"):
        assert find_differences(matched["T = 5", scale], matched["T = 9", scale]) == {"method_options.steps"}
        # OLM and ONI: how a group is orthogonalised. Group, centring, scale and the Z they start from are the same.
        olm, oni = matched["OLM", scale], matched["T = 5", scale]
        assert {key for key in find_differences(olm, oni) if not key.startswith("method_options.")} == {"method"}
        layers = [
            [module for module in build_network(config).modules() if parametrize.is_parametrized(module, "weight")]
            for config in (olm, oni)
        ]
        assert len(layers[0]) == len(layers[1]) == 20
        for pair in zip(*layers, strict=True):
            exact, newton = (layer.parametrizations.weight[0] for layer in pair)
            assert newton.options.groups * exact.options.group_size == WIDTH
            for name in ("center", "scale", "learn_scale"):
                assert getattr(exact.options, name) == getattr(newton.options, name)
            assert newton.options.learn_scale == (scale == "learnable")
            assert newton.options.scale == pytest.approx(2**0.5)
            proxies = [layer.parametrizations.weight.original for layer in pair]
            assert proxies[0].equal(proxies[1])
    # And their learning rates are chosen from the same, in trials of one length.
    assert {
        (run.trial_epochs, run.search.trial["seed"], *(chosen["learning_rate"] for chosen in run.search.candidates))
        for run in runs.values()
    } == {(2, 0, *family.GRID)}
    # Three seeds of each, in a preset that has two of the others.
    seeds = {}
    for run in fig6.EXPERIMENT.planned("full"):
        seeds.setdefault(run.row, set()).add(run.seed)
    assert {len(seeds[row.name]) for row in fig6.MATCHED.values()} == {3}
    assert len(seeds["6 layers, ONI"]) == len(seeds["20 layers, OLM-NS"]) == 2


def test_the_released_start_differs_from_the_printed_one_in_one_thing():
    released, printed = (first_run(row).config for row in (fig6.RELEASED, fig6.SCALED[20, "oni"]))
    assert find_differences(released, printed) == {"method_options.start"}


@pytest.mark.parametrize("id", FIGURES)
def test_names_tell_networks_apart(id):
    """Runs are found by the name of their row."""
    names, networks = set(), set()
    for run in FIGURES[id].EXPERIMENT.planned("paper"):
        config = run.config
        names.add(run.row)
        rate = config.learning_rate if run.search is None else "searched"
        networks.add((config.method, str(config.method_options), str(config.network_options), rate))
    assert names >= {row.name for row in FIGURES[id].ROWS}
    assert len(names) == len(networks)


def test_the_rate_is_searched_where_there_is_a_grid():
    """In a few epochs of what is slow, and in whole runs of the rest; without a grid it is the row's own."""
    for run in fig5.EXPERIMENT.planned("full"):
        slow = run.config.method == "oni"
        assert run.trial_epochs == (2 if slow else 10)
        assert [chosen["learning_rate"] for chosen in run.search.candidates] == [0.05, 0.1, 0.5, 1.0]
        trials = run.trials()
        assert {(config.validation, config.seed, config.watch) for config in trials} == {(5000, 0, ())}
        assert (run.config.validation, len(run.config.watch)) == (0, 2)
    assert {run.trial_epochs for run in fig5.EXPERIMENT.planned("paper")} == {80}
    rates = {row.name: row.rate for row in fig5.ROWS}
    for run in fig5.EXPERIMENT.planned("laptop"):
        assert (run.search, run.learning_rate) == (None, rates[run.row])


def test_a_network_without_a_learning_rate_is_an_error():
    plan = make_plan([mlp(10, "oni", {**PRINTED, "steps": 3})])
    with pytest.raises(ValueError, match="10 layers, ONI, T = 3 has no learning rate"):
        plan(0, data="fashion-mnist-sample", samples=0, epochs=1, seeds=1)


# Overrides.


def test_overrides_are_what_is_run_and_recorded():
    (run, *_) = fig5.EXPERIMENT.planned("full", epochs=30)
    # Networks without orthogonalisation choose their rate on whole runs, however long these are.
    assert run.trial_epochs == 30
    run = run.override({"epochs": 30, "momentum": 0.9, "network_options.depth": 4, "learning_rate": 0.25})
    config = run.config
    assert (config.epochs, config.drops, config.momentum, config.network_options["depth"]) == (30, (15,), 0.9, 4)
    assert (run.learning_rate, run.search, run.trials()) == (0.25, None, [])
    assert run.as_record()["config"]["momentum"] == 0.9
    assert Training.from_record(run.as_record()) == run


def test_an_option_of_a_method_concerns_those_that_have_it():
    for run in fig5.EXPERIMENT.planned("smoke"):
        is_oni = run.config.method == "oni"
        config = run.override({"method_options.bound": "tight"}).config
        assert config.method_options.get("bound") == ("tight" if is_oni else None)
    with pytest.raises(ValueError, match="setps"):
        run.override({"method_options.setps": 3})


def test_runs_are_found_though_an_option_was_overridden():
    overrides = {"method_options.center": False}
    results = Results(Run(run.override(overrides), {}) for run in fig7a.EXPERIMENT.planned("smoke"))
    for steps, row in fig7a.BY_STEPS.items():
        (run,) = find_runs(results, row)
        options = run.parameters.config.method_options
        assert (options["start"], options["center"], options["steps"]) == ("given", False, steps)
