"""Settings for every test: one thread in each process, and property tests say how hard they try."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

# Shared machines are slow at odd moments, so no deadline; derandomised, so that the next person meets a failure too.
settings.register_profile(
    "oni", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("oni")


def pytest_configure():
    """Use one thread here and in what tests start: the matrices are small, and each core runs a pytest of its own.

    Tables have 120 columns, whatever the terminal.
    """
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "COLUMNS": "120"}
    # torch.compile keeps kernels of one instruction set in its cache, and takes them for another's.
    capability = os.environ.get("ATEN_CPU_CAPABILITY", "native")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(tempfile.gettempdir()) / f"oni-tests-inductor-{capability}")
    torch.set_num_threads(1)
    # Nobody cuts the power of a test, and waiting for the disk takes a fifth of the time of a small run.
    os.fsync = lambda handle: None
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts what it runs in the background so, and every process that a test interrupts would inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    avoid_illegal_instructions()


def avoid_illegal_instructions():
    """Keep oneDNN from AMX where using it ends the process: some virtual machines have it in name only."""
    cpu = Path("/proc/cpuinfo")
    if "ONEDNN_MAX_CPU_ISA" in os.environ or not cpu.exists() or "amx_bf16" not in cpu.read_text():
        return
    product = "import torch; a = torch.ones(64, 64, dtype=torch.bfloat16); a @ a"
    if subprocess.run([sys.executable, "-c", product], stderr=subprocess.DEVNULL).returncode < 0:
        # Inherited by the processes that run tests, and by those that tests start.
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
