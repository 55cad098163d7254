"""Processes that die, and go on as if they had not; two processes that do what one does."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from torch.testing import assert_close

from oni.recipes.run_files.overrides import apply_changes
from oni.recipes.run_files.run_folder import RunFolder
from oni.recipes.training.run import find_result, train

WORKER = Path(__file__).with_name("train_worker.py")
spec = importlib.util.spec_from_file_location("train_worker", WORKER)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def run_worker(out, ending, *changes, launcher=()):
    command = [sys.executable, *launcher, str(WORKER), str(out), ending, *changes]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)


def train_here(out, *changes):
    """The same in this process."""
    config = apply_changes(worker.BASE, changes)
    return train(config, out, watch={"eye": worker.eye("whole", 0)}, progress="none", checkpoint_steps=5)


def last_state(result):
    return RunFolder(result.folder.parent, result.config).load_checkpoint(pytest.fail)


def without_times(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def assert_same_run(result, expected, assert_equal_states):
    assert without_times([result.metrics]) == without_times([expected.metrics])
    assert without_times(result.epochs) == without_times(expected.epochs)
    assert result.watched == expected.watched
    assert_equal_states(last_state(result)["task"], last_state(expected)["task"])
    assert_equal_states(last_state(result)["processes"], last_state(expected)["processes"])


@pytest.mark.parametrize(
    ("step", "method"),
    [(8, "oni"), (23, "sn")],  # in the middle of the first epoch, of the second; sn has buffers
)
def test_kill_and_resume_bit_for_bit(step, method, tmp_path, assert_equal_states):
    change = f"method={method}"
    killed = run_worker(tmp_path / "cut", f"kill:{step}", change)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    config = apply_changes(worker.BASE, [change])
    assert find_result(config, tmp_path / "cut") is None
    folder = RunFolder(tmp_path / "cut", config)
    assert folder.checkpoints()[0][1] == step // 5 * 5
    resumed = train_here(tmp_path / "cut", change)
    assert [session["from_step"] for session in folder.read("run.json")["sessions"]] == [0, step // 5 * 5]
    assert_same_run(resumed, train_here(tmp_path / "whole", change), assert_equal_states)


def test_ctrl_c_saves_and_prints_the_remedy(tmp_path, assert_equal_states):
    command = [sys.executable, str(WORKER), str(tmp_path / "cut"), "slow:7"]
    with subprocess.Popen(
        command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "slow\n"
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    assert "Traceback" not in printed
    assert sum("start it again to continue" in line for line in printed.splitlines()) == 1
    folder = RunFolder(tmp_path / "cut", worker.BASE)
    step = folder.checkpoints()[0][1]
    assert f"stopped after step {step};" in printed
    assert 7 <= step < 32
    assert_same_run(train_here(tmp_path / "cut"), train_here(tmp_path / "whole"), assert_equal_states)


TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone")


def assert_close_runs(result, expected):
    """A run of two processes, and one of one process."""
    for name, value in expected.metrics.items():
        if name not in ("seconds", "status"):
            # float64; gradients and losses are summed in another order, some dozen steps one after the other.
            assert result.metrics[name] == pytest.approx(value, rel=1e-9), name
    two, one = last_state(result), last_state(expected)
    assert (len(two["processes"]), len(one["processes"])) == (2, 1)
    assert two["task"]["models"].keys() == one["task"]["models"].keys()
    for name, model in one["task"]["models"].items():
        assert_close(two["task"]["models"][name], model, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("launcher", [(), TORCHRUN], ids=["fabric", "torchrun"])
def test_two_processes_equal_one(launcher, tmp_path):
    change = ["precision=64-true", "epochs=1"]
    if not launcher:
        # Scales started by data, and what is drawn for whole batches, must be the same in both processes.
        change += ["init_scale=true", "augment=flip-half,crop-together"]
    both = run_worker(tmp_path / "two", "two", *change, launcher=launcher)
    assert both.returncode == 0, both.stderr
    expected = train_here(tmp_path / "one", *change)
    # Of 101 held-out samples the shares are uneven.
    assert_close_runs(find_result(expected.config, tmp_path / "two"), expected)


def test_two_processes_with_shards_continue_what_one_began(tmp_path):
    change = "precision=64-true"

    def cut(step, model):
        if step == 11:
            raise RuntimeError("cut")

    config = apply_changes(worker.BASE, [change])
    with pytest.raises(RuntimeError, match="cut"):
        train(config, tmp_path / "cut", watch={"eye": cut}, progress="none", checkpoint_steps=5)
    both = run_worker(tmp_path / "cut", "fsdp2", change)
    assert both.returncode == 0, both.stderr
    assert "continues after step 10" in both.stderr
    assert_close_runs(find_result(config, tmp_path / "cut"), train_here(tmp_path / "whole", change))
