"""``oni reproduce`` and ``oni list`` through the command, with a toy experiment that trains nothing."""

import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from oni.recipes import reproduce
from oni.recipes.experiments.experiment import Claim, Comparison, Experiment, Quantity
from oni.recipes.experiments.registry import MODULES, load_all
from oni.recipes.experiments.verdicts import Kind, Verdict

ROOT = Path(__file__).parents[3]
KEYS = ["id", "preset", "date", "code", "machine", "versions", "command", "seeds", "overrides", "runs", "paper"]
KEYS += ["claims", "table"]


@dataclass(frozen=True)
class Toy:
    seed: int
    factor: int
    overrides: dict = field(default_factory=dict)

    def describe(self):
        return f"factor {self.factor}, seed {self.seed}"


TOY = Experiment(
    id="fig99",
    title="A toy [bold]",
    shows="Nothing.",
    choices="None.",
    presets={"smoke": {"seeds": 2}, "laptop": {"seeds": 3}},
    parameters=(Toy,),
    plan=lambda seed, seeds: [Toy(seed + number, 3) for number in range(seeds)],
    measure=lambda run, setting: {"values": [1.0 / run.factor, float("nan")], "squared": run.seed**2},
    paper={"value": 0.33},
    claims=[
        Claim(Kind.PAPER, "A third", lambda results: (True, f"{results.values('values')[0][0]}")),
        Claim(Kind.PAPER, "All finite", lambda results: (None not in results.values("values")[0], "one is not")),
        Claim(Kind.OURS, "Enough", lambda results: (True, ""), {"seeds": 4}),
        Claim(Kind.MATHEMATICS, "Sure", lambda results: (Verdict.UNDECIDED, "1 or 2")),
    ],
    table=lambda results: Comparison(
        ["what", "ours"], [["value", Quantity(results.mean("values")[0], 0.1, 3)]], "A note."
    ),
    draw=lambda results: Figure(),
)


@pytest.fixture
def toy(register):
    return register(TOY)


# What is written.


def test_the_record(run, tmp_path, toy):
    code, out, err = run("reproduce", "fig99", "--out", tmp_path / "new", "--seed", 5, "--plain")
    assert (code, err) == (0, "")  # although a claim does not hold
    assert out.isascii()
    assert "A toy [bold]" in out
    assert re.search(r"^held +A third *$", out, re.MULTILINE)
    assert re.search(r"^NOT held +All finite *$", out, re.MULTILINE)
    assert re.search(
        r"^not tested +Enough *\n +the runs have seeds = 3, and this needs at least 4 *$", out, re.MULTILINE
    )
    assert re.search(r"^undecided +Sure *\n +1 or 2 *$", out, re.MULTILINE)
    # The paper's claims, mathematics and questions of our own are shown apart.
    heads = ("The paper's claims", "All finite", "Mathematics", "Sure", "Questions of our own", "Enough")
    assert sorted(heads, key=out.index) == list(heads)
    folder = tmp_path / "new" / "fig99"
    assert sorted(path.name for path in folder.iterdir()) == ["fig99.png", "fig99.svg", "results.json"]
    record = json.loads((folder / "results.json").read_text())
    assert list(record) == KEYS
    assert record["runs"] == [
        {"parameters": {"seed": seed, "factor": 3}, "measured": {"values": [0.333333, None], "squared": seed**2}}
        for seed in (5, 6, 7)
    ]
    assert (record["paper"], record["seeds"], record["overrides"]) == ({"value": 0.33}, [5, 6, 7], {})
    # Judged by the numbers as they are recorded, so that anyone comes to the same verdict.
    assert record["claims"][0] == {"kind": "paper", "text": "A third", "verdict": "held", "detail": "0.333333"}
    assert [claim["verdict"] for claim in record["claims"]] == ["held", "not held", "not tested", "undecided"]
    assert [claim["kind"] for claim in record["claims"]] == ["paper", "paper", "ours", "mathematics"]
    assert record["table"]["rows"] == [["value", {"value": 0.333333, "spread": 0.1}]]
    assert record["command"] == "oni reproduce fig99 --preset laptop --seed 5"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", record["date"])
    assert re.fullmatch(r"[0-9a-f]{40}\+?|installed|unknown", record["code"])
    assert {"cpu", "cores", "threads"} <= record["machine"].keys()
    assert {"python", "torch", "oni"} <= record["versions"].keys()


