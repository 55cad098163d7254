"""Counting what is computed."""

import pytest

from oni.newton import batched
from oni.newton import orthogonalize as alone


@pytest.fixture
def computed(monkeypatch):
    """Counts what is computed: one number per call, the matrices in it."""
    calls = []

    def count(module):
        original = module.evaluate

        def evaluate(Z, spec):
            calls.append(1 if Z.dim() == 2 else len(Z))
            return original(Z, spec)

        monkeypatch.setattr(module, "evaluate", evaluate)

    count(batched)
    count(alone)
    return calls
