"""Two processes give what one gives, at the same global batch."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

WORKER = Path(__file__).with_name("distributed_worker.py")
spec = importlib.util.spec_from_file_location("distributed_worker", WORKER)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)


def one_process(way):
    net = worker.model_with_unused_layer() if way in worker.UNUSED else worker.model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    for first, second in worker.data():
        optimizer.zero_grad()
        worker.losses(net, first).backward()
        if way == "accumulate":
            worker.losses(net, second).backward()
        optimizer.step()
    return net.state_dict()


@pytest.mark.parametrize("way", ["ddp", "accumulate", "fsdp2", *worker.UNUSED])
def test_two_processes_equal_one(way, tmp_path):
    out = tmp_path / "state.pt"
    command = [sys.executable, str(WORKER)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    running = [
        subprocess.Popen(
            [*command, str(rank), "2", str(tmp_path / "init"), way, str(out)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert all(process.returncode == 0 for process in running), "\n".join(errors)
    found, expected = torch.load(out, weights_only=True), one_process(way)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        # float64; gradients are summed in another order.
        assert_close(found[name], value, atol=1e-12, rtol=1e-12)
