"""What several tests of experiments need: the command, and an experiment of their own."""

import pytest

from oni.cli import main
from oni.recipes import reproduce
from oni.recipes.experiments import registry


@pytest.fixture
def run(capsys):
    """Run the command; return its code and what it printed."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def register(monkeypatch):
    """Make an experiment known as fig99."""
    load = registry.load_experiment

    def register(experiment):
        def load_known(id):
            return experiment if id == "fig99" else load(id)

        for module in (registry, reproduce):
            monkeypatch.setattr(module, "load_experiment", load_known)
        return experiment

    return register
