"""``oni reproduce`` over several processes, with every strategy, gives what one process gives."""

import json
import os
import subprocess
import sys

import pytest

from oni.cli import main

FEW = ["figA2", "network_options.width=16", "samples=128", "epochs=1", "batch_size=64", "precision=64-true"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


def measured(out):
    return [run["measured"] for run in json.loads((out / "figA2" / "results.json").read_text())["runs"]]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    out = tmp_path_factory.mktemp("one")
    assert main(["reproduce", *FEW, "--preset", "smoke", "--accelerator", "cpu", "--out", str(out), "--plain"]) == 0
    return measured(out)


@pytest.mark.parametrize(("devices", "strategy", "more"), [(1, "fsdp2", []), (2, "ddp", ["--share"]), (2, "fsdp2", [])])
def test_strategies(devices, strategy, more, one_process, tmp_path):
    options = ["--preset", "smoke", "--accelerator", "cpu", "--devices", str(devices), "--strategy", strategy]
    command = [sys.executable, "-m", "oni.cli", "reproduce", *FEW, *options, *more, "--out", str(tmp_path)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("Written:") == 1
    assert done.stderr.count("1 of 4") == 1
    for shared, alone in zip(measured(tmp_path), one_process, strict=True):
        # Sums over two halves round otherwise: float64, a few steps. What is recorded has six digits.
        assert shared["train_loss"] == pytest.approx(alone["train_loss"], rel=1e-5)
        assert shared["test_error"] == alone["test_error"]
        for step, rows in alone["signal"].items():
            # Recorded with four digits, so the last may differ by one.
            assert shared["signal"][step]["gradient"] == pytest.approx(rows["gradient"], rel=2e-3)
