"""What a run trains. The loop, the run folder and the progress bars know a task by this interface alone.

A task owns its models, its optimisers, one step of training, one measurement and its state. A GAN is a task with two of
each: ``build_models`` returns both networks, ``build_optimizers`` an optimiser for each, and ``train_step`` makes some
steps of the one and then a step of the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from oni.models.proxied import find_orthogonal
from oni.models.retune import has_targets, retune
from oni.models.share import share
from oni.recipes.data.images import Dataset
from oni.recipes.run_files.config import Config
from oni.recipes.run_files.snapshot import gather_shards, load_model, load_optimizer
from oni.recipes.training.totals import Totals

if TYPE_CHECKING:
    from lightning_fabric import Fabric

__all__ = ["Task"]


class Task(ABC):
    """Models, optimisers, one step, one measurement, and their state.

    Results must not depend on the number of processes but for rounding: what is random is drawn for whole batches, or
    is a function of the sample's index.
    """

    metrics: tuple[str, ...]
    """The names of all that ``measure`` may return, in the order of the columns of ``epochs.csv``."""

    def __init__(self, config: Config, fabric: Fabric, dataset: Dataset) -> None:
        """Build everything and put it on the devices. A subclass calls this first."""
        self.config, self.fabric, self.dataset = config, fabric, dataset
        torch.manual_seed(config.seed)
        self.models = {name: synchronise_batch_norm(model, fabric) for name, model in self.build_models().items()}
        """The models that are saved and watched."""
        self.wrapped: dict[str, Any] = {name: fabric.setup_module(model) for name, model in self.models.items()}
        """The models that training calls: with several processes, they share gradients or weights."""
        self.optimizers: dict[str, Any] = {
            name: fabric.setup_optimizers(optimizer) for name, optimizer in self.build_optimizers().items()
        }
        self.totals = Totals(fabric)
        """What ``train_step`` adds up; cleared by the loop after each epoch."""

    def compile(self) -> None:
        """Have torch compile the models; the names of their parameters stay as they are."""
        if self.sharded:
            raise ValueError("--compile: torch can't compile weights that fsdp2 shards; pass --strategy ddp")
        for model in self.models.values():
            model.compile()

    def share_weights(self) -> None:
        """Have the processes share the work of orthogonalisation; every process takes part."""
        for model in self.models.values():
            if next(find_orthogonal(model), None) is not None:
                share(model)

    def retune_weights(self) -> None:
        """Choose steps again for weights with a target, as training moves their singular values; on all processes."""
        for model in self.models.values():
            if has_targets(model):
                retune(model)

    @property
    @abstractmethod
    def steps_per_epoch(self) -> int:
        """How many steps an epoch has."""

    @abstractmethod
    def build_models(self) -> dict[str, nn.Module]:
        """The models as they start, by name; torch's generator is seeded."""

    @abstractmethod
    def build_optimizers(self) -> dict[str, Optimizer]:
        """The optimisers of ``self.models``, by name."""

    @abstractmethod
    def start_epoch(self, epoch: int, first: int) -> None:
        """Prepare an epoch, counted from 0, of which ``first`` steps are already done."""

    @abstractmethod
    def train_step(self) -> None:
        """Make one step, add to ``self.totals``, and never wait for the device."""

    @abstractmethod
    def measure(self) -> dict[str, float]:
        """The metrics at the end of an epoch; every process takes part and gets the same numbers."""

    def files(self) -> dict[str, bytes]:
        """Files to write at the end of an epoch, by name below the run's folder; every process takes part."""
        return {}

    def warnings(self) -> list[str]:
        """What to tell the user after an epoch; every process takes part."""
        return []

    def running(self) -> dict[str, float]:
        """The metrics shown during an epoch; every process takes part. A number that is not finite ends the run."""
        return self.totals.means()

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, as whole tensors; every process takes part."""
        return {
            # Plain dicts, without the versions that torch attaches to them.
            "models": {name: gather_shards(dict(model.state_dict())) for name, model in self.models.items()},
            "optimizers": {
                name: gather_shards(wrapped.optimizer.state_dict()) for name, wrapped in self.optimizers.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state; every process takes part."""
        for name, model in self.models.items():
            load_model(model, state["models"][name])
        for name, wrapped in self.optimizers.items():
            load_optimizer(wrapped.optimizer, state["optimizers"][name])

    def whole_models(self) -> dict[str, nn.Module]:
        """The models to look at. Where weights are sharded these are copies; every process takes part."""
        if not self.sharded:
            return self.models
        copies = self.build_models()
        for name, model in self.models.items():
            copies[name].to(self.fabric.device).load_state_dict(gather_shards(dict(model.state_dict())))
        return copies

    @property
    def sharded(self) -> bool:
        """Whether no process has whole weights."""
        return any(isinstance(value, DTensor) for model in self.models.values() for value in model.parameters())


def synchronise_batch_norm(model: nn.Module, fabric: Fabric) -> nn.Module:
    """Normalise over the whole batch, also where it is shared by several processes."""
    if fabric.world_size == 1 or not any(isinstance(module, _BatchNorm) for module in model.modules()):
        return model
    if fabric.device.type == "cpu":
        raise ValueError(
            f"the network has batch normalisation, which torch can't synchronise over {fabric.world_size} CPU "
            "processes; pass --devices 1"
        )
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)
