"""What training runs cost: read from their folders, and in the cells of a table."""

import json
from dataclasses import dataclass

import pytest

from oni.machine import machine
from oni.recipes.experiments.errors import COST_COLUMNS, errors_at, list_rates, summarise_cost
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.registry import load_experiment
from oni.recipes.experiments.runs import Training, measure, read_cost
from oni.recipes.experiments.setting import Setting
from oni.recipes.run_files.config import Config
from oni.recipes.training.run import train

NAMES = ("steps", "seconds", "threads")
CONFIG = Config(
    data="fashion-mnist-sample", samples=256, batch_size=64, epochs=2, network_options={"depth": 1, "width": 4}
)


@dataclass(frozen=True)
class Parameters:
    seed: int
    epochs: int = 2


def make_results(*costs):
    return Results(
        Run(Parameters(seed), {} if cost is None else {"cost": dict(zip(NAMES, cost, strict=True))})
        for seed, cost in enumerate(costs)
    )


def test_what_a_run_took_is_read_from_its_folder(tmp_path):
    result = train(CONFIG, tmp_path)
    cost = read_cost(result)
    assert cost == {
        "steps": 2 * 4,
        "seconds": result.metrics["seconds"],
        "threads": machine()["threads"],
        "precision": "32-true",
    }
    assert cost["seconds"] > 0
    # Of the machine that trained it, not of the one that reads.
    path = result.folder / "run.json"
    record = json.loads(path.read_text())
    record["sessions"][-1]["machine"]["threads"] = 96
    path.write_text(json.dumps(record))
    assert read_cost(result) == {**cost, "threads": 96}
    measured = measure(Training("mlp", CONFIG), Setting(tmp_path))
    assert measured["cost"] == {**cost, "threads": 96}


def test_the_learning_rate_of_every_seed_is_in_the_table():
    runs = [Run(Parameters(seed), {"learning_rate": rate}) for seed, rate in enumerate((0.1, 0.03, 0.1))]
    assert str(list_rates(Results(runs))) == "0.03, 0.1"
    assert list_rates(Results(runs[::2])).as_json() == 0.1


@pytest.mark.parametrize("id", ["fig5", "fig7b", "figA4", "table1", "table3"])
def test_every_table_says_if_a_seed_was_trained_at_a_lower_rate(id):
    """A run that diverges is trained again at the next lower rate, so seeds of one row may differ."""
    experiment = load_experiment(id)
    row = experiment.planned("full")[0].row
    runs = [run for run in experiment.planned("full") if run.row == row]
    measured = {f"{part}_error": 30 * [0.5] for part in ("train", "test", "test_top5")}
    results = Results(
        Run(run, {"learning_rate": 0.03 if run.seed else 0.1, "status": "finished", **measured}) for run in runs
    )
    assert len(results) > 1
    assert "0.03, 0.1" in str(experiment.table(results).rows)


def test_cost_in_a_table():
    assert len(COST_COLUMNS) == 2
    # 10, 20 and 60 ms per step; 1, 4 and 3600 core-seconds.
    results = make_results((100, 1.0, 1), (100, 2.0, 2), (1000, 60.0, 60))
    milliseconds, hours = summarise_cost(results)
    assert (milliseconds.value, hours.value) == pytest.approx((20.0, (1 + 4 + 3600) / 3600))
    assert [str(cell) for cell in summarise_cost(results)] == ["20", "1.00"]


@pytest.mark.parametrize("costs", [(), (None,), ((100, 1.0, 1), None), ((0, 1.0, 1), (100, 1.0, 1))])
def test_what_nobody_took_the_time_of_has_no_cost(costs):
    assert summarise_cost(make_results(*costs)) == ["-", "-"]


def test_an_error_that_was_not_measured_is_not_guessed():
    results = Results([Run(Parameters(0), {"test_error": [None, 0.25]})])
    assert errors_at(results, "test") == [25.0]
    with pytest.raises(ValueError, match="the test error was not measured after that epoch"):
        errors_at(results, "test", 0)
