"""What several tests of training need."""

import pytest
import torch


def compare(state, expected, path=""):
    if isinstance(expected, torch.Tensor):
        assert torch.equal(state, expected), path
    elif isinstance(expected, dict):
        assert state.keys() == expected.keys(), path
        for key, value in expected.items():
            compare(state[key], value, f"{path}.{key}")
    elif isinstance(expected, list | tuple):
        assert len(state) == len(expected), path
        for index, value in enumerate(expected):
            compare(state[index], value, f"{path}[{index}]")
    else:
        assert state == expected, path


@pytest.fixture(scope="session")
def assert_equal_states():
    """Compare two states bit for bit, whatever dicts and lists they are made of."""
    return compare
