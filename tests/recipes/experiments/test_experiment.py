import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from oni.cli import main
from oni.recipes import reproduce
from oni.recipes.experiments import experiment
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Results, Run, registry, rounded
from oni.recipes.report import markdown as reproduction

ROOT = Path(__file__).parents[3]
COMMITTED = sorted((ROOT / "results").glob("*/results.json"))
KEYS = ["id", "preset", "machine", "versions", "command", "runs", "paper", "claims"]


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


def halves(seed, factor):
    return {"values": [1.0 / factor, float("nan")], "seed_squared": seed**2}


TOY = Experiment(
    id="fig99",
    title="A toy [bold]",
    shows="Nothing.",
    choices="None.",
    presets={"smoke": {"seeds": 2}, "laptop": {"seeds": 3}},
    runs=lambda seed, seeds: [{"seed": seed + number, "factor": 3} for number in range(seeds)],
    measure=halves,
    paper={"value": 0.33},
    claims=[
        Claim("A third", lambda results: (True, f"{results.every('values')[0][0]}")),
        Claim("All finite", lambda results: (None not in results.every("values")[0], "one is not")),
    ],
    table=lambda results: Comparison(["what", "ours"], [["value", f"{results.mean('values')[0]:.3f}"]], "A note."),
    draw=lambda results: Figure(),
)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(experiment, "registry", lambda: {"fig99": TOY})
    return TOY


def test_the_record(run, tmp_path, toy):
    code, out, err = run("reproduce", "fig99", "--preset", "smoke", "--out", tmp_path / "new", "--seed", 5, "--plain")
    assert (code, err) == (0, "")  # although a claim does not hold
    assert out.isascii()
    assert "A toy [bold]" in out
    assert re.search(r"^held +A third *$", out, re.MULTILINE)
    assert re.search(r"^NOT held +All finite *$", out, re.MULTILINE)
    folder = tmp_path / "new" / "fig99"
    assert sorted(path.name for path in folder.iterdir()) == ["fig99.png", "fig99.svg", "results.json"]
    record = json.loads((folder / "results.json").read_text())
    assert list(record) == KEYS
    assert record["runs"] == [
        {"parameters": {"seed": seed, "factor": 3}, "measured": {"values": [0.333333, None], "seed_squared": seed**2}}
        for seed in (5, 6)
    ]
    assert record["paper"] == {"value": 0.33}
    # Judged by the numbers as they are recorded, so that anyone comes to the same verdict.
    assert record["claims"][0] == {"text": "A third", "held": True, "detail": "0.333333"}
    assert record["claims"][1]["held"] is False
    assert record["command"] == "oni reproduce fig99 --preset smoke --seed 5"
    assert {"cpu", "cores", "threads"} <= record["machine"].keys()
    assert {"python", "torch", "oni"} <= record["versions"].keys()


