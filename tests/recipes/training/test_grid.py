"""``oni reproduce --engine ray`` on a real Ray: interrupted, a worker killed, and yet the same as without it."""

import json
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from oni.cli import main
from oni.recipes.experiments.record import RUNS
from oni.recipes.training import grid

FOUR = ["figA2", "--preset", "smoke", "network_options.width=16", "network_options.depth=3"]
TWO = [*FOUR, "--only", "*Z orthogonal*", "samples=64", "batch_size=4", "epochs=40"]
STEPS = 640
AT_ONCE = min(2, os.cpu_count() or 1)


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main(["reproduce", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def run_folders(out):
    """Of the runs that have begun to train, in any order."""
    return [path.parent for path in (out / RUNS).glob("*/run.json")]


def read_sessions(folder):
    return [session["from_step"] for session in json.loads((folder / "run.json").read_text())["sessions"]]


def checkpoints(folder):
    """The newest last."""
    return sorted(folder.glob("checkpoint-*.pt"))


def find_trainer(folder):
    """The Ray worker that has a run folder locked."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may have ended
            if (process / "cmdline").read_bytes().startswith(b"ray::"):
                links = [os.readlink(link) for link in (process / "fd").iterdir()]
                if str(folder / ".lock") in links:
                    return int(process.name)
    return None


@contextmanager
def meanwhile(action):
    """Call ``action`` again and again in another thread until it returns something; yield a list that will hold it."""
    over, outcome = threading.Event(), []

    def watch():
        while not over.is_set() and not outcome:
            outcome.extend(filter(None, [action()]))
            time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield outcome
    finally:
        over.set()
        thread.join()


def read_results(out):
    """Of every run what it measured, without times, and its last state."""
    results = {}
    for folder in run_folders(out):
        record = json.loads((folder / "metrics.json").read_text())
        for row in [record["metrics"], *record["epochs"]]:
            del row["seconds"]
        state = torch.load(checkpoints(folder)[-1], weights_only=True)
        results[folder.name] = record, state["task"], state["processes"]
    return results


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the worker to kill is found in /proc")
def test_ray(run, tmp_path, assert_equal_states):
    ray = pytest.importorskip("ray", reason='ray is not installed: pip install "oni-torch[ray]"')
    from oni.recipes.training.overall import Overall
    from oni.recipes.training.ray_grid import connect

    command = [*TWO, "--engine", "ray", "--out", tmp_path / "ray"]

    def interrupt():
        if len(run_folders(tmp_path / "ray")) >= AT_ONCE:
            os.kill(os.getpid(), signal.SIGINT)
            return True

    def kill_one():
        for folder in begun:
            if len(read_sessions(folder)) == 2 and (pid := find_trainer(folder)):
                os.kill(pid, signal.SIGKILL)
                return folder

    # One start of Ray for everything, as it takes seconds; without it, each command would start its own.
    with connect(grid.Engine("ray"), Overall("tests", 0, "none")):
        code, _, err = run(*FOUR, "--engine", "ray", "--out", tmp_path / "four", "--plain")
        assert code == 0, err
        assert [line.split(":")[0] for line in err.splitlines() if "figA2" in line] == [
            f"figA2, {number} of 4" for number in (1, 2, 3, 4)
        ]

        with meanwhile(interrupt):
            code, _, err = run(*command, "--plain")
        assert code == 130, err
        assert "Traceback" not in err
        assert err.count("stopping: each run that trains writes a checkpoint") == 1
        begun = [folder for folder in run_folders(tmp_path / "ray") if checkpoints(folder)]
        assert len(begun) >= AT_ONCE
        steps = {folder: int(checkpoints(folder)[-1].name.split("-")[1]) for folder in begun}
        assert all(0 < step < STEPS for step in steps.values())
        for step in steps.values():
            assert f"stopped after step {step}; start it again with --resume" in err

        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert "pass --resume to continue it" in err.splitlines()[-1]

        with meanwhile(kill_one) as killed:
            code, out, err = run(*command, "--resume", "--json")
        assert (code, err) == (0, "")
        events = [json.loads(line) for line in out.splitlines()]  # nothing of Ray's own among it
        assert events[-1]["event"] == "part"
        (folder,) = killed
        assert read_sessions(folder) == [0, steps[folder], steps[folder]]
        ended = [event["text"] for event in events if event["event"] == "end" and event["run"] == folder.name]
        # The first, if it was killed after it had told of its start.
        assert ended[-1] == "finished"
        assert ended[:-1] in ([], ["its worker died; it is tried again"])
        assert sum(event["event"] == "warning" and "died" in event["text"] for event in events) == 1

        wrong = [*FOUR, "network_options.width=0", "--plain"]
        errors = [run(*wrong, "--out", tmp_path / "wrong", "--engine", engine) for engine in ("local", "ray")]
        assert errors[0][0] == 2
        assert errors[0][1:] == ("", errors[1][2].splitlines()[-1] + "\n")
    assert not ray.is_initialized()

    assert run(*TWO, "--out", tmp_path / "local", "--plain")[0] == 0
    results, expected = read_results(tmp_path / "ray"), read_results(tmp_path / "local")
    assert len(expected) == 2
    assert_equal_states(results, expected)
    assert [name for name in os.listdir(tmp_path / "ray" / RUNS) if name.startswith(".")] == []
