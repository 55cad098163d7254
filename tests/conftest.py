"""Settings for every test: small matrices need no second thread, and property tests say how hard they try."""

import pytest
import torch
from hypothesis import HealthCheck, settings

# Shared machines are slow at odd moments, so no deadline; derandomised, so that the next person meets a failure too.
settings.register_profile(
    "oni", max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("oni")


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Threads cost more than they give at these sizes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
