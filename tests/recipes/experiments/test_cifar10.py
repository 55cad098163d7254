"""Tables 1 and 2 and their figures: which runs they are, what they share, and what can be overridden."""

import pytest
from torch import nn
from torch.nn.utils import parametrize

from oni.cli import main
from oni.recipes.experiments.cifar10 import fig7b, figA4, figA5, table1, table2
from oni.recipes.experiments.cifar10.family import find_network, groups_of, name_network
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.reproduce import is_chosen
from oni.recipes.tasks.classification import build_network

EXPERIMENTS = {module.EXPERIMENT.id: module.EXPERIMENT for module in (table1, table2, fig7b, figA4, figA5)}
RATES = (0.01, 0.02, 0.05)


def configs(id, preset):
    """Every configuration of an experiment by its hash, with its run: the trials, and with each that may be chosen."""
    found = {}
    for run in EXPERIMENTS[id].planned(preset):
        choices = run.search.candidates if run.search else [{}]
        for config in (*run.trials(), *map(run.with_choice, choices)):
            found.setdefault(config.hash, (run, config))
    return found


# The runs.


def test_figures_train_nothing_of_their_own():
    for figure, table in (("figA4", "table1"), ("figA5", "table2")):
        for preset in EXPERIMENTS[table].presets:
            assert EXPERIMENTS[figure].planned(preset) == EXPERIMENTS[table].planned(preset)
    # Five steps, at three rates with each of two seeds, and the trials by which the rate is chosen, are Table 1's.
    shared = configs("fig7b", "full").keys() & configs("table1", "full").keys()
    assert len(shared) == 3 * 2 + 3
    # The paper draws g = 2, k = 3, which its Table 1 has too.
    printed = {(run.config.hash, *(trial.hash for trial in run.trials())) for run in table1.EXPERIMENT.planned("paper")}
    for run in fig7b.EXPERIMENT.planned("paper"):
        key = (run.config.hash, *(trial.hash for trial in run.trials()))
        assert (key in printed) == (run.row == "T = 5")


def rates_of(run):
    return tuple(dict.fromkeys(chosen["learning_rate"] for chosen in run.search.candidates))