def test_smoke_judges_nothing(run, tmp_path, toy):
    code, out, _ = run("reproduce", "fig99", "--preset", "smoke", "--out", tmp_path, "--json")
    assert code == 0
    assert {claim["verdict"] for claim in json.loads(out)["claims"]} == {"not tested"}


def test_seeds(run, tmp_path, toy):
    code, _, _ = run("reproduce", "fig99", "--seeds", 4, "--seed", 2, "--out", tmp_path)
    assert code == 0
    record = json.loads((tmp_path / "fig99" / "results.json").read_text())
    assert record["seeds"] == [2, 3, 4, 5]
    assert record["command"] == "oni reproduce fig99 --preset laptop --seed 2 --seeds 4"
    assert record["claims"][2]["verdict"] == "held"


def test_a_smaller_preset_replaces_no_larger_one(run, tmp_path, toy, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def preset(path):
        return json.loads((tmp_path / path / "results.json").read_text())["preset"]

    _, out, _ = run("reproduce", "fig99", "--preset", "smoke")
    assert preset("oni-results/fig99") == "smoke"
    assert "oni-results/fig99/results.json" in out
    run("reproduce", "fig99")
    assert preset("oni-results/fig99") == "laptop"
    notice = "oni: oni-results/fig99 has the preset laptop and is kept; pass --out oni-results to replace it.\n"
    for printed in ([], ["--json"], ["--table", "csv"]):
        code, out, err = run("reproduce", "fig99", "--preset", "smoke", *printed)
        assert (code, err) == (0, notice)
    assert (preset("oni-results/fig99"), preset("oni-results-smoke/fig99")) == ("laptop", "smoke")
    run("reproduce", "fig99", "--preset", "smoke", "--out", "oni-results")
    assert preset("oni-results/fig99") == "smoke"
    (tmp_path / "oni-results" / "fig99" / "results.json").write_text("[]")
    run("reproduce", "fig99", "--preset", "smoke")
    assert preset("oni-results/fig99") == "smoke"


def test_results_of_the_repository_are_not_touched(run, tmp_path, toy, monkeypatch):
    """As in a clone, which has a folder results/ with files of the same names."""
    monkeypatch.chdir(tmp_path)
    committed = tmp_path / "results" / "fig99"
    committed.mkdir(parents=True)
    for name in ("results.json", "fig99.png", "fig99.svg"):
        (committed / name).write_text('{"preset": "smoke"}')
    for preset in ("smoke", "laptop"):
        assert run("reproduce", "fig99", "--preset", preset)[0] == 0
    assert {path.read_text() for path in committed.iterdir()} == {'{"preset": "smoke"}'}
    assert len(list(committed.iterdir())) == 3
    assert json.loads((tmp_path / "oni-results" / "fig99" / "results.json").read_text())["preset"] == "laptop"
    assert run("reproduce", "fig99", "--out", "results")[0] == 0
    assert json.loads((committed / "results.json").read_text())["preset"] == "laptop"


def test_the_list_shows_ones_own_results_before_those_of_the_repository(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("results/fig1", "results/fig2", "oni-results/fig2", "other/fig3"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "results.json").write_text("{}")
    _, out, _ = run("list", "--plain")
    where = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.startswith("fig")}
    assert [where[id] for id in ("fig1", "fig2", "fig3")] == ["results", "oni-results", "-"]
    _, out, _ = run("list", "--plain", "--out", "other")
    where = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.startswith("fig")}
    assert [where[id] for id in ("fig1", "fig3")] == ["-", "other"]


def test_presets_are_in_the_order_of_their_size():
    for experiment in load_all().values():
        assert list(experiment.presets) == [name for name in reproduce.SIZES if name in experiment.presets]


@pytest.mark.parametrize("stage", ["measure", "draw"])
def test_what_fails_leaves_the_old_results(run, tmp_path, register, toy, stage):
    assert run("reproduce", "fig99", "--preset", "smoke", "--out", tmp_path)[0] == 0
    before = (tmp_path / "fig99" / "results.json").read_bytes()

    def fail(*_, **__):
        raise KeyboardInterrupt

    register(replace(TOY, **{stage: fail}))
    code, out, err = run("reproduce", "fig99", "--preset", "laptop", "--out", tmp_path)
    assert (code, out, err) == (130, "", "oni: interrupted\n")
    assert (tmp_path / "fig99" / "results.json").read_bytes() == before
    assert len(list((tmp_path / "fig99").iterdir())) == 3


