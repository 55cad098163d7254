"""What is committed in results/: runs that the code still plans, and verdicts that it still comes to."""

import json
import re
from pathlib import Path

import pytest

from oni.recipes.experiments.experiment import as_record
from oni.recipes.experiments.record import make_command, read_results
from oni.recipes.experiments.registry import load_experiment

ROOT = Path(__file__).parents[3]
COMMITTED = sorted((ROOT / "results").glob("*/results.json"))
KEYS = ["id", "preset", "date", "code", "machine", "versions", "command", "seeds", "overrides", "runs", "paper"]
KEYS += ["claims", "table"]


@pytest.fixture(params=COMMITTED, ids=lambda path: path.parent.name)
def path(request):
    return request.param


def test_the_record_is_whole(path):
    text = path.read_text("utf-8")
    record = json.loads(text)
    assert list(record)[: len(KEYS)] == KEYS
    assert set(record) <= {*KEYS, "added", "missing", "trained_on"}
    assert record["id"] == path.parent.name
    assert record["preset"] in ("laptop", "full", "paper")
    assert record["command"] == make_command(record["id"], record["preset"], overrides=record["overrides"])
    assert not re.search(r"/home|/work|/tmp|/root", text)
    for file in path.parent.iterdir():
        assert file.stat().st_size < 400_000, file
    pictures = {f"{record['id']}.png", f"{record['id']}.svg"}
    assert {file.name for file in path.parent.iterdir()} == {"results.json", *pictures}


def test_the_verdicts_are_those_of_today_s_code(path):
    record = json.loads(path.read_text("utf-8"))
    experiment = load_experiment(record["id"])
    results = read_results(experiment, record)
    planned = plan_runs(experiment, record) if "missing" in record else ()
    assert experiment.judge(results, record["preset"], planned) == record["claims"]
    assert experiment.table(results).as_json() == record["table"]


def plan_runs(experiment, record):
    """The runs that the command of a record measures today."""
    overrides = record["overrides"]
    planned = experiment.planned(record["preset"])
    return [parameters.override(overrides) if overrides else parameters for parameters in planned]


def assert_recorded(recorded, written, path=""):
    """Compare a run with what would be written today, which has more options only where they came later."""
    may_grow = path.endswith("_options")
    assert recorded.keys() <= written.keys() if may_grow else recorded.keys() == written.keys(), path
    for key, value in recorded.items():
        if isinstance(value, dict):
            assert_recorded(value, written[key], f"{path}.{key}")
        else:
            assert value == written[key], f"{path}.{key}"


def test_the_runs_are_those_that_are_planned(path):
    record = json.loads(path.read_text("utf-8"))
    experiment = load_experiment(record["id"])
    results = read_results(experiment, record)
    for run, recorded in zip(results, record["runs"], strict=True):
        assert_recorded(recorded, json.loads(json.dumps(as_record(run))))
    assert sorted({run.parameters.seed for run in results}) == record["seeds"]
    planned = plan_runs(experiment, record)
    missing = [run for run in planned if run not in [one.parameters for one in results]]
    assert [run for run in planned if run not in missing] == [one.parameters for one in results]
    # Rows that were added to a figure may not be measured yet, and the table or the record then says so.
    assert not missing or len(missing) == record.get("missing") or "not yet measured" in str(record["table"])
