import re
import shutil
import sys

import pytest

from oni.cli import main
from oni.recipes.report.sources import read_sources
from oni.recipes.report.write import write_report
from oni.recipes.run_files.config import Config
from oni.recipes.training.run import train


def test_folders_up_to_two_below_are_found(toy, make_record, write, write_run, tmp_path):
    write_run(tmp_path / "one" / "two" / "run")
    write(tmp_path / "one" / "fig99" / "results.json", make_record())
    write(tmp_path / "one" / ".unfinished-x" / "results.json", "{")
    write(tmp_path / "one" / "model" / "config.json", {"hidden_size": 64})
    experiments, runs = read_sources([tmp_path / "one", tmp_path / "one" / "two" / "run"])
    assert [experiment.subject.id for experiment in experiments] == ["fig99"]
    assert [run.name for run in runs] == ["run"]  # once
    assert len(read_sources([tmp_path])[1]) == 0  # three below
    shutil.rmtree(tmp_path / "one" / "fig99")
    with pytest.raises(ValueError, match="up to 2 folders deep"):
        read_sources([tmp_path])


def test_a_run_of_today_is_read(report, tmp_path):
    """The other tests write their own folders; this one keeps them true to what training writes."""
    config = Config(data="fashion-mnist-sample", network_options={"depth": 1, "width": 8}, epochs=1, samples=512)
    result = train(config, tmp_path / "runs", progress="none")
    _, (run,) = read_sources([tmp_path / "runs"])
    assert (run.name, run.status, run.config["network_options.depth"]) == (config.name, "finished", 1)
    assert run.final("test_error") == result.metrics["test_error"]
    page = report(tmp_path / "runs")
    assert f"{100 * result.metrics['test_error']:.2f}" in page.words
    assert [chart["y"]["title"] for chart in page.charts][:2] == ["training error, %", "test error, %"]


def test_runs_beside_their_experiments_are_left_out(toy, make_record, write, write_run, tmp_path):
    write(tmp_path / "fig99" / "results.json", make_record())
    write_run(tmp_path / "runs" / "one")
    experiments, runs = read_sources([tmp_path])
    assert (len(experiments), len(runs)) == (1, 0)
    assert len(read_sources([tmp_path, tmp_path / "runs"])[1]) == 1


BROKEN = {
    "not JSON": ("results.json", "{", "not JSON"),
    "not text": ("results.json", "\x00", "not JSON"),
    "too deep": ("results.json", "[" * 100_000, "not JSON"),
    "NaN": ("results.json", '{"id": NaN}', "NaN is not a JSON number"),
    "a list": ("results.json", "[]", "must be an object, got"),
    "no claims": ("results.json", {"claims": None}, '"claims" must be a list, got nothing'),
    "no verdict": ("results.json", {"claims": [{"text": "a", "held": "yes", "detail": ""}]}, '"verdict" of each claim'),
    "verdict": (
        "results.json",
        {"claims": [{"text": "a", "verdict": "hold", "detail": ""}]},
        "unknown verdict 'hold'; did you mean 'held'?",
    ),
    "kind": (
        "results.json",
        {"claims": [{"kind": "papers", "text": "a", "verdict": "held", "detail": ""}]},
        "unknown kind 'papers'; did you mean 'paper'?",
    ),
    "date": ("results.json", {"date": 5}, '"date" must be a string, got 5'),
    "overrides": ("results.json", {"overrides": ["epochs=3"]}, '"overrides" must be an object'),
    "runs": ("results.json", {"runs": [1]}, "each run must be an object"),
    "keys": ("results.json", {"runs": [{"parameters": {}, "measured": {}, "x": 1}]}, '"parameters" and "measured"'),
    "id": ("results.json", {"id": "fig98"}, "unknown experiment 'fig98'; did you mean 'fig99'? Choose from fig99"),
    "parameters": (
        "results.json",
        {"runs": [{"parameters": {}, "measured": {}}]},
        "no run of fig99 has the parameters",
    ),
    "measured": (
        "results.json",
        {"runs": [{"parameters": {"seed": 0, "mean": 3.0}, "measured": {"name": "a"}}]},
        "KeyError: 'value'",
    ),
    "config": ("config.json", "[1]", "must be an object"),
    "long config": ("config.json", {"method": "x" * 300_000}, "has 300,01"),
    "deep metrics": ("metrics.json", '{"metrics": ' + "[" * 900 + "]" * 900 + "}", "nested more than 50 deep"),
    "status": ("metrics.json", {"metrics": {}}, '"status" must be a string, got nothing'),
    "number": ("metrics.json", {"metrics": {"status": "finished", "steps": "1"}}, '"steps" must be a number'),
    "epochs": ("metrics.json", {"metrics": {"status": "finished"}, "epochs": {}}, '"epochs" must be a list'),
    "step": (
        "metrics.json",
        {"metrics": {"status": "finished"}, "epochs": [], "watched": {"signal": {"x": {}}}},
        "whole numbers, got 'x'",
    ),
    "format": ("metrics.json", {"format": 1000}, "its format is 1000"),
    "sessions": ("run.json", {"sessions": {}}, '"sessions" must be a list'),
    "csv": ("epochs.csv", "epoch,train_error\n1,abc\n", "not the table of epochs"),
    "cells": ("epochs.csv", "epoch,train_error\n1,2,3\n", "not the table of epochs"),
}


