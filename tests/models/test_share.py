"""``oni.share`` gives what ``DistributedDataParallel`` gives without it, and no rank waits for one that fails."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

import oni
from oni.models.cache import CACHE

WORKER = Path(__file__).with_name("share_worker.py")
spec = importlib.util.spec_from_file_location("share_worker", WORKER)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)


@pytest.mark.parametrize(("world", "ending"), [(2, 3), (4, -signal.SIGKILL)])
def test_processes(world, ending, tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    words = [sys.executable, str(WORKER), str(world), str(tmp_path / "init"), str(tmp_path)]
    process = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        errors = process.communicate(timeout=240)[1]
    finally:
        with suppress(ProcessLookupError):  # none is left
            os.killpg(process.pid, signal.SIGKILL)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world)]
    wrong = [
        f"rank {rank}, {title}: {text}" for rank in range(world) for title, text in found[rank].items() if text != "ok"
    ]
    assert not wrong, "\n".join([*wrong, errors])
    # The last process ends in the last scenario, and the others tell of it.
    titles = list(worker.SCENARIOS[world])
    assert [list(each) for each in found] == [titles] * (world - 1) + [titles[:-1]]
    assert json.loads((tmp_path / "codes.json").read_text()) == [0] * (world - 1) + [ending]


def test_one_process_does_nothing():
    net = oni.convert(nn.Sequential(nn.Linear(8, 4)), steps=3)
    before = dict(net._forward_pre_hooks)
    assert oni.share(net) is net
    assert dict(net._forward_pre_hooks) == before
    net(torch.ones(8)).sum().backward()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((nn.Linear(4, 4),), ValueError, "no orthogonal weights to share; oni.convert it first"),
        ((torch.ones(2, 2),), TypeError, "model must be a torch.nn.Module, got Tensor"),
        (
            (oni.convert(nn.Linear(4, 2)), 3),
            TypeError,
            "process_group must be what torch.distributed.new_group returns",
        ),
    ],
)
def test_what_can_not_be_shared(arguments, error, message):
    with pytest.raises(error, match=message):
        oni.share(*arguments)


def test_torch_compile_computes_alone(monkeypatch):
    """Collective operations inside a compiled graph would be waited for without a word."""

    class Unwanted:
        def prepare(self, *_):
            raise AssertionError("shared")

    net = oni.convert(nn.Linear(8, 4), steps=3)
    CACHE.adopt(net, Unwanted())
    with pytest.raises(AssertionError, match="shared"):
        net(torch.ones(8))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    net(torch.ones(8))
