"""Tables 3, 4 and 5 and Figure 7c: which runs they are, what these take, and claims that hold and fail."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from oni.cli import main
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.imagenet import fig7c, residual, table3, table4, table5
from oni.recipes.experiments.imagenet.family import describe_run
from oni.recipes.experiments.imagenet.training import make_config
from oni.recipes.tasks.classification import build_network
from oni.recipes.training import memory
from oni.recipes.training.config import Config
from oni.recipes.training.memory import estimate_memory

EXPERIMENTS = {module.EXPERIMENT.id: module.EXPERIMENT for module in (table3, table4, table5, fig7c)}
ROWS = {
    "table3": {row.name: row for row in table3.ROWS},
    "table4": {row.name: row for row in table4.ROWS},
    "table5": {row.name: row for row in table5.ROWS},
    "fig7c": {fig7c.ONI.name: fig7c.ONI},
}


def configs(id, preset):
    """The configuration of every run, with the first of its candidates."""
    for run in EXPERIMENTS[id].planned(preset):
        yield run, make_config(run, ROWS[id][run.row], run.rates[0], run.candidates[0])


# The runs.


@pytest.mark.parametrize(("id", "batch", "runs"), [("table3", 128, 14), ("table4", 256, 8), ("table5", 256, 16)])
def test_the_paper_s_settings(id, batch, runs):
    planned = list(configs(id, "paper"))
    assert len(planned) == runs
    for run, config in planned:
        assert (config.data, config.data_options["size"], config.data_options["resize"]) == ("imagenet", 224, 256)
        assert (config.epochs, config.drops, config.drop_factor) == (100, (30, 60, 90), 0.1)
        assert (config.optimizer, config.momentum, config.batch_size) == ("sgd", 0.9, batch)
        assert config.augment == ("resized-crop", "flip")
        assert config.normalise == "mean-std"
        assert config.network_options["classes"] == 1000
        assert not run.trials()
        if id != "table5":
            assert config.weight_decay == 1e-4


def values(id, name):
    """What the runs of a row have at preset paper: learning rates, weight decays, steps of ONI."""
    found = [config for run, config in configs(id, "paper") if run.row == name and run.network != "resnet101"]
    steps = {config.method_options.get("steps") for config in found}
    return sorted(c.learning_rate for c in found), sorted(c.weight_decay for c in found), *steps


def test_each_architecture_s_values_as_printed_and_as_released():
    assert values("table3", "plain") == ([0.01, 0.05], [1e-4, 1e-4], None)
    assert values("table3", "oni") == ([0.1], [1e-4], 5)
    assert values("table3", "oni-released") == ([0.05], [1e-4], 5)
    assert values("table4", "none/plain") == ([0.1], [1e-4], None)
    assert values("table4", "none/plain-released") == ([0.01], [1e-4], None)
    assert values("table4", "none/oni") == ([0.1], [1e-4], 2)
    assert values("table4", "none/oni-released") == ([0.1], [1e-4], 3)
    assert values("table4", "var/oni") == ([0.1], [1e-4], 2)
    assert values("table5", "var/plain") == ([0.1, 0.1], [1e-4, 2e-4], None)
    assert values("table5", "bn/oni") == ([0.1, 0.1], [1e-4, 2e-4], 2)


def test_architectures():
    for run, config in configs("table4", "smoke"):
        network = build_network(config)
        kinds = {type(module) for module in network.modules()}
        assert (nn.BatchNorm2d in kinds) == (not run.row.startswith("none"))
        assert hasattr(network.last_norm, "num_features") == run.row.startswith("var")
    for run, config in configs("table3", "smoke"):
        network = build_network(config)
        assert any(isinstance(module, nn.BatchNorm2d) for module in network.modules()) == (run.row == "bn")


def test_two_steps_of_the_figure_are_runs_of_the_table():
    for preset in ("laptop", "full", "paper"):
        cells = {config.hash for run, config in configs("table4", preset) if run.row == "none/oni"}
        two = {config.hash for run, config in configs("fig7c", preset) if config.method_options["steps"] == 2}
        assert two == cells
        shown = [describe_run(run) for run in fig7c.EXPERIMENT.planned(preset)]
        assert len(set(shown)) == len(shown)


def test_trials_hold_images_out_and_are_shared_by_seeds():
    first, second = [run for run in table3.EXPERIMENT.planned("full") if run.row == "plain"]
    trials = [
        [make_config(run, ROWS["table3"]["plain"], *trial, trial=True) for trial in run.trials()]
        for run in (first, second)
    ]
    assert trials[0] == trials[1]
    assert [config.learning_rate for config in trials[0]] == [0.01, 0.05, 0.1]
    assert {(config.validation, config.epochs, config.drops) for config in trials[0]} == {(500, 6, ())}
    few = replace(first, samples=2000, trial_validation=200)
    config = make_config(few, ROWS["table3"]["plain"], 0.1, {}, trial=True)
    assert (config.samples, config.validation) == (1800, 200)
    final = make_config(few, ROWS["table3"]["plain"], 0.1, {})
    assert (final.samples, final.validation) == (2000, 0)


# What it takes.


def dry_run(capsys, *words):
    assert main(["reproduce", *words, "--preset", "paper", "--dry-run", "--plain"]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_the_dry_run_says_what_it_takes_without_any_data(tmp_path, capsys, monkeypatch):
    text = dry_run(capsys, "table4", "accumulate=4", "--devices", "2", "--accelerator", "cpu", "--out", str(tmp_path))
    assert "8 runs, 0 finished; the data are not here; pass --data" in text
    assert "resnet18: 8 runs, 800 epochs, 1,024,933,600 training and 40,000,000 test images; about" in text
    assert "GB on each of 2 devices for 32 images of 224 x 224 at once (the paper: one GPU)" in text
    # ResNet-101 takes seconds; its memory is that of any other network.
    monkeypatch.setattr(memory, "estimate_memory", lambda config, shape, devices: 32e9)
    text = dry_run(capsys, "table5", "--out", str(tmp_path))
    assert "16 runs, 0 finished" in text
    assert "resnet101: 8 runs, 800 epochs" in text
    assert "about 32 GB on 1 device for 256 images of 224 x 224 at once (the paper: two GPUs)" in text
    assert not list(tmp_path.iterdir())


def test_memory_against_what_a_step_keeps():
    config = Config(
        network="vgg16",
        network_options={"width": 2, "hidden": 8, "places": 1, "classes": 3},
        method="oni",
        batch_size=8,
        accumulate=2,
        momentum=0.9,
    )
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    network = build_network(config)
    own = {parameter.untyped_storage().data_ptr() for parameter in network.parameters()}
    images, labels = torch.randn(4, 3, 32, 32), torch.zeros(4, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        nn.functional.cross_entropy(network(images), labels)
    measured = sum(storage.nbytes() for address, storage in kept.items() if address not in own)
    weights = sum(parameter.numel() * 4 for parameter in network.parameters())
    # What ONI keeps is estimated as five times the weights.
    assert estimate_memory(config, (3, 32, 32)) == pytest.approx(3 * weights + measured, rel=0.1)
    whole, half = (estimate_memory(config, (3, 320, 320), devices=devices) for devices in (1, 2))
    assert 0.5 < half / whole < 0.6


# Reading and judging.


def make_results(id, preset, error, *, tried=None, epochs=3):
    """Every run of a preset with errors as a function of the run; the lowest test error is not the last."""
    runs = []
    for run in EXPERIMENTS[id].planned(preset):
        train, test = error(run)
        measured = {
            "run": "x", "status": "finished", "learning_rate": run.rates[0], "chosen": dict(run.candidates[0]),
            "train_error": [train / 100] * run.epochs,
            "test_error": [0.9] * (run.epochs - 2) + [(test - 0.5) / 100, test / 100],
            "test_top5_error": [test / 300] * run.epochs,
            "tried": tried(run) if tried else {},
        }  # fmt: skip
        runs.append(Run(run, measured))
    return Results(runs)


def verdicts(id, results, preset):
    return {claim["text"]: claim["verdict"] for claim in EXPERIMENTS[id].judge(results, preset)}


def as_printed(id):
    def error(run):
        if id == "table3":
            return 20, table3.PAPER["top-1"].get(run.row, 30) + 5 * (run.rates[0] == 0.05 and run.row == "plain")
        if id == "table4":
            return table4.PAPER[run.row]["train"], table4.PAPER[run.row]["test"]
        if id == "table5":
            return 20, table5.PAPER[run.network][run.row] + 10 * (run.candidates[0]["weight_decay"] == 1e-4)
        return 20, {1: 33.0, 2: 31.0, 3: 31.5, 4: 32.0, 5: 32.5, 7: 33.5}[
            run.options.get("method_options.steps", residual.STEPS)
        ]

    return error


def tried_in_paper(run):
    return {"learning rate 0.1": 0.3 if run.row.startswith("oni") else None}


@pytest.mark.parametrize("id", EXPERIMENTS)
def test_claims_hold_on_the_paper_s_numbers_and_fail_on_their_opposite(id):
    printed = as_printed(id)
    results = make_results(id, "paper", printed, tried=tried_in_paper)
    claims = verdicts(id, results, "paper")
    others = ("Also", "Only", "ONI has a lower")
    long = {text: verdict for text, verdict in claims.items() if not text.startswith(others)}
    assert set(long.values()) == {"held"}
    assert len(long) >= 2

    def opposite(run):
        if id == "fig7c":  # best at the ends, worst at two
            return 20, 31.0 + (run.options.get("method_options.steps", 2) in (2, 3))
        train, test = printed(run)
        return 100 - train, 100 - test

    failed = verdicts(id, make_results(id, "paper", opposite, tried=tried_in_paper), "paper")
    for text in long:
        # The opposite of no difference is none either.
        assert failed[text] == ("held" if "no significant" in text else "not held"), text


def test_only_oni_trains_at_a_large_rate():
    def judge(tried):
        results = make_results("table3", "full", lambda run: (20, 30), tried=tried)
        return verdicts("table3", results, "full")[
            "Also in short training on few classes: only ONI trains at a rate of 0.1"
        ]

    assert judge(tried_in_paper) == "held"
    assert judge(lambda run: {"learning rate 0.1": 0.3}) == "not held"
    assert judge(lambda run: {"learning rate 0.1": None}) == "not held"
    assert judge(lambda run: {"learning rate 0.01": 0.3}) == "not tested"


def test_short_runs_do_not_bear_the_paper_s_claims():
    def judge(change):
        def errors(run):
            train, test = as_printed("table4")(run)
            return train, change(test)

        claims = verdicts("table4", make_results("table4", "full", errors), "full")
        assert [verdict for text, verdict in claims.items() if not text.startswith("Also")] == ["not tested"] * 4
        return [verdict for text, verdict in claims.items() if text.startswith("Also")]

    # The differences of the paper are less than 1,000 test images tell; eight times as much is not.
    assert judge(lambda test: test) == ["not tested", "not tested", "held", "held"]
    assert judge(lambda test: 8 * test - 200) == ["held"] * 4


def test_the_table_has_the_lowest_and_the_last_and_the_best_candidate():
    table = table3.EXPERIMENT.table(make_results("table3", "paper", as_printed("table3"), tried=tried_in_paper))
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert (row["method"], row["paper, top-1"], row["learning rate"]) == ("plain", "27.47", "0.01")
    assert (row["lowest, top-1"], row["difference, top-1"], row["last, top-1"]) == ("26.97", "-0.50", "27.47")
    assert (row["paper, top-5"], row["last, top-5"]) == ("9.08", "9.16")
    assert "Unlike" not in table.note
    short = table4.EXPERIMENT.table(make_results("table4", "full", as_printed("table4")))
    assert "Unlike the paper: 5,000 images of tiny-imagenet-20 instead of 1,281,167, 12 epochs" in short.note
    last = table5.EXPERIMENT.table(make_results("table5", "paper", as_printed("table5")))
    assert [row[5] for row in last.rows] == ["0.1, weight decay 0.0002"] * 8


def test_a_run_that_diverged_counts_as_wrong():
    results = make_results("table4", "full", as_printed("table4"))
    first = results[0]
    cut = {
        **first.measured,
        "train_error": [None],
        "test_error": [None],
        "test_top5_error": [None],
        "status": "diverged",
    }
    table = table4.EXPERIMENT.table(Results([Run(first.parameters, cut), *results[1:]]))
    assert table.rows[0][5].startswith(f"{(100 + 33.34) / 2:.2f}")
