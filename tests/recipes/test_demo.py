"""That the demo shows what it is for is proven where it is run in full: by `make demo` in .ci/run."""

import json

import pytest

from oni.cli import main
from oni.recipes import demo
from oni.recipes.experiments.experiment import Results, Run


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "[bold]:smile:"
    return out, main(["demo", "--out", str(out), "--preset", "smoke", "--plain"])


def test_everything_is_written(shown):
    out, code = shown
    assert code == 0
    record = json.loads((out / "demo" / "results.json").read_text())
    assert [run["parameters"]["method"] for run in record["runs"]] == ["lecun", "orth-init", "oni-ns", "oni"]
    assert len(list((out / "runs").iterdir())) == 4
    report = (out / "report.html").read_text("utf-8")
    assert "ONI-NS" in report
    assert "Gradients: start (dotted), end (solid)" in report


def test_again_it_trains_nothing(shown, capsys):
    out, _ = shown
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}
    assert main(["demo", "--out", str(out), "--preset", "smoke", "--plain"]) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")} == before
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert str(out / "report.html") in printed


def test_the_claim_can_fail():
    def results(*ends):
        planned = demo.EXPERIMENTS[0].planned("laptop")
        return Results(Run(each, {"train_error": 6 * [end]}) for each, end in zip(planned, ends, strict=True))

    assert demo.only_oni_trains(results(0.9, 0.9, 0.9, 0.2))[0]
    assert not demo.only_oni_trains(results(0.9, 0.2, 0.9, 0.2))[0]
    assert not demo.only_oni_trains(results(0.9, 0.9, 0.9, 0.9))[0]


def test_what_comes_next_runs():
    exec(demo.NEXT, {})
