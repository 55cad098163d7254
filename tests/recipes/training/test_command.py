"""Training through ``oni reproduce``: changes, interruption, several processes, and what programs read."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from oni.cli import main
from oni.recipes import reproduce
from oni.recipes.experiments.fashion_mnist.family import PRESETS
from oni.recipes.grid import local
from oni.recipes.grid.jobs import Engine, Job
from oni.recipes.grid.run_jobs import run_jobs
from oni.recipes.run_files.run_folder import Busy

SMALL = ["network_options.depth=2", "network_options.width=32", "samples=256", "epochs=1", "batch_size=64"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main(["reproduce", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def results(out, id="figA2"):
    return json.loads((out / id / "results.json").read_text())


def numbers(record):
    """What was measured, but for the time that it took."""
    assert all(run["measured"]["cost"]["seconds"] > 0 for run in record["runs"])
    return [{**run["measured"], "cost": {**run["measured"]["cost"], "seconds": None}} for run in record["runs"]]


def test_changes_by_words_and_by_file(run, tmp_path):
    file = tmp_path / "changes.yaml"
    file.write_text("network_options: {depth: 2, width: 32}\nsamples: 256\nepochs: 9\nbatch_size: 64\n")
    out = tmp_path / "results"
    code, out_text, err = run(
        "figA2", "epochs=1", "learning_rate=0.25", "--config", file, "--preset", "smoke", "--out", out
    )
    assert code == 0
    record = results(out)
    assert [run["learning_rate"] for run in numbers(record)] == 4 * [0.25]
    assert {len(run["train_error"]) for run in numbers(record)} == {1}
    # A run is called after its row, whatever is overridden.
    assert re.search(r"^figA2, 1 of 4: 20 layers, ONI, seed 0$", err, re.MULTILINE)
    heading = r"^figA2, 4 of 4: 20 layers, ONI-NS, Z orthogonal, not centred, seed 0(, about .* left after it)?$"
    assert re.search(heading, err, re.MULTILINE)
    # What was run is what is recorded.
    for one in record["runs"]:
        config = one["parameters"]["config"]
        assert (config["epochs"], config["learning_rate"], config["batch_size"], config["samples"]) == (
            1,
            0.25,
            64,
            256,
        )
        assert (config["network_options"]["depth"], config["network_options"]["width"]) == (2, 32)
        assert "search" not in one["parameters"]
    assert record["overrides"] == {
        "network_options.depth": 2,
        "network_options.width": 32,
        "samples": 256,
        "epochs": 1,
        "batch_size": 64,
        "learning_rate": 0.25,
    }
    heading, note = (part for part in " ".join(out_text.split()).split("Errors in percent"))
    assert "network_options.width=32" in heading
    assert "Overridden: " in note
    configs = [json.loads(path.read_text()) for path in (out / "runs").glob("*/config.json")]
    assert {(each["network_options"]["width"], each["batch_size"], each["samples"]) for each in configs} == {
        (32, 64, 256)
    }
    # The command that is recorded does the same again.
    words = record["command"].split()
    assert words[:5] == ["oni", "reproduce", "figA2", "--preset", "smoke"]
    again = tmp_path / "again"
    assert run(*words[2:], "--out", again)[0] == 0
    assert numbers(results(again)) == numbers(record)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figA2", "epoch=1"], "unknown key 'epoch'; did you mean 'epochs'"),
        (["figA2", "epochs"], "is not key=value"),
        (["figA2", "seed=1"], "pass --seed"),
        (["fig2", "epochs=1"], "fig2 trains nothing, so epochs=1 has no effect"),
        (["fig2", "--data", "."], "so --data has no effect"),
        (
            ["fig2", "--devices", "2"],
            "so --devices, --strategy, --num-nodes, --accelerator, --workers, --compile or --share has no",
        ),
        (["fig2", "--resume"], "so --resume has no effect"),
        (["figA2", "--precision", "8"], "unknown precision '8'; choose from 32-true"),
        (["figA2", "--strategy", "dp"], "unknown strategy 'dp'; did you mean 'ddp'? Choose from auto, ddp, fsdp2"),
        (["figA2", "--accelerator", "cudda"], "unknown accelerator 'cudda'; did you mean 'cuda'"),
        (["figA2", "--accelerator", "mps"], "--accelerator mps: torch finds no such device; pass --accelerator cpu"),
        (["figA2", "--devices", "0"], "devices must be at least 1"),
        (["figA2", "--devices", "9999"], "--devices 9999: this machine has at most"),
        (["figA2", "--num-nodes", "2"], "start the command on each of them with torchrun --nnodes 2"),
        (["figA2", "--share", "--strategy", "fsdp2"], "--share: under fsdp2 no device holds whole weights; pass"),
        (["figA2", "--share", "--compile"], "computes all its weights itself; leave out --compile"),
        (["figA2", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["figA2", "--download"], "pass --data DIR"),
        (["fig7a", "method_options.steps=3"], "method_options.steps can't be overridden for fig7a, which compares"),
        (["figA2", "--data", "nowhere"], "--data nowhere: "),
        (["figA2", "--preset", "paper", "--data", "."], "no Fashion-MNIST here"),
        (["figA2", "network_options.width=0"], "width must be at least 1, got 0"),
        (["figA2", "network_options.width=wide"], "must be of type int, got 'wide'"),
        (["figA2", "method_options.steps=many"], "steps must be"),
        (["figA2", "batch_size=100000"], "larger than the 256 training samples"),
    ],
)
def test_bad_arguments_are_one_line_and_train_nothing(run, tmp_path, arguments, message):
    preset = [] if "--preset" in arguments else ["--preset", "smoke"]
    code, out, err = run(*arguments, *preset, "--out", tmp_path)
    assert code == 2
    assert out == ""
    assert err.splitlines()[-1].startswith("oni: ")
    assert message in err.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


def test_for_programs(run, tmp_path):
    code, out, err = run("figA2", *SMALL, "--preset", "smoke", "--out", tmp_path, "--json")
    assert (code, err) == (0, "")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["event"] for event in events] == 4 * ["start", "epoch", "end"] + ["result"]
    assert {claim["verdict"] for claim in events[-1]["claims"]} == {"not tested"}
    assert [row[0] for row in events[-1]["table"]["rows"]][:2] == ["2 layers, ONI", "2 layers, ONI-NS"]
    assert all(isinstance(cell, float | int) for row in events[-1]["table"]["rows"] for cell in row[1:])
    assert all(os.path.exists(path) for path in events[-1]["written"])


def test_a_selection_is_shown(run, tmp_path, monkeypatch):
    sizes = {
        "data": "fashion-mnist-sample",
        "samples": 0,
        "epochs": 1,
        "seeds": 1,
        "grid": [0.1, 0.5],
        "select_epochs": 1,
    }
    monkeypatch.setitem(PRESETS, "smoke", sizes)
    code, _, _ = run("figA2", *SMALL, "--preset", "smoke", "--out", tmp_path)
    assert code == 0
    for found in numbers(results(tmp_path)):
        assert list(found["tried"]) == ["learning rate 0.1", "learning rate 0.5"]
        best = min(found["tried"], key=found["tried"].get)
        assert found["learning_rate"] == found["chosen"]["learning_rate"] == float(best.split()[-1])


def test_what_another_process_trains_comes_later(run, tmp_path, monkeypatch):
    busy, real, order = {"oni"}, reproduce.Experiment.run, []

    def one_is_busy(self, parameters, setting):
        order.append(parameters.config.method)
        if parameters.config.method in busy:
            busy.clear()
            raise Busy(11, "another process is training this run", "somewhere")
        return real(self, parameters, setting)

    monkeypatch.setattr(reproduce.Experiment, "run", one_is_busy)
    code, _, err = run("figA2", *SMALL, "--preset", "smoke", "--out", tmp_path)
    assert code == 0
    assert order == ["oni", "oni-ns", "oni", "oni-ns", "oni"]
    # A heading is printed only of what is trained here, once.
    headings = [line for line in err.splitlines() if line.startswith("figA2, ")]
    assert len(headings) == 4
    assert re.match(r"figA2, 1 of 4: 20 layers, ONI-NS, seed 0", headings[0])
    methods = [run["parameters"]["config"].get("method", "oni") for run in results(tmp_path)["runs"]]
    assert methods == ["oni", "oni-ns", "oni", "oni-ns"]


def test_waiting_for_another_process_is_said_once(monkeypatch, capsys):
    monkeypatch.setattr(local, "POLL_SECONDS", 0)
    left = {"first": 5, "second": 3}

    def make_job(name):
        def train(attempt):
            left[name] -= 1
            if left[name]:
                raise Busy(11, "another process is training this run", "somewhere")
            return name

        return Job(name, train)

    done = run_jobs(
        [make_job("first"), make_job("second")],
        "fig0",
        engine=Engine(),
        progress="lines",
        folder=Path(),
        accelerator="cpu",
    )
    assert done == ["first", "second"]
    waiting = [line for line in capsys.readouterr().err.splitlines() if line.startswith("waiting")]
    assert [line.split(" that")[0] for line in waiting] == ["waiting for 2 runs", "waiting for a run"]


def test_a_full_disk(run, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("oni.recipes.run_files.run_folder.os.fsync", full)
    code, out, err = run("figA2", *SMALL, "--preset", "smoke", "--out", tmp_path)
    assert (code, out) == (74, "")
    assert "No space left on device (there was no checkpoint yet)" in err.splitlines()[-1]
    assert not (tmp_path / "figA2" / "results.json").exists()


def test_where_every_learning_rate_diverges(run, tmp_path, monkeypatch):
    sizes = {"data": "fashion-mnist-sample", "samples": 0, "epochs": 1, "seeds": 1, "grid": [1e30, 1e38]}
    monkeypatch.setitem(PRESETS, "smoke", {**sizes, "select_epochs": 1})
    assert run("figA2", *SMALL, "--preset", "smoke", "--out", tmp_path)[0] == 0
    assert [found["status"] for found in numbers(results(tmp_path))] == 4 * ["diverged"]
    tried = [found["tried"] for found in numbers(results(tmp_path))]
    assert tried == 4 * [{"learning rate 1e+30": None, "learning rate 1e+38": None}]


def command(*arguments):
    return [sys.executable, "-m", "oni.cli", "reproduce", *map(str, arguments)]


def started(arguments):
    return subprocess.Popen(command(*arguments), env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_and_resume(run, tmp_path):
    long = ["figA2", *SMALL[:2], "samples=2048", "epochs=400", "--preset", "smoke", "--out", tmp_path]
    with started(long) as process:
        assert any(line.startswith("epoch 2:") for line in process.stderr)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 130
    assert "start it again with --resume" in rest
    assert "Traceback" not in rest
    # Without --resume it is not touched, and the remedy is said.
    (folder,) = (tmp_path / "runs").iterdir()
    before = sorted(path.name for path in folder.iterdir())
    code, _, err = run(*long)
    assert code == 2
    assert "pass --resume to continue it" in err.splitlines()[-1]
    assert sorted(path.name for path in folder.iterdir()) == before
    with started([*long, "--resume"]) as process:
        assert any("continues after step" in line for line in process.stderr)
        process.kill()
