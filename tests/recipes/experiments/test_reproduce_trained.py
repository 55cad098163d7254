"""``oni reproduce`` of what trains: what is finished is found, the rest is trained, and all of it at smoke."""

import json
import shutil

import pytest
from matplotlib.figure import Figure

from oni.machine import machine
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment
from oni.recipes.experiments.registry import MODULES, load_all, load_experiment
from oni.recipes.experiments.runs import Row, plan_rows
from oni.recipes.experiments.verdicts import Kind
from oni.recipes.run_files.config import Config

CONFIG = Config(
    data="fashion-mnist-sample",
    samples=256,
    epochs=1,
    drops=(),
    network_options={"depth": 1, "width": 4},
    method="plain",
)
ROW = Row("mlp", "MLP", rates=(0.1, 0.2))
STUDY = Experiment(
    id="fig99",
    title="A study",
    shows="Nothing.",
    choices="None.",
    presets={"smoke": {"seeds": 2}, "laptop": {"seeds": 3}},
    plan=lambda seed, seeds: plan_rows(
        [ROW], CONFIG, range(seed, seed + seeds), trial={"validation": 64, "seed": seed}
    ),
    paper={},
    claims=[Claim(Kind.OURS, "Trained", lambda results: (True, f"{len(results)} runs"))],
    table=lambda results: Comparison(["a"], []),
    draw=lambda results: Figure(),
    trains=True,
)
LABEL = "mlp, best of 2 trials, seed"


def list_files(folder):
    return sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))


# What is finished.


def test_a_dry_run_of_what_several_machines_trained(run, tmp_path, register):
    register(STUDY)
    command = ["reproduce", "fig99", "--preset", "laptop", "--plain"]
    for number in (0, 1):
        assert run(*command, "--only", f"*seed {number}", "--out", tmp_path / str(number))[0] == 0
    for seconds, folder in enumerate(sorted((tmp_path / "0" / "runs").glob("mlp*"))):
        record = json.loads((folder / "metrics.json").read_text())
        record["metrics"]["seconds"] = 1000.0 * 4**seconds
        (folder / "metrics.json").write_text(json.dumps(record))
    # One run is finished, of three trainings.
    assert (
        "3 runs, 1 finished; about 11 h 40 min left if run one after the other"
        in run(*command, "--out", tmp_path / "0", "--dry-run")[1]
    )
    shutil.copytree(tmp_path / "1" / "runs", tmp_path / "0" / "runs", dirs_exist_ok=True)
    before = list_files(tmp_path)
    code, out, err = run(*command, "--out", tmp_path / "0", "--dry-run")
    assert (code, err) == (0, "")
    assert out.splitlines()[:3] == [f" finished  {LABEL} 0", f" finished  {LABEL} 1", f"    to do  {LABEL} 2"]
    assert list_files(tmp_path) == before


def test_what_is_finished_is_written_and_nothing_is_decided_by_it(run, tmp_path, register):
    register(STUDY)
    command = ["reproduce", "fig99", "--preset", "laptop", "--out", tmp_path]
    code, out, err = run(*command, "--finished")
    assert (code, out) == (2, "")
    assert err.startswith(f"oni: no finished run of fig99 in {tmp_path / 'runs'} (no finished run")
    assert err.endswith("); to train them, leave out --finished\n")
    assert not any(tmp_path.iterdir())
    for seed in (0, 2):
        assert run(*command, "--only", f"*seed {seed}", "--plain")[0] == 0
    trained = sorted((tmp_path / "runs").iterdir())
    code, out, _ = run(*command, "--finished", "--plain")
    assert code == 0
    assert out.startswith("2 of 3 runs are finished; about ")
    record = json.loads((tmp_path / "fig99" / "results.json").read_text())
    assert ([one["parameters"]["config"].get("seed", 0) for one in record["runs"]], record["missing"]) == ([0, 2], 1)
    assert record["trained_on"] == {machine()["cpu"]: 2}
    detail = "1 run is not yet measured; so far: 2 runs"
    assert record["claims"] == [{"kind": "ours", "text": "Trained", "verdict": "not tested", "detail": detail}]
    assert sorted((tmp_path / "runs").iterdir()) == trained
    # What is trained later goes in, and nothing is missing then.
    assert run(*command, "--only", "*seed 1", "--plain")[0] == 0
    record = json.loads((tmp_path / "fig99" / "results.json").read_text())
    assert [one["parameters"]["config"].get("seed", 0) for one in record["runs"]] == [0, 1, 2]
    assert "missing" not in record
    assert [part["trained_on"] for part in record["added"]] == [{machine()["cpu"]: 1}]
    assert [claim["verdict"] for claim in record["claims"]] == ["held"]


SMALL = [
    ("figA2", ["network_options.width=8", "network_options.depth=3"], "*ONI-NS*", 2, 4),
    ("fig7b", [], "g1k1/T = [12],*", 2, 7),
    ("figA11", [], "*hinge*", 2, 4),
    ("fig7c", [], "*T = [12],*", 2, 6),
]
"""One of each family that trains: overrides, a part, how many runs it has, and how many all have."""