# What is printed.


def test_json_has_the_table_s_numbers(run, tmp_path, toy):
    code, out, err = run("reproduce", "fig99", "--out", tmp_path, "--json")
    assert (code, err) == (0, "")
    event = json.loads(out)
    assert event["event"] == "result"
    assert event["table"]["rows"] == [["value", {"value": 0.333333, "spread": 0.1}]]
    assert all(os.path.exists(path) for path in event["written"])


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("csv", "value,0.333333,0.1"),
        ("markdown", "| value | 0.333 ± 0.100 |"),
        ("latex", r"value & 0.333 $\pm$ 0.100 \\"),
    ],
)
def test_the_table_alone(run, tmp_path, toy, form, line):
    code, out, err = run("reproduce", "fig99", "--out", tmp_path, "--table", form)
    assert (code, err) == (0, "")
    assert line in out.splitlines()
    assert "Written" not in out
    if form == "csv":
        assert {len(row) for row in csv.reader(out.splitlines())} == {3}


def test_only_a_part(run, tmp_path, toy):
    code, out, err = run("reproduce", "fig99", "--out", tmp_path, "--only", "*SEED 1", "--plain")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].startswith("factor 3, seed 1, ")
    assert "squared 1" in out
    assert "results.json is written only without --only" in out
    assert list((tmp_path / "fig99").iterdir()) == []
    code, out, _ = run("reproduce", "fig99", "--out", tmp_path, "--only", "*seed [01]", "--json")
    assert [row["run"] for row in json.loads(out)["runs"]] == ["factor 3, seed 0", "factor 3, seed 1"]


def test_a_part_measured_later_is_put_into_the_results(run, tmp_path, register, toy):
    assert run("reproduce", "fig99", "--out", tmp_path)[0] == 0
    before = json.loads((tmp_path / "fig99" / "results.json").read_text())
    register(replace(TOY, measure=lambda *run: {**TOY.measure(*run), "squared": 100.0}))
    code, out, err = run("reproduce", "fig99", "--out", tmp_path, "--only", "*seed 1", "--plain")
    assert (code, err) == (0, "")
    assert "Put into what was measured before:" in out
    record = json.loads((tmp_path / "fig99" / "results.json").read_text())
    assert [one["parameters"] for one in record["runs"]] == [one["parameters"] for one in before["runs"]]
    changed = [one["measured"] != old["measured"] for one, old in zip(record["runs"], before["runs"], strict=True)]
    assert changed == [False, True, False]
    assert [part["runs"] for part in record["added"]] == [1]
    assert (record["date"], record["command"]) == (before["date"], before["command"])
    # What another command measured is left alone.
    code, out, _ = run("reproduce", "fig99", "--seeds", 2, "--out", tmp_path, "--only", "*seed 1", "--json")
    assert (code, json.loads(out)["written"]) == (0, [])
    assert json.loads((tmp_path / "fig99" / "results.json").read_text()) == record


def test_a_run_that_is_skipped_later_keeps_what_was_measured(run, tmp_path, register, toy):
    assert run("reproduce", "fig99", "--out", tmp_path)[0] == 0
    before = json.loads((tmp_path / "fig99" / "results.json").read_text())
    register(replace(TOY, measure=lambda *_: {"status": "skipped", "reason": "torch is not installed"}))
    code, out, _ = run("reproduce", "fig99", "--out", tmp_path, "--only", "*seed 1", "--plain")
    assert code == 0
    assert "torch is not installed" in out
    record = json.loads((tmp_path / "fig99" / "results.json").read_text())
    assert (record["runs"], record["added"]) == (before["runs"], [])


def test_a_dry_run_measures_and_writes_nothing(run, tmp_path, register):
    def fail(*_):
        raise AssertionError("measured")

    register(replace(TOY, measure=fail))
    code, out, err = run("reproduce", "fig99", "--out", tmp_path / "new", "--dry-run", "--plain")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["to", "do", "factor", "3,", "seed", "0"]
    assert "3 runs, 0 finished" in out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("width", [80, 140])
