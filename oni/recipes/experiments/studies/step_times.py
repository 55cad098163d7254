"""How long a training step of each network takes, measured in turns and apart from training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from oni.recipes.experiments.fashion_mnist.family import BATCH, make_config
from oni.recipes.experiments.runs import Row, apply_changes
from oni.timing import Times, interleaved, quartiles

if TYPE_CHECKING:
    from oni.recipes.run_files.config import Config

__all__ = ["StepTimes", "time_networks", "time_steps"]


@dataclass(frozen=True)
class StepTimes:
    """The time of a training step of every network of one depth, measured in turns."""

    depth: int
    seed: int
    seconds: float
    """The time budget."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """The user's changes to the networks that are trained, and so to those that are timed."""

    def override(self, overrides: Mapping[str, Any]) -> StepTimes:
        return replace(self, overrides=dict(overrides))

    def describe(self) -> str:
        return f"{self.depth} layers, time of a step"


def time_steps(run: StepTimes, rows: Mapping[str, Row]) -> dict[str, Any]:
    """Forward, backward and update of every network of this depth on one batch, in turns; in milliseconds."""
    config = make_config(data="fashion-mnist", samples=0, epochs=1, batch_size=BATCH)
    configs = {name: apply_changes(config, {**row.changes, **run.overrides}) for name, row in rows.items()}
    return time_networks(configs, seed=run.seed, seconds=run.seconds)


def time_networks(configs: Mapping[str, Config], *, seed: int, seconds: float) -> dict[str, Any]:
    """The quartiles of a training step of each network on one batch of its data's shape, in turns; in milliseconds."""
    import torch
    import torch.nn.functional as F

    from oni.recipes.data.datasets import DATASETS
    from oni.recipes.tasks.classification import build_network, input_dtype
    from oni.recipes.training.optimizer import build_optimizer

    torch.manual_seed(seed)

    def make_step(config: Config) -> Callable[[], object]:
        images = torch.randn(config.batch_size, *DATASETS[config.data].shape, dtype=input_dtype(config))
        labels = torch.randint(DATASETS[config.data].classes, (config.batch_size,))
        model = build_network(config)
        optimizer = build_optimizer(config, model)

        def step() -> None:
            optimizer.zero_grad()
            F.cross_entropy(model(images), labels).backward()
            optimizer.step()

        return step

    steps = {name: make_step(config) for name, config in configs.items()}
    for step in steps.values():
        step()  # the first is slower
    times: dict[str, Times] = {name: {} for name in steps}
    for _ in interleaved(steps, times, seconds=seconds, least_rounds=5):
        pass
    return {
        "milliseconds": {
            name: [1e3 * value for value in quartiles([*by_round.values()])] for name, by_round in times.items()
        }
    }