@pytest.mark.parametrize(("id", "overrides", "part", "few", "every"), SMALL)
def test_a_part_is_trained_then_the_rest(run, tmp_path, id, overrides, part, few, every):
    command = ["reproduce", id, *overrides, "--preset", "smoke", "--out", tmp_path, "--plain"]
    runs = tmp_path / "runs"

    def read_record():
        return json.loads((tmp_path / id / "results.json").read_text())

    # Nothing is there, and looking for it writes nothing.
    code, out, _ = run(*command, "--dry-run")
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()[:every]] == every * [["to", "do"]]
    assert f"{every} runs, 0 finished; no finished run yet to estimate the time from" in out
    assert run(*command, "--finished")[0] == 2
    assert not any(tmp_path.iterdir())
    # A part alone is trained and shown, and no results are written of it.
    code, out, _ = run(*command, "--only", part)
    assert code == 0
    assert out.count(", seed 0, ") == few
    assert not (tmp_path / id / "results.json").exists()
    trained = list_files(runs)
    # Now it is finished, and what it gave is written without deciding anything.
    code, out, _ = run(*command, "--dry-run")
    assert code == 0
    assert f"{every} runs, {few} finished; about " in out
    assert sum(line.startswith(" finished  ") for line in out.splitlines()) == few
    code, out, _ = run(*command, "--finished")
    assert code == 0
    assert out.startswith(f"{few} of {every} runs are finished; about ")
    record = read_record()
    assert (len(record["runs"]), record["missing"]) == (few, every - few)
    assert {claim["verdict"] for claim in record["claims"]} <= {"not tested"}
    assert list_files(runs) == trained
    # A run that was interrupted is not taken for a finished one, and goes on if asked to.
    interrupted = runs / record["runs"][0]["measured"]["run"]
    (interrupted / "metrics.json").unlink()
    assert f"{every} runs, {few - 1} finished; " in run(*command, "--dry-run")[1]
    code, _, err = run(*command)
    assert code == 2
    assert "pass --resume to continue it" in err
    others = {entry for entry in trained if entry[0].is_file() and interrupted not in entry[0].parents}
    code, _, _ = run(*command, "--resume")
    assert code == 0
    again = read_record()
    assert len(again["runs"]) == every
    assert "missing" not in again
    assert {entry for entry in others if entry[0].is_file()} <= {*list_files(runs)}, (
        "what was there is not trained again"
    )

    def without_times(entry):
        measured = {name: value for name, value in entry["measured"].items() if name != "cost"}
        return entry["parameters"], measured

    known = [without_times(entry) for entry in again["runs"]]
    assert all(without_times(entry) in known for entry in record["runs"])
    code, out, _ = run(*command, "--dry-run")
    assert f"{every} runs, {every} finished; nothing is left to do" in out


@pytest.mark.parametrize("id", ["fig2", "theorem1", "tableA1"])
def test_what_trains_nothing_has_nothing_to_resume(run, tmp_path, id):
    """One of each family."""
    code, out, _ = run("reproduce", id, "--preset", "smoke", "--out", tmp_path, "--dry-run", "--plain")
    assert code == 0
    assert " 0 finished; no runs are stored, so all are measured" in out
    for option in ("--finished", "--resume"):
        code, _, err = run("reproduce", id, "--preset", "smoke", "--out", tmp_path, option)
        assert (code, err) == (2, f"oni: {id} trains nothing, so {option} has no effect; leave it out\n")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("id", "preset", "sparing", "seeds", "all_seeds"),
    [
        ("fig8a", "full", 2 * 7 + 5 + 3 * 2 + 2 * 2, 2, 2 * 12 + 2 * 4),
        ("table1", "full", 5 * 3 + 6 * 2, 3, 11 * 3),
        ("fig5", "full", 18, 2, 20),
    ],
)
def test_a_number_of_seeds_is_that_of_every_row(run, tmp_path, id, preset, sparing, seeds, all_seeds):
    command = ["reproduce", id, "--preset", preset, "--out", tmp_path, "--dry-run", "--plain"]
    assert f"{sparing} runs, 0 finished; " in run(*command)[1]
    assert f"{all_seeds} runs, 0 finished; " in run(*command, "--seeds", seeds)[1]


# Every experiment, at smoke.


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One folder of training runs, as the figures share them."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("id", [id for id in MODULES if id != "demo"])
def test_smoke(run, tmp_path, runs, id):
    experiment = load_experiment(id)
    folder = ["--runs", runs] if experiment.trains else []
    code, out, err = run("reproduce", id, "--preset", "smoke", "--out", tmp_path, *folder, "--plain")
    assert code == 0
    assert experiment.trains or err == ""
    assert out.isascii()
    record = json.loads((tmp_path / id / "results.json").read_text())
    assert [claim["verdict"] for claim in record["claims"]] == ["not tested"] * len(experiment.claims)
    for name in (f"{id}.png", f"{id}.svg"):
        assert (tmp_path / id / name).stat().st_size > 10_000
        assert str(tmp_path / id / name) in out


def test_all_ids_load():
    assert all(experiment.id == id for id, experiment in load_all().items())
