"""What measured numbers depend on: the machine, its threads and memory, and the versions of what ran on it."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

__all__ = ["code_version", "find_version", "keep_freed_memory", "machine", "one_thread", "torch_threads", "versions"]


def machine(device: str = "cpu") -> dict[str, Any]:
    """What the numbers depend on."""
    description: dict[str, Any] = {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "platform": platform.platform(),
        "device": device,
    }
    if device != "cpu":
        description["gpu"] = torch.cuda.get_device_name(device)
    return description


def cpu_model() -> str:
    """The processor's name, as far as the system tells."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """The versions of what was measured, and of those peers that are installed."""
    numbers = {"python": platform.python_version(), "oni": version("oni-torch"), "torch": torch.__version__}
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    if blas:
        numbers["blas"] = blas[1]
    for package in ("numpy", "geotorch", "orthogonium", "deel-torchlip"):
        if (number := find_version(package)) is not None:
            numbers[package] = number
    return numbers


def find_version(package: str) -> str | None:
    """The version of a distribution, if it is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Small matrices gain nothing from threads, and on a busy machine lose a minute waiting for them."""
    with torch_threads(1):
        yield


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Inside it torch uses so many threads; as many as before, if it is ``None``."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Options of glibc's mallopt, as in malloc.h."""
SET_BY_USER = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


def keep_freed_memory() -> None:
    """Have glibc keep what this process frees for the next allocation, as torch does on a GPU.

    Otherwise it keeps no more than twice the largest block freed so far, and 64 MiB at most. It returns the rest to the
    system after each step, and the next step waits for the same pages again. Blocks of 64 MiB and more still go back:
    among them, small ones that live longer would leave gaps that growing blocks can't use, and the process might hold
    ten times what it needs. Without glibc, or where the environment says what to keep, nothing changes.
    """
    if any(name in os.environ for name in SET_BY_USER) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return
    with suppress(OSError, TypeError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        if not mallopt(MMAP_THRESHOLD, 1 << 26):
            # Older versions take no more than 32 MiB.
            mallopt(MMAP_THRESHOLD, 1 << 25)


@cache
def code_version() -> str:
    """The commit of this package's source, with + if it has been changed since; "installed" if it is no checkout.

    As it is at the first call: what is changed or committed later is not what this process has loaded.
    """
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return "installed"
    try:
        git = ["git", "-C", str(root)]
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True, timeout=10)
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--", "oni"], capture_output=True, text=True, check=True, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")
