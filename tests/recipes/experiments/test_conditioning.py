"""oni reproduce conditioning: what is compared, what is watched, and how it is judged."""

import pytest
import torch
from torch import nn

import oni
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.studies.conditioning import EXPERIMENT, FIVE, GIVEN, NETWORKS, TARGET, WITH_GIVEN
from oni.recipes.run_files.config import Config
from oni.recipes.training import run as training_run
from oni.recipes.training import task
from oni.recipes.training.conditioning import watch_conditioning


def test_rows_differ_in_one_thing():
    for network in NETWORKS:
        configs = {
            run.row: run.config.as_dict() for run in EXPERIMENT.planned("full") if (run.group, run.seed) == (network, 0)
        }
        assert set(configs) == {FIVE.name, TARGET.name, *([GIVEN.name] if network in WITH_GIVEN else [])}
        for row in configs.keys() - {FIVE.name}:
            own, five = configs[row], configs[FIVE.name]
            assert [key for key in own if own[key] != five[key]] == ["method_options"]
            changed = [key for key, value in own["method_options"].items() if value != five["method_options"][key]]
            assert changed == (["sigma_min"] if row == TARGET.name else ["start"])
    # As many steps of every network, and few enough for a laptop's patience.
    assert {run.steps for run in EXPERIMENT.planned("full")} == {312}


def test_what_is_watched():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(24, 12), nn.Linear(12, 12), nn.Linear(12, 2))
    oni.convert(model, skip="2", sigma_min=0.9, start="orthogonal")
    seen = watch_conditioning(model)
    # Centred where it is wide; of a polar factor in float32, sums of 24 terms.
    assert seen["condition"] == pytest.approx([1, 1], abs=1e-4)
    assert seen["steps"] == [2, 2]
    assert min(seen["smallest"]) >= 0.9
    assert seen["retuned"] == 0
    with torch.no_grad():
        model[1].parametrizations.weight.original[0] *= 0.01
    later = watch_conditioning(model)
    assert later["condition"][1] == pytest.approx(100, rel=1e-4)
    assert (later["retuned"], oni.summary(model).rows[1].steps) == (1, 2), "it looks, and changes nothing"
    assert "retuned" not in watch_conditioning(oni.convert(nn.Sequential(nn.Linear(6, 6))))


@pytest.mark.parametrize(("sigma_min", "expected"), [(0.9, 2), (None, 0)])
def test_weights_with_a_target_are_retuned_once_an_epoch(tmp_path, monkeypatch, sigma_min, expected):
    calls = []

    def retune(model):
        calls.append(oni.summary(model).rows[0].steps)
        return oni.retune(model)

    monkeypatch.setattr(task, "retune", retune)
    config = Config(
        data="fashion-mnist-sample",
        samples=64,
        batch_size=16,
        epochs=2,
        drops=(),
        network_options={"depth": 2, "width": 16},
        method_options={"sigma_min": sigma_min, "start": "polar", "center": False},
    )
    training_run.train(config, tmp_path, progress="none")
    assert len(calls) == expected


def make_results(*, target=(0.91, 1.0), five=(0.85, 2.0), errors=(20.0, 20.1, 20.2), condition=2.0):
    """Three seeds of the VGG-style network, with these smallest singular values and deltas."""
    runs = []
    for training in EXPERIMENT.planned("full"):
        if training.group != "vgg":
            continue
        smallest, delta = target if training.row == TARGET.name else five
        seen = {
            "condition": [1.5, condition + training.seed / 100, 4.0],
            "smallest": [1.0, smallest + training.seed / 1000],
            "delta": [delta + training.seed / 100],
            "steps": [2, 5],
        }
        if training.row == TARGET.name:
            seen |= {"retuned": 0, "retune_seconds": 0.5}
        curve = [None] * 3 + [errors[training.seed] / 100]
        measured = {
            "conditioning": {"0": seen, "312": seen},
            "learning_rate": 0.05,
            "cost": {"steps": 312, "seconds": 50.0, "threads": 1},
            "train_error": [0.5, 0.4, 0.3, 0.2],
            "test_error": curve,
        }
        runs.append(Run(training, measured))
    return Results(runs)


def judge(results):
    return [record["verdict"] for record in EXPERIMENT.judge(results, "full") if record["text"].startswith("VGG")]


def test_claims():
    assert judge(make_results()) == ["held"] * 5
    # Neither singular values below the target, nor a larger delta, nor weights that are ill-conditioned are passed.
    worse = judge(make_results(target=(0.5, 3.0), condition=5.0))
    assert worse == ["not held"] * 4 + ["held"]
    # Errors that differ between seeds by as much as is called the same decide nothing.
    assert judge(make_results(errors=(15.0, 20.0, 25.0)))[-1] == "undecided"
    others = [record for record in EXPERIMENT.judge(make_results(), "full") if not record["text"].startswith("VGG")]
    assert {record["verdict"] for record in others} == {"not tested"}


def test_table_and_charts():
    results = make_results()
    table = EXPERIMENT.table(results)
    assert [row[0].split(", ")[-1] for row in table.rows] == ["Z as built", "5 steps", "sigma_min=0.9"]
    row = dict(zip(table.columns, table.rows[-1], strict=True))
    assert (row["worst"], row["steps"], row["retune, %"]) == ("4.00 ± 0.00", "2 - 5", "1.00 ± 0.00")
    (chart,) = EXPERIMENT.charts(results)
    assert [line.name for line in chart.series] == ["5 steps", "5 steps", "sigma_min=0.9", "sigma_min=0.9"]
