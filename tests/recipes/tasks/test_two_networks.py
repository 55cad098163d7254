"""A task of two networks and two optimisers: killed and resumed bit for bit, in one process and in two."""

import csv
import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from oni.recipes.run_files.run_folder import RunFolder
from oni.recipes.task_registry import TASKS
from oni.recipes.training.run import find_result

WORKER = Path(__file__).with_name("gan_worker.py")
spec = importlib.util.spec_from_file_location("gan_worker", WORKER)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
ENTRY = TASKS.pop("toy-gan")

TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone")


@pytest.fixture(autouse=True)
def toy_gan(monkeypatch):
    monkeypatch.setitem(TASKS, "toy-gan", ENTRY)


def run_worker(out, *endings, launcher=(), **environment):
    command = [sys.executable, *launcher, str(WORKER), str(out), *endings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def last_state(config, out):
    return RunFolder(out, config, worker.IMAGES.sha256).load_checkpoint(pytest.fail)


def assert_same_run(config, cut, whole, assert_equal_states):
    results = [find_result(config, out, worker.IMAGES.sha256) for out in (cut, whole)]
    rows = [[{key: row[key] for key in row if key != "seconds"} for row in result.epochs] for result in results]
    assert rows[0] == rows[1]
    first, second = last_state(config, cut), last_state(config, whole)
    for part in ("task", "processes", "step"):
        assert_equal_states(first[part], second[part], part)


def test_kill_and_resume_bit_for_bit(tmp_path, assert_equal_states):
    killed = run_worker(tmp_path, "kill:8")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    config = worker.make_config()
    folder = RunFolder(tmp_path / "cut", config, worker.IMAGES.sha256)
    assert [step for _, step, _ in folder.checkpoints()] == [6, 3]
    result = worker.run(tmp_path, "resume")
    assert folder.read("run.json")["sessions"][-1]["from_step"] == 6
    worker.run(tmp_path, "whole")
    assert_same_run(config, tmp_path / "cut", tmp_path / "whole", assert_equal_states)
    assert list(result.metrics)[3:-1] == ["d_loss", "g_loss", "fake_mean"]
    with (result.folder / "epochs.csv").open(newline="") as file:
        assert next(csv.reader(file)) == ["epoch", "steps", "d_loss", "g_loss", "fake_mean", "seconds"]
    # Both networks have learnt something.
    untrained = worker.ToyGAN.build_models.__get__(type("Fake", (), {"config": config}))
    torch.manual_seed(config.seed)
    for name, model in untrained().items():
        state = last_state(config, tmp_path / "whole")["task"]["models"][name]
        assert not any(torch.equal(value, state[key]) for key, value in model.state_dict().items() if value.dim() > 1)


def test_two_processes_killed_and_resumed_bit_for_bit(tmp_path, assert_equal_states):
    killed = run_worker(tmp_path, "whole", "kill:8", launcher=TORCHRUN)
    assert killed.returncode != 0
    config = worker.make_config()
    folder = RunFolder(tmp_path / "cut", config, worker.IMAGES.sha256)
    assert [step for _, step, _ in folder.checkpoints()] == [6, 3], killed.stderr
    resumed = run_worker(tmp_path, "resume", launcher=TORCHRUN)
    assert resumed.returncode == 0, resumed.stderr
    assert_same_run(config, tmp_path / "cut", tmp_path / "whole", assert_equal_states)
    assert len(last_state(config, tmp_path / "cut")["processes"]) == 2


def test_two_processes_equal_one(tmp_path):
    """Of the task gan itself, with a moving average."""
    config = worker.make_real_config()
    both = run_worker(tmp_path, "whole", launcher=TORCHRUN, REAL="1")
    assert both.returncode == 0, both.stderr
    shared = find_result(config, tmp_path / "whole", worker.IMAGES.sha256)
    alone = worker.run(tmp_path, "resume", config)
    for name in ("d_loss", "g_loss", "real_score", "fake_score", "d_error", "pixel_deviation"):
        # float64: gradients are summed in another order, 30 updates one after the other.
        assert shared.metrics[name] == pytest.approx(alone.metrics[name], rel=1e-8), name
    first, second = (last_state(config, tmp_path / folder)["task"] for folder in ("whole", "cut"))
    assert first["models"].keys() == {"generator", "discriminator"}
    for part in ("models", "average"):
        assert_close(first[part], second[part], rtol=1e-8, atol=1e-8)
    sheets = [sorted((result.folder / "samples").iterdir()) for result in (shared, alone)]
    assert [sheet.name for sheet in sheets[0]] == ["update-0000005.png", "update-0000010.png"]
    assert [sheet.read_bytes() for sheet in sheets[0]] == [sheet.read_bytes() for sheet in sheets[1]]