def test_trials_have_sizes_of_their_own():
    for run in table1.EXPERIMENT.planned("full"):
        config = run.config
        assert (config.samples, config.validation, config.epochs, run.steps) == (0, 0, 30, 30 * (50_000 // 128))
        trials = run.trials()
        assert len(trials) == len(run.search.candidates) >= 3
        for trial in trials:
            assert (trial.samples, trial.validation, trial.epochs, trial.measure_every) == (10_000, 5000, 8, 8)
            assert (trial.drops, trial.seed, trial.network_options) == ((4, 6), 0, config.network_options)
            assert trial.precision == config.precision == "bf16-mixed"
        assert [trial.learning_rate for trial in trials][: len(rates_of(run))] == list(rates_of(run))
    # What has none of its own trains as long as the run itself.
    for run in table1.EXPERIMENT.planned("paper"):
        assert {(trial.samples, trial.epochs, trial.drops) for trial in run.trials()} == {(0, 160, (80, 120))}
        assert {trial.validation for trial in run.trials()} == {5000}


def test_rows_and_seeds_of_a_sparing_preset():
    planned = table1.EXPERIMENT.planned("full")
    seeds = {row.name: [run.seed for run in planned if run.row == row.name] for row in table1.ROWS}
    fewer = {"orth-init", "orth-reg", "olm-1", "orth-init-sqrt2", "oni-uncentred", "centred-wn"}
    assert seeds == {name: [0, 1] if name in fewer else [0, 1, 2] for name in seeds}
    # What the claims compare has at least the two seeds that decide anything, and the rows they are about three.
    assert {row.name for row in table1.BEST}.isdisjoint(fewer)
    # What is finished at any time is of use: all methods with the first seed come first.
    assert [run.row for run in planned][: len(table1.ROWS)] == [row.name for row in table1.ROWS]
    assert all(row.ours for row in table1.OUR_ROWS)
    # A number that the user asks for is that of every row.
    every = table1.EXPERIMENT.planned("full", seeds=4)
    assert {row.name: [run.seed for run in every if run.row == row.name] for row in table1.ROWS} == {
        row.name: [0, 1, 2, 3] for row in table1.ROWS
    }


def test_seeds_share_their_trials():
    for id in ("table1", "table2"):
        by_row = {}
        for run in EXPERIMENTS[id].planned("paper"):
            # Of both batch sizes of Table 2 too: the rate is searched with the first and scaled.
            network = run.group.partition(",")[0]
            by_row.setdefault((network, run.row), set()).add(tuple(config.hash for config in run.trials()))
        assert {len(trials) for trials in by_row.values()} == {1}
    small = [run for run in table2.EXPERIMENT.planned("paper") if run.group == "resnet110, batch 2"]
    assert {run.search.rate_factor for run in small if run.search} == {2 / 128}
    xavier = next(run for run in small if run.row == "xavier")
    assert {config.batch_size for config in xavier.trials()} == {128}
    assert xavier.with_choice({"learning_rate": 0.01}).learning_rate == pytest.approx(0.01 * 2 / 128)


def test_the_paper_preset_is_as_printed():
    for id in ("table1", "table2"):
        for run in EXPERIMENTS[id].planned("paper"):
            trials = run.trials()
            for config in (run.config, *trials):
                assert (config.epochs, config.drops, config.momentum) == (160, (80, 120), 0.9)
                assert (config.samples, config.validation) == (0, 5000 if config in trials else 0)
                assert (config.normalise, config.augment, config.nesterov) == ("mean-std", ("flip", "crop"), False)
                residual = config.network == "resnet-cifar"
                assert (config.drop_factor, config.weight_decay) == ((0.1, 1e-4) if residual else (0.2, 0.0))
    runs = table1.EXPERIMENT.planned("paper")
    assert {run.config.network_options["g"] for run in runs} == {2, 3, 4}
    assert len({run.group for run in runs}) == 9
    assert sum(run.row == "oni" for run in runs) == 27
    assert {rates_of(run) for run in runs if run.row != "bn"} == {RATES}
    # Batch normalisation, which the paper lacks, may take larger ones: its best is the paper's largest.
    assert {rates_of(run) for run in runs if run.row == "bn"} == {(*RATES, 0.1, 0.2)}
    assert {run.config.precision for run in runs} == {"32-true"}
    two = [run for run in runs if run.row in ("orth-reg", "olm-1", "olm-sqrt2")]
    assert {len(run.search.candidates) for run in two} == {2 * len(RATES)}
    assert {run.group.partition(",")[0] for run in table2.EXPERIMENT.planned("paper")} == {"resnet110"}
    found = configs("table2", "paper").values()
    rates = {
        (run.row, config.batch_size): config.learning_rate
        for run, config in found
        if run.row not in ("xavier", "oni-searched")
    }
    assert rates == {
        (row, size): rate
        for row in ("bn", "gn", "gn-released", "oni", "oni-released", "oni-small-branches")
        for size, rate in ((128, 0.1), (2, 0.0015625))
    }
    for row, option in (("gn", "group_size"), ("gn-released", "groups")):
        assert {config.network_options[option] for run, config in found if run.row == row} == {64, 32, 16}
    for run, config in found:
        released = run.row == "oni-released"
        assert config.init_scale == (config.method == "oni" and not released)
        assert config.network_options["frozen_bias"] == config.decay_scales == released
        assert not released or config.method_options["scale"] == 0.8
        assert config.small_branches == (run.row == "oni-small-branches")


def test_beginnings_have_a_constant_rate():
    planned = [run for run in table2.EXPERIMENT.planned("full") if " at " in run.group]
    by_group = {}
    for run in planned:
        assert (run.search, run.config.drops, run.config.network_options["blocks"]) == (None, (), 18)
        config = run.config
        key = run.group, config.learning_rate, config.samples, config.precision, run.steps
        by_group.setdefault(key, []).append((run.row, run.seed))
    large = ["oni-released", "bn", "oni", "xavier", "oni-small-branches", "oni-start-released"]
    large += ["oni-released-uncentred", "orth-init-released", "xavier-released"]
    assert by_group == {
        ("resnet110 at 0.1", 0.1, 0, "32-true", 1170): [(row, seed) for seed in (0, 1) for row in large],
        ("resnet110 at 0.01", 0.01, 10_000, "bf16-mixed", 312): [(row, 0) for row in ("oni", "xavier", "bn")],
    }


def test_methods_are_on_every_convolution_and_not_on_the_output():
    for id, count in (("table1", 4), ("table2", 7)):
        _, config = next(pair for pair in configs(id, "smoke").values() if pair[0].row == "oni")
        network = build_network(config)
        convolutions = [module for module in network.modules() if isinstance(module, nn.Conv2d)]
        assert len(convolutions) == count
        assert all(parametrize.is_parametrized(module, "weight") for module in convolutions)
        assert not parametrize.is_parametrized(network.classifier)


def test_names_begin_with_network_and_row():
    for id, experiment in EXPERIMENTS.items():
        for preset in experiment.presets:
            planned = experiment.planned(preset)
            names = [experiment.describe(run) for run in planned]
            assert len(set(names)) == len(names), (id, preset)
            for name, run in zip(names, planned, strict=True):
                assert name.startswith(f"{run.group.partition(',')[0]}/{run.row}, ")
    # So that a row is chosen with both batch sizes, or with one.
    names = [table2.EXPERIMENT.describe(run) for run in table2.EXPERIMENT.planned("full", seeds=1)]
    for pattern, chosen in (
        ("resnet20/oni", ["resnet20/oni, seed 0", "resnet20/oni, batch 8, seed 0"]),
        ("resnet20/oni, batch*", ["resnet20/oni, batch 8, seed 0"]),
        ("resnet110 at 0.1/oni", ["resnet110 at 0.1/oni, seed 0"]),
        ("resnet20", []),
    ):
        assert [name for name in names if is_chosen(name, pattern)] == chosen


def test_unknown_networks():
    for name in ("g2", "resnet21", "resnet2", "vgg"):
        with pytest.raises(ValueError, match=r"write for example g2k1 \(VGG\), or resnet20"):
            find_network(name)


def test_groups_are_named_as_in_the_paper():
    groups = groups_of(Results(Run(run, {}) for run in table2.EXPERIMENT.planned("full")))
    assert groups == ["resnet20", "resnet20, batch 8", "resnet110 at 0.1", "resnet110 at 0.01"]
    assert [name_network(group) for group in groups] == ["Res-20", "Res-20", "Res-110", "Res-110"]


def test_overrides():
    (run, *_) = [run for run in table1.EXPERIMENT.planned("full") if run.row == "oni"]
    run = run.override({"batch_size": 64, "nesterov": True, "augment": "flip-half,crop-together", "epochs": 3})
    config = run.config
    assert (config.batch_size, config.nesterov, config.augment) == (64, True, ("flip-half", "crop-together"))
    assert run.steps == run.epochs * (50_000 // 64)
    assert {(trial.batch_size, trial.nesterov, trial.epochs) for trial in run.trials()} == {(64, True, 8)}
    with pytest.raises(ValueError, match="unknown data 'mnist'"):
        table2.EXPERIMENT.planned("smoke", data="mnist")


def test_the_variants_that_the_texts_name_can_be_chosen():
    """Where text and released code differ, words after the command give the code's choice."""
    variants = {
        "reset_momentum": True,
        "drops": "79,119",
        "augment": "flip-half,crop-together",
        "nesterov": True,
    }
    for experiment in (table1.EXPERIMENT, table2.EXPERIMENT):
        assert all(key in experiment.choices for key in variants)
        experiment.check_overrides(variants)
        for run in experiment.planned("paper"):
            for config in (run.override(variants).config, *run.override(variants).trials()):
                assert (config.reset_momentum, config.drops, config.nesterov) == (True, (79, 119), True)
    assert "network_options.frozen_bias=true" in table1.EXPERIMENT.choices
    table1.EXPERIMENT.check_overrides({"network_options.frozen_bias": True})


# The command.


def test_a_part_through_the_command(tmp_path, capsys):
    out = ["--preset", "smoke", "--out", str(tmp_path), "--plain"]
    assert main(["reproduce", "table1", *out, "--only", "g1k1/oni"]) == 0
    shown = capsys.readouterr().out
    assert [line.split(",")[0] for line in shown.splitlines() if "/" in line] == ["g1k1/oni"]
    # Two trials, and the run with the rate of the better one; and these are Figure 7b's.
    assert len(list((tmp_path / "runs").iterdir())) == 3
    assert main(["reproduce", "fig7b", *out, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "7 runs, 1 finished; " in shown
    assert "finished  g1k1/T = 5, best of 2 trials, seed 0" in shown
    assert main(["reproduce", "table1", "method=oni", *out]) == 2
    assert "method can't be overridden for table1, which compares plain, WN" in capsys.readouterr().err
