"""That the demo shows what it is for is proven where it is run in full: by `make demo` in .ci/run."""

import io
import json
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from oni.cli import main
from oni.recipes.demo import NEXT, draw_spectra
from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.studies.demo import EXPERIMENT, ROWS, Weight, find_spectra
from oni.recipes.training.watch import RADII
from oni.terminal import console


class Shown(NamedTuple):
    out: Path
    code: int
    printed: str
    progress: str


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demo where nothing is a terminal, at its smallest."""
    out = tmp_path_factory.mktemp("demo") / "new" / "[bold]:smile:"
    printed, progress = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed), redirect_stderr(progress):
        for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
            patch.delenv(name, raising=False)
        code = main(["demo", "--out", str(out), "--preset", "smoke"])
    return Shown(out, code, printed.getvalue(), progress.getvalue())


def test_where_nothing_is_a_terminal(shown):
    assert shown.code == 0
    assert "\x1b" not in shown.printed + shown.progress
    # One line for each epoch instead of bars: five networks.
    assert shown.progress.count("\nepoch ") == 5
    printed = [line.strip() for line in shown.printed.splitlines()]
    next_lines = [line.strip() for line in NEXT.splitlines()]
    assert printed[-len(next_lines) :] == next_lines


def test_everything_is_written(shown):
    out = shown.out
    record = json.loads((out / "demo" / "results.json").read_text())
    trained = Counter(run["parameters"]["row"] for run in record["runs"] if "row" in run["parameters"])
    assert trained == {row.name: 1 for row in ROWS}
    assert len(list((out / "runs").iterdir())) == len(ROWS)
    attacks = [run["measured"]["attack"] for run in record["runs"] if "attack" in run["measured"]]
    assert [attack["inside"] for attack in attacks] == [0]
    report = (out / "report.html").read_text("utf-8")
    assert "Images that are surely classified, by the radius" in report
    assert "its class is certified within a radius of" in report
    assert report.count("data:image/png;base64,") >= 3


def test_again_it_trains_nothing(shown, capsys):
    out = shown.out
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")}
    assert main(["demo", "--out", str(out), "--preset", "smoke", "--plain"]) == 0
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*")} == before
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert "T = 8 " in printed
    assert str(out / "report.html") in printed


def make_results(certified, bound=1.0, inside=0, outside=30):
    """Results of all seeds, with shares in percent by row."""
    runs = []
    for parameters in EXPERIMENT.planned("laptop"):
        if isinstance(parameters, Weight):
            runs.append(Run(parameters, {"spectra": {"0": [0.5, 0.1], "1": [0.7, 0.2]}}))
            continue
        share = (certified[parameters.row] + parameters.seed / 10) / 100
        measured = {
            "status": "finished",
            "test_error": [0.15],
            "certified": {"bound": bound, "radius": list(RADII), "share": [share] * len(RADII)},
            "cost": {"seconds": 3.0, "steps": 312},
        }
        if parameters.row == "oni-5":
            measured["attack"] = {"images": 100, "inside": inside, "outside": outside}
        runs.append(Run(parameters, measured))
    return Results(runs)


AHEAD = {"sn": 40.0, "oni-2": 52.0, "oni-5": 53.0, "oni-0.99": 54.0, "cholesky": 52.0}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        (make_results(AHEAD), ["held", "held", "held"]),
        (make_results(AHEAD, inside=1), ["not held", "held", "held"]),
        (make_results(AHEAD, outside=0), ["not tested", "held", "held"]),
        (make_results(AHEAD, bound=1.01), ["held", "not held", "held"]),
        (make_results({**AHEAD, "sn": 60.0}), ["held", "held", "not held"]),
        (make_results({**AHEAD, "sn": 50.0}), ["held", "held", "undecided"]),
    ],
)
def test_every_claim_can_fail(results, expected):
    assert [claim["verdict"] for claim in EXPERIMENT.judge(results, "laptop")] == expected
    assert {claim["verdict"] for claim in EXPERIMENT.judge(results, "smoke")} == {"not tested"}
    assert [len(chart.series) for chart in EXPERIMENT.charts(results)] == [2, len(ROWS)]


def test_steps_raise_every_singular_value_and_none_beyond_one():
    spectra = find_spectra(Weight(32, 0))
    smallest = [min(values) for values in spectra.values()]
    assert smallest == sorted(smallest)
    # Rounding of float32 in products of 32 numbers.
    assert max(map(max, spectra.values())) <= 1 + 1e-5


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_the_drawing_fits(width, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(width))
    draw_spectra(find_spectra(Weight(16, 0)), console(plain=True), plain=True)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("T = ")]
    assert len(lines) == 6
    assert max(map(len, lines)) <= width


def test_what_comes_next_runs():
    exec(NEXT, {})
