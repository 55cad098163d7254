"""Two processes give what one gives, at the same global batch."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch.testing import assert_close

WORKER = Path(__file__).with_name("distributed_worker.py")
spec = importlib.util.spec_from_file_location("distributed_worker", WORKER)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)


def one_process(way):
    net = worker.build(way)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for first, second in worker.data():
        optimizer.zero_grad()
        worker.losses(net, first).backward()
        if way == "accumulate":
            worker.losses(net, second).backward()
        optimizer.step()
    return net.state_dict()


def test_two_processes_equal_one(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    running = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), "2", str(tmp_path / "init"), str(tmp_path)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert all(process.returncode == 0 for process in running), "\n".join(errors)
    for way in worker.WAYS:
        found, expected = torch.load(tmp_path / f"{way}.pt", weights_only=True), one_process(way)
        # float64; gradients are summed in another order.
        assert_close(found, expected, atol=1e-12, rtol=1e-12, msg=lambda text, way=way: f"{way}: {text}")
