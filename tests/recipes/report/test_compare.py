import json

import pytest

from oni.cli import main


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command at a width, and return its exit code and what it printed."""

    def run(*arguments, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


def rows(out):
    """The printed lines by their first word."""
    return {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}


def test_what_differs_between_two_runs(run, write_run, tmp_path):
    first = write_run(tmp_path / "first", method_options={"steps": 5})
    second = write_run(tmp_path / "second", error=0.2, learning_rate=0.5)
    code, out, err = run("compare", first, second)
    assert (code, err) == (0, "")
    lines = rows(out)
    assert out.startswith("1  first\n2  second\n")
    assert lines["learning_rate"] == ["0.1", "0.5"]
    assert lines["method_options.steps"] == ["5", "-"]
    assert lines["test_error"] == ["10.00", "%", "20.00", "%", "+10.00"]
    # What is the same is left out.
    assert not {"seed", "method", "status", "seconds", "epochs", "torch", "code"} & set(lines)


def test_runs_that_did_not_finish(run, write_run, tmp_path):
    finished, diverged = write_run(tmp_path / "a"), write_run(tmp_path / "b", "diverged", epochs=1)
    unfinished = write_run(tmp_path / "c", "unfinished", epochs=2)
    lines = rows(run("compare", finished, diverged, unfinished)[1])
    assert lines["status"] == ["finished", "diverged", "unfinished"]
    assert lines["epochs"] == ["done", "3", "1", "2"]
    assert lines["test_error"] == ["10.00", "%", "-", "10.00", "%"]


def test_equal_runs(run, write_run, tmp_path):
    out = run("compare", write_run(tmp_path / "a"), write_run(tmp_path / "b"))[1]
    assert "Configuration: no differences" in out
    assert "Results: no differences" in out


@pytest.mark.parametrize("columns", [80, 140])
def test_many_runs_fit_the_terminal(run, write_run, tmp_path, columns):
    for index in range(30):
        write_run(tmp_path / f"run-{index}", learning_rate=index / 7, error=0.01 * index, method=f"method-{index}")
    code, out, _ = run("compare", tmp_path, "--plain", columns=columns)
    assert code == 0
    assert max(map(len, out.splitlines())) <= columns
    assert out.isascii()
    for index in range(30):  # nothing is cut off
        assert f" method-{index} " in out.replace("\n", " \n")


def test_json_holds_the_numbers(run, write_run, tmp_path):
    folders = write_run(tmp_path / "a"), write_run(tmp_path / "b", error=0.2, seed=1)
    code, out, _ = run("compare", *folders, "--json")
    assert code == 0
    record = json.loads(out)
    assert record["runs"] == ["a", "b"]
    assert record["configuration"] == {"seed": [0, 1]}
    assert record["results"]["test_error"] == [0.1, 0.2]


def test_results_of_one_experiment(run, toy, make_record, write, tmp_path):
    first = write(tmp_path / "a" / "fig99" / "results.json", make_record(date="2026-01-01"))
    claims = [{**make_record()["claims"][0], "verdict": "not tested"}, *make_record()["claims"][1:]]
    second = make_record(preset="laptop", claims=claims, overrides={"epochs": 30}, machine={"cpu": "another"})
    second["runs"][1]["measured"]["value"] = 0.75
    second = write(tmp_path / "b" / "fig99" / "results.json", second)
    code, out, _ = run("compare", first, second, columns=140)
    assert code == 0
    assert ["preset", "smoke", "laptop"] in [line.split() for line in out.splitlines()]
    assert ["override", "epochs", "-", "30"] in [line.split() for line in out.splitlines()]
    assert ["cpu", "a", "cpu", "another"] in [line.split() for line in out.splitlines()]
    assert "It works held not tested at this preset" in [" ".join(line.split()) for line in out.splitlines()]
    assert "ours: ours 0.50 0.75" in [" ".join(line.split()) for line in out.splitlines()]
    assert "It is fast" not in out


def test_names_can_not_steer_the_terminal(run, write_run, tmp_path):
    folders = write_run(tmp_path / "a\x1b[2J"), write_run(tmp_path / "b", method="x\x1b[2J", **{"k\x1b": 1})
    out = run("compare", *folders)[1]
    assert "\x1b" not in out
    assert r"a\x1b[2J" in out
    assert r"x\x1b[2J" in out


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        (["run"], "nothing to compare: run is a single run; pass two"),
        (["run", "run"], "nothing to compare"),
        (["run", "fig99"], "can't compare runs with results"),
        (["run", "missing"], "missing: no such folder"),
    ],
)
def test_what_can_not_be_compared(run, toy, make_record, write, write_run, tmp_path, monkeypatch, sources, message):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run")
    write(tmp_path / "fig99" / "results.json", make_record())
    code, out, err = run("compare", *sources)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_results_of_two_experiments_are_not_compared(run):
    code, _, err = run("compare", "results/fig1", "results/fig2")
    assert code == 2
    assert "different experiments (fig1, fig2)" in err
