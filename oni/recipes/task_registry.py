"""The tasks that can be trained, by name. A new one is a class and a line in ``TASKS``.

Their classes are imported when they are trained, so a configuration, and the engine, know tasks by name alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["TASKS", "RegisteredTask", "default_options", "load_task"]


@dataclass(frozen=True)
class RegisteredTask:
    """A task and its options."""

    task: type[Any] | str
    """The class, or ``"module:Class"``, which is imported only when it is trained."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Every option with its default."""


GAN_OPTIONS: Mapping[str, Any] = {
    "loss": "non-saturating",
    "n_dis": 5,
    "beta2": 0.9,
    "updates": 0,
    "epoch_decay": 1.0,
    "reuse_batch": False,
    "first_layer": "method",
    "ema": 0.0,
    "distance_samples": 1000,
    "keep_every": 0,
}
"""What each means is said in ``oni/recipes/tasks/gan.py``."""
TASKS: dict[str, RegisteredTask] = {
    # By how much logits are multiplied in the loss: a network of bounded slope can't make them large by itself.
    "classification": RegisteredTask("oni.recipes.tasks.classification:Classification", {"temperature": 1.0}),
    "gan": RegisteredTask("oni.recipes.tasks.gan:GANTraining", GAN_OPTIONS),
}
"""Every task, by name."""


def load_task(name: str) -> type[Any]:
    """The class of a task."""
    task = TASKS[name].task
    if isinstance(task, str):
        module, _, attribute = task.partition(":")
        return getattr(import_module(module), attribute)
    return task


def default_options(name: str) -> Mapping[str, Any]:
    """Every option of a task with its default."""
    return TASKS[name].options
