"""``oni reproduce --engine ray`` on a real Ray: interrupted, a worker killed, and yet the same as without it."""

import json
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from oni.cli import main
from oni.errors import make_install_command
from oni.recipes.experiments.record import RUNS
from oni.recipes.grid import jobs, ray_grid
from oni.recipes.progress.overall import Overall
from oni.recipes.training.interruption import Interrupted

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


def run_folders(out, seed=0):
    """Of the runs that have begun to train, in any order."""
    return [path.parent for path in (out / RUNS).glob(f"*-seed{seed}-*/run.json")]


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
def test_ray(run, tmp_path, monkeypatch, assert_equal_states):
    ray = pytest.importorskip("ray", reason='ray is not installed: pip install "oni-torch[ray]"')

    begun, sessions = [], 2
    command = [*TWO, "--engine", "ray", "--out", tmp_path / "ray"]

    def interrupt():
        if len(run_folders(tmp_path / "ray")) >= AT_ONCE:
            os.kill(os.getpid(), signal.SIGINT)
            return True

    def kill_one():
        for folder in begun or run_folders(tmp_path / "ray", seed=1):
            if len(read_sessions(folder)) == sessions and (pid := find_trainer(folder)):
                os.kill(pid, signal.SIGKILL)
                return folder

    # One start of Ray for everything, as it takes seconds; without it, each command would start its own.
    with ray_grid.connect(jobs.Engine("ray"), Overall("tests", 0, "none")):
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
        for option, message in (
            (["--gpus-per-run", 1], "--gpus-per-run 1: no machine of this Ray cluster has a GPU; leave it out"),
            (["--threads", 10_000], "a run needs 10000 threads, but no machine of this Ray cluster has that many"),
        ):
            code, out, err = run(*command, *option, "--json")
            assert (code, out) == (2, "")
            assert message in err

        # One that dies again and again is given up, and the other stops with a checkpoint.
        monkeypatch.setattr(ray_grid, "DEATHS", 1)
        begun, sessions = [], 1
        with meanwhile(kill_one) as killed:
            code, _, err = run(*command, "--seed", 1, "--plain")
        assert code == 2
        assert "workers died on this run, one after the other" in err.splitlines()[-1]
    assert not ray.is_initialized()

    assert run(*TWO, "--out", tmp_path / "local", "--plain")[0] == 0
    results, expected = read_results(tmp_path / "ray"), read_results(tmp_path / "local")
    assert len(expected) == 2
    assert_equal_states(results, expected)
    assert [name for name in os.listdir(tmp_path / "ray" / RUNS) if name.startswith(".")] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "rya"], "unknown engine 'rya'; did you mean 'ray'? Choose from local, ray"),
        (["--address", "auto"], "--address auto is only for a Ray cluster; add --engine ray, or leave it out"),
        (["--gpus-per-run", 1], "--gpus-per-run 1.0 is only for a Ray cluster"),
        (["--engine", "ray", "--gpus-per-run", 2], "--gpus-per-run must be from 0 to 1"),
        (["--engine", "ray", "--gpus-per-run", 1, "--accelerator", "cpu"], "contradict each other"),
        (["--engine", "ray", "--devices", 2], "trains each run in one process, on one device: leave out --devices"),
        (["--engine", "ray", "--address", "ray://head"], "--address must be auto or HOST:PORT, got 'ray://head'"),
        (["--engine", "ray", "--address", "127.0.0.1:1"], "--address 127.0.0.1:1: no answer ("),
        (["--threads", 0], "Invalid value for '--threads'"),
    ],
)
def test_mistakes_are_one_line(run, tmp_path, monkeypatch, options, message):
    monkeypatch.setattr(jobs, "find_spec", lambda name: name)  # as if it were installed
    if "--address" in options and "--engine" in options:
        pytest.importorskip("ray", reason="whether a cluster answers is asked when ray is loaded")
    code, out, err = run(*FOUR, *options, "--out", tmp_path, "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err
    assert not (tmp_path / RUNS).exists()


def test_without_ray(run, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: None)
    code, out, err = run(*FOUR, "--engine", "ray", "--out", tmp_path)
    assert (code, out) == (2, "")
    assert err == f"oni: --engine ray needs Ray, which is not installed: {make_install_command('ray')}\n"


def test_nothing_to_train(run, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "find_spec", lambda name: name)
    code, _, err = run("fig2", "--engine", "ray", "--out", tmp_path)
    assert (code, err) == (2, "oni: fig2 trains nothing, so --engine has no effect; leave it out\n")


@pytest.mark.parametrize(
    ("resumes", "again"), [(True, "start it again to"), (False, "start it again with --resume to")]
)
def test_what_is_said_when_stopped(monkeypatch, tmp_path, resumes, again):
    """With a Ray of which nothing is asked."""
    remote = SimpleNamespace(remote=lambda *_: None)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(remote=lambda **_: lambda _: remote))
    monkeypatch.setattr(ray_grid, "catch_signals", lambda: nullcontext(SimpleNamespace(asked=True)))
    job = jobs.Job("a run", lambda attempt: None)
    with pytest.raises(Interrupted, match=f"^stopped; {again} continue$"):
        ray_grid.Grid([job], [None], None, tmp_path, 1, 0.0, resumes=resumes).train()
