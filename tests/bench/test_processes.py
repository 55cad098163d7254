"""``oni bench processes`` on a small network, in two real processes."""

import json

import pytest

from oni.bench.processes import cases
from oni.bench.processes.model import Devices, Work, predict_added
from oni.cli import main

SMALL = cases.ProcessesCase(
    "mlp20-b256", "a small one", "mlp", {"depth": 3, "width": 16, "inputs": 12}, (12,), 4, quick=True, grows=True
)


@pytest.fixture
def run(capsys, monkeypatch):
    monkeypatch.setattr(cases, "PROCESSES_CASES", (SMALL,))

    def run(*arguments):
        code = main(["bench", "processes", "--plain", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_two_processes(run, tmp_path):
    code, out, _ = run("--quick", "--json", tmp_path / "bench.json")
    assert code == 0
    assert out.isascii()
    assert "in each of 2 processes" in out
    record = json.loads((tmp_path / "bench.json").read_text())
    assert record["command"].startswith("oni bench processes --quick --threads=1 --processes=2")
    (case,) = record["cases"]
    at = case["processes"]["2"]
    names = ["plain", "oni T=2", "oni T=2 shared", "oni T=5", "oni T=5 shared"]
    assert [contender["name"] for contender in at["contenders"]] == names
    assert all(contender["note"] is None and contender["rounds"] >= 3 for contender in at["contenders"])
    assert at["exchange_milliseconds"] > 0
    # Three layers of 16 rows and one of 10 between two processes.
    assert [(row["processes"], row["steps"]) for row in case["growth"]] == [(2, 2), (2, 5)]
    asked = {(target["case"], target["of"][0]): target for target in record["targets"]}
    assert asked["mlp20-b256", "oni T=5 shared"]["at_most"] == 0.65


def test_processes_that_fail_are_said(run, monkeypatch):
    monkeypatch.setattr(cases.sys, "executable", "false")
    code, out, _ = run("--quick")
    assert code == 0
    assert out.count("failed in process 0: exit code 1") == 5
    assert "not measured" in out


def test_growth_is_measured_at_one_two_and_four(monkeypatch):
    launched = []
    monkeypatch.setattr(cases, "launch", lambda case, processes, *_: launched.append(processes))
    settings = cases.Settings("processes", processes=3)
    cases.measure_processes(SMALL, cases.begin(SMALL), settings, lambda *_: None)
    assert launched == [1, 2, 3, 4]


def test_the_model():
    devices, work = Devices("", 1e9, 1e8, 1e-3), Work((3 * 10**9, 10**9, 10**9), 10**8)
    # The dearest weight alone is more than half; two operations for each owner and two for the roll calls.
    assert predict_added(devices, work, 2) == (5.0, pytest.approx(3 + 1 + 6e-3))
    assert predict_added(devices, work, 1) == (5.0, 5.0)