def test_the_whole_width_is_used(run, tmp_path, monkeypatch, toy, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in (["list"], ["reproduce", "fig99"]):
        code, out, _ = run(*arguments, "--out", tmp_path)
        assert code == 0
        assert max(map(len, out.splitlines()[:-8])) <= width
    assert max(map(len, run("list")[1].splitlines())) > width - 20


# What a user can mend.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig22"], "unknown experiment 'fig22'; did you mean 'fig2'? Choose from demo, practice, "),
        (["TABLEA2"], "did you mean 'tableA2'?"),
        (["nosuch"], "unknown experiment 'nosuch'; choose from"),
        (["fig2", "--preset", "labtop"], "unknown preset 'labtop' for fig2; did you mean 'laptop'? Choose from smoke"),
        (["fig2", "--table", "latx"], "unknown table format 'latx'; did you mean 'latex'?"),
        (["fig2", "--seed", "-1"], "seed must be at least 0"),
        (["fig2", "--seeds", "0"], "seeds must be at least 1"),
        (["tableA1", "--seeds", "2"], "--seeds has no effect"),
        (["fig2", "--finished"], "fig2 trains nothing, so --finished has no effect"),
        (
            ["fig8a", "--finished", "--inception", "file"],
            "--finished measures nothing, so --inception and --classifier",
        ),
        (
            ["fig2", "--only", "nothing"],
            "--only 'nothing' matches no run of fig2; its runs are named like 'ONI, stable",
        ),
        (["fig2", "--out", "file"], "file"),
        ([], "Missing argument"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    code, out, err = run("reproduce", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("id", "override", "message"),
    [
        ("fig7a", "method_options.steps=3", "which compares ONI, T = 1, ONI, T = 2, ONI, T = 3"),
        ("fig7a", "method=olm", "which compares ONI, T = 1"),
        ("figA3", "method_options.groups=2", "which compares ONI, G = 16, ONI, G = 32"),
        ("fig6", "network_options.depth=3", "which compares ONI, ONI-NS, OLM, OLM-NS"),
        ("fig5", "method=olm", "which compares plain, torch's start, plain, OrthInit, ONI"),
        ("fig5", "network_options.norm=batch", "which compares plain, torch's start"),
        ("fig7c", "network_options.norm=batch", "which says of each row whether it is normalised"),
        ("fig8a", "method_options.steps=2", "which compares SN, ONI, T = 0, ONI, T = 1"),
        ("figA10", "momentum=0.9", "which compares SN, setting A"),
        ("table1", "learning_rate=1", "which chooses it on images held out"),
        ("table2", "batch_size=16", "which compares batch sizes"),
        ("table5", "weight_decay=0", "which compares ResNet, plain"),
        ("practice", "learning_rate=1", "which trains each network with several learning rates"),
        ("demo", "learning_rate=1", "which trains each network with its own"),
    ],
)
def test_what_an_experiment_sweeps_can_t_be_overridden(run, tmp_path, id, override, message):
    code, out, err = run("reproduce", id, override, "--preset", "smoke", "--out", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{override.partition('=')[0]} can't be overridden for {id}, {message}" in err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file(run, tmp_path, toy):
    (tmp_path / "file").touch()
    code, out, err = run("reproduce", "fig99", "--out", tmp_path / "file" / "below")
    assert (out, err.count("\n")) == ("", 1)
    assert code == 74
    assert "below" in err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(run, tmp_path, toy):
    tmp_path.chmod(0o500)
    code, out, err = run("reproduce", "fig99", "--preset", "smoke", "--out", tmp_path)
    assert (code, out, err.count("\n")) == (74, "", 1)
    assert str(tmp_path) in err


# oni list.


def test_the_list(run, tmp_path):
    (tmp_path / "fig2").mkdir()
    (tmp_path / "fig2" / "results.json").touch()
    code, out, err = run("list", "--out", tmp_path, "--plain")
    assert (code, err) == (0, "")
    assert out.isascii()
    for id in MODULES:
        assert re.search(rf"^{id} .*smoke laptop", out, re.MULTILINE)


def test_the_list_imports_nothing_that_draws_or_trains():
    heavy = ["matplotlib", "plotly", "PIL", "lightning_fabric", "jinja2"]
    code = f"import sys; from oni.cli import main; main(['list']); print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1] == "[]"
