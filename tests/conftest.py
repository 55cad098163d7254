"""Settings for every test: one thread in each process, and property tests say how hard they try."""

import os
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


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
