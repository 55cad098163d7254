"""What measured numbers depend on."""

import ctypes
import platform
import subprocess
import sys

import pytest

from oni.machine import keep_freed_memory

ROUNDS = """
import resource
import torch
from oni.machine import keep_freed_memory
if {keep}:
    keep_freed_memory()
for round in range(8):
    if round == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [torch.ones(1 << 20) for _ in range(24)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
PAGES = 24 * 1024
"""Of a round's blocks of 4 MiB: more than glibc keeps by itself."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc returns memory in this way")
def test_freed_memory_is_kept():
    command = [sys.executable, "-c", ROUNDS.format(keep=True)]
    faults = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    # Six rounds; another allocator, preloaded, may keep them in any case.
    assert faults < PAGES


@pytest.mark.parametrize("error", [OSError, TypeError])
def test_without_glibc_nothing_happens(error, monkeypatch):
    def refuse(_):
        raise error

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    keep_freed_memory()