@pytest.mark.parametrize("stage", ["measure", "draw"])
def test_what_fails_leaves_the_old_results(run, tmp_path, monkeypatch, toy, stage):
    assert run("reproduce", "fig99", "--preset", "smoke", "--out", tmp_path)[0] == 0
    before = (tmp_path / "fig99" / "results.json").read_bytes()

    def fails(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "registry", lambda: {"fig99": replace(TOY, **{stage: fails})})
    code, out, err = run("reproduce", "fig99", "--preset", "laptop", "--out", tmp_path)
    assert (code, out, err) == (130, "", "oni: interrupted\n")
    assert (tmp_path / "fig99" / "results.json").read_bytes() == before
    assert len(list((tmp_path / "fig99").iterdir())) == 3


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fig22"], "there is no experiment 'fig22'; the nearest is 'fig2'"),
        (["TABLEA2"], "the nearest is 'tableA2'"),
        (["fig2", "--preset", "labtop"], "the nearest is 'laptop', and all are: smoke, laptop, paper"),
        (["fig2", "--seed", "-1"], "seed must be at least 0"),
        (["fig2", "--out", "file"], "file"),
        (["fig2", "--out", "file/below"], "below"),
        ([], "Missing argument"),
    ],
)
def test_what_a_user_can_mend_is_one_line(run, tmp_path, monkeypatch, arguments, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, out, err = run("reproduce", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert complaint in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(run, tmp_path, toy):
    tmp_path.chmod(0o500)
    code, out, err = run("reproduce", "fig99", "--preset", "smoke", "--out", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(tmp_path) in err


def test_a_folder_that_vanishes_is_one_line(run, tmp_path, monkeypatch, toy):
    def refused(*_, **__):
        raise PermissionError(13, "Permission denied", str(tmp_path / "fig99"))

    monkeypatch.setattr(reproduce, "TemporaryDirectory", refused)
    code, out, err = run("reproduce", "fig99", "--preset", "smoke", "--out", tmp_path)
    assert (code, out, err) == (2, "", f"oni: {tmp_path / 'fig99'}: Permission denied\n")


def test_the_list(run, tmp_path):
    (tmp_path / "fig2").mkdir()
    (tmp_path / "fig2" / "results.json").touch()
    code, out, err = run("list", "--out", tmp_path, "--plain")
    assert (code, err) == (0, "")
    assert out.isascii()
    for one in registry().values():
        assert re.search(rf"^{one.id} .*smoke laptop", out, re.MULTILINE)


def test_every_experiment_is_complete():
    for id, one in registry().items():
        assert one.id == id
        assert list(one.presets) == ["smoke", "laptop", *(["full"] if one.trains else []), "paper"]
        for said in (one.title, one.shows, one.choices, *(claim.text for claim in one.claims)):
            assert said.isascii(), said
        assert json.loads(json.dumps(one.paper)) == one.paper
        for preset in one.presets:
            runs = one.planned(preset)
            assert json.loads(json.dumps(runs)) == runs
            seeds = {parameters["seed"] for parameters in runs}
            assert preset == "smoke" or id == "tableA1" or len(seeds) >= (1 if one.trains else 5)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One folder of training runs, as the figures share them."""
    return tmp_path_factory.mktemp("runs")


@pytest.mark.parametrize("id", registry())
def test_smoke(run, tmp_path, runs, id):
    code, out, err = run("reproduce", id, "--preset", "smoke", "--out", tmp_path, "--runs", runs, "--plain")
    assert code == 0
    assert registry()[id].trains or err == ""
    assert out.isascii()
    record = json.loads((tmp_path / id / "results.json").read_text())
    assert len(record["claims"]) == len(registry()[id].claims)
    for name in (f"{id}.png", f"{id}.svg"):
        assert (tmp_path / id / name).stat().st_size > 10_000
        assert str(tmp_path / id / name) in out
    section = reproduction.render_section(record, "results")
    assert section.count("held |") + section.count("held** |") == len(record["claims"])


def test_rounding():
    assert rounded((1, True, "x", None, 1 / 3, float("inf"), {2: 1e-300})) == [
        1,
        True,
        "x",
        None,
        0.333333,
        None,
        {"2": 1e-300},
    ]


def test_what_is_not_finite_shows_in_a_mean():
    results = Results([Run({}, {"a": [1.0, None], "b": 1.0}), Run({}, {"a": [3.0, 2.0], "b": 2.0})])
    assert results.mean("a") == [2.0, float("inf")]
    assert results.mean("b") == 1.5
    assert results.deviation("b") == pytest.approx(0.5**0.5)


# What is committed.


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.name)
def test_committed_results(path):
    text = path.read_text("utf-8")
    record = json.loads(text)
    assert list(record) == KEYS
    subject = registry()[record["id"]]
    assert record["id"] == path.parent.name
    assert record["preset"] in ("laptop", "full", "paper")
    assert record["command"] == f"oni reproduce {record['id']} --preset {record['preset']}"
    assert [run["parameters"] for run in record["runs"]] == subject.planned(record["preset"])
    # The verdicts are those of today's code on the recorded numbers.
    assert subject.judged(reproduce.recorded_runs(record)) == record["claims"]
    assert not re.search(r"/home|/work|/tmp|/root", text)
    for file in path.parent.iterdir():
        assert file.stat().st_size < 300_000, file
    assert {file.name for file in path.parent.iterdir()} == {
        "results.json",
        f"{record['id']}.png",
        f"{record['id']}.svg",
    }