@pytest.mark.parametrize(("name", "content", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_named(toy, make_record, write, write_run, tmp_path, name, content, message):
    folder = tmp_path / "broken"
    if name != "results.json":
        write_run(folder, "unfinished")
    elif isinstance(content, dict):
        content = make_record(**content)
    write(folder / name, content)
    to = tmp_path / "report.html"
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        write_report([folder], to)
    assert str(error.value).startswith(str(folder / name))
    assert "\n" not in str(error.value)
    assert not to.exists()


OWN = """
from dataclasses import dataclass

from oni.recipes.experiments.experiment import Comparison, Experiment


@dataclass(frozen=True)
class Parameters:
    seed: int


EXPERIMENT = Experiment(
    id="ignored", title="A study of my own", shows="Nothing.", choices="None.", presets={}, parameters=(Parameters,),
    plan=None, measure=None, paper={}, claims=[], draw=None, table=lambda results: Comparison(["a"], [["b"]]),
)
"""


@pytest.mark.parametrize("command", ["report", "compare"])
def test_an_experiment_of_the_user_s_own(make_record, write, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "own_study.py").write_text(OWN)
    runs = [{"parameters": {"seed": 0}, "measured": {}}]
    for name in ("a", "b"):
        write(tmp_path / name / "results.json", make_record(id="own_study:EXPERIMENT", runs=runs))
    (tmp_path / "a" / "own_study-EXPERIMENT.svg").write_text("<svg></svg>")
    # A folder may name any code: none of it is imported unless the user asks for it.
    assert main([command, "a", "b"]) == 2
    assert "if you trust own_study:EXPERIMENT, add --experiment own_study:EXPERIMENT" in capsys.readouterr().err
    assert "own_study" not in sys.modules
    assert main([command, "a", "b", "--experiment", "own_study:EXPERIMENT"]) == 0
    if command == "report":
        page = (tmp_path / "report.html").read_text()
        assert "A study of my own" in page
        assert "data:image/svg+xml;base64" in page
    sys.modules.pop("own_study")


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("missing", FileNotFoundError, "no such folder"),
        ("file", ValueError, "is a file"),
        ("empty", ValueError, r"no experiment \(results.json\)"),
        (None, ValueError, "no folder given"),
    ],
)
def test_a_source_without_results_is_refused(tmp_path, source, kind, message):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(kind, match=message) as error:
        write_report([tmp_path / source] if source else [], tmp_path / "report.html")
    assert (source or "") in str(error.value)
    assert "oni reproduce fig5 --preset smoke" in str(error.value)
