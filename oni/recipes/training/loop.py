"""The loop of a run: epochs of steps, each a function of the state that a checkpoint holds and of nothing else."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from oni.recipes.data.batches import Part, Parts, order
from oni.recipes.data.subjects import NETWORKS, output_layer
from oni.recipes.methods import apply, extra_loss
from oni.recipes.training.config import Config
from oni.recipes.training.events import event_file
from oni.recipes.training.interruption import Interrupted, Stop
from oni.recipes.training.progress import Reporter
from oni.recipes.training.run_folder import RunFolder
from oni.recipes.training.snapshot import random_state, restore, restore_random_state, states

__all__ = ["Loop", "Saving", "Watch", "built"]

Watch = Callable[[int, nn.Module], Any]

LOOK_EVERY = 20
"""Steps between two looks at the loss, and at the clock and signals of other processes: on a GPU a look waits."""


SHOW_EVERY = 0.2
"""Seconds between two signs of life."""


@dataclass
class Saving:
    """When and where to save."""

    folder: RunFolder
    stop: Stop
    seconds: float
    steps: int | None


def built(config: Config) -> tuple[nn.Module, Callable[[nn.Module], Tensor] | None]:
    """The network as it starts, with the method on it, and what the method adds to the loss."""
    torch.manual_seed(config.seed)
    network = NETWORKS[config.network](**config.network_options)
    skip = None if config.change_output else output_layer(network)
    apply(config.method, network, skip=skip, **config.method_options)
    extra = extra_loss(config.method, skip=skip, **config.method_options)
    return (network.double() if config.precision == "64-true" else network), extra


def made_optimizer(config: Config, model: nn.Module) -> torch.optim.Optimizer:
    scales: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        # ONI's and OLM's learnable scale, and the norm in torch's weight normalisation.
        is_scale = "parametrizations." in name and name.rpartition(".")[2] in ("scale", "original0")
        (scales if is_scale else others).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": others, "weight_decay": config.weight_decay},
        {"params": scales, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    if config.optimizer == "adam":
        return torch.optim.Adam(groups, lr=config.learning_rate, betas=(config.momentum, 0.999))
    return torch.optim.SGD(groups, lr=config.learning_rate, momentum=config.momentum)


class Loop:
    """A run in progress."""

    def __init__(
        self,
        config: Config,
        fabric: Fabric,
        parts: Parts,
        watch: Mapping[str, Watch],
        report: Reporter,
        saving: Saving,
    ) -> None:
        if config.batch_size % fabric.world_size:
            raise ValueError(
                f"batch_size={config.batch_size} can't be shared equally by {fabric.world_size} processes; "
                "take a multiple of that"
            )
        self.config, self.fabric, self.parts, self.watch = config, fabric, parts, watch
        self.report, self.saving = report, saving
        self.network, self.extra = built(config)
        self.model = fabric.setup_module(self.network)
        self.optimizer: Any = fabric.setup_optimizers(made_optimizer(config, self.network))
        if self.extra and any(isinstance(parameter, DTensor) for parameter in self.network.parameters()):
            raise ValueError(f"method {config.method!r} adds whole weights to the loss, which fsdp2 has not: use ddp")
        torch.manual_seed(config.seed + 1 + fabric.global_rank)
        self.per_epoch = len(parts.train) // config.batch_size
        self.step = 0
        self.rows: list[dict[str, Any]] = []
        self.watched: dict[str, dict[int, Any]] = {name: {} for name in watch}
        self.before, self.since = 0.0, time.perf_counter()
        self.start_epoch()

    def start_epoch(self) -> None:
        """Nothing seen yet: sums of the loss and of wrong answers, in this process, and the time before now."""
        device = self.fabric.device
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)

    def resume(self, data: str) -> None:
        """Continue from the newest whole checkpoint, if there is one."""
        self.data = data
        state = None
        if self.fabric.is_global_zero:
            state = self.saving.folder.load_checkpoint(self.report.warn)
        state = self.fabric.broadcast(state)
        if state is None:
            return
        if state["data"] != data:
            raise ValueError(f"{self.saving.folder.path}: was trained on other data than these; move this folder away")
        restore(self.network, self.optimizer.optimizer, state["model"], state["optimizer"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        self.step, self.before = state["step"], state["seconds"]
        self.rows, self.watched = json.loads(state["rows"]), json.loads(state["watched"])
        self.watched = {name: {int(step): value for step, value in of.items()} for name, of in self.watched.items()}
        rank, same = self.fabric.global_rank, len(state["processes"]) == self.fabric.world_size
        # Sums are kept apart, because a sum of sums rounds otherwise; by another number of processes they are joined.
        of = [state["processes"][rank]] if same else state["processes"] if rank == 0 else []
        for process in of:
            self.loss_sum += process["loss"].to(self.loss_sum.device)
            self.wrong += process["wrong"].to(self.wrong.device)
        if same:
            restore_random_state(of[0]["random"], self.fabric.device)
        self.since = time.perf_counter()

    def run(self) -> None:
        """Train to the end, and write it."""
        self.report.start(self.saving.folder.path.name, self.config.epochs * self.per_epoch, self.step)
        said = "stopped by an error"
        try:
            self.saved_at = self.shown_at = time.perf_counter()
            if self.step == 0:
                self.look()
            status = "finished"
            while len(self.rows) < self.config.epochs:
                if not (self.train_epoch() and self.end_epoch()):
                    status = "diverged"
                    break
            if status == "finished":
                self.save()
            self.write_end(status)
            said = status if status == "finished" else f"diverged at step {self.step}: the loss is not finite"
        except Interrupted as error:
            said = str(error)
            raise
        finally:
            self.report.end(said)

    def train_epoch(self) -> bool:
        """The steps that are left of this epoch; whether all losses looked at were finite."""
        epoch, config = len(self.rows), self.config
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate_in(epoch)
        shuffled = order(len(self.parts.train), config.seed, epoch).to(self.fabric.device)
        self.model.train()
        for batch in range(self.step - epoch * self.per_epoch, self.per_epoch):
            whole = shuffled[batch * config.batch_size : (batch + 1) * config.batch_size]
            self.train_step(*self.parts.train.batch(whole.chunk(self.fabric.world_size)[self.fabric.global_rank]))
            self.step += 1
            self.look()
            if self.step % LOOK_EVERY == 0:
                if not self.looks_well(batch + 1):
                    return False
            elif self.fabric.world_size == 1 and time.perf_counter() - self.shown_at >= SHOW_EVERY:
                self.looks_well(batch + 1)
            self.pause(batch + 1)
        return True

    def train_step(self, images: Tensor, labels: Tensor) -> None:
        logits = self.model(images)
        loss = F.cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        self.fabric.backward(loss + self.extra(self.network) if self.extra else loss)
        self.optimizer.step()
        self.loss_sum += loss.detach() * len(labels)
        self.wrong += (logits.detach().argmax(1) != labels).sum()

    def looks_well(self, batches: int) -> bool:
        """Show how it goes; whether the loss is finite."""
        self.shown_at = time.perf_counter()
        seen = batches * self.config.batch_size
        loss, wrong = self.over_all(self.loss_sum, self.wrong)
        self.report.step(self.step, f"{len(self.rows) + 1}/{self.config.epochs}", loss / seen, wrong / seen)
        return math.isfinite(loss)

    def pause(self, batches: int) -> None:
        """Between two steps: save if it is time to, and stop if someone asks."""
        due = time.perf_counter() - self.saved_at >= self.saving.seconds
        asked = self.saving.stop.asked
        if self.fabric.world_size > 1:
            # All must do the same: whatever one of them wants, when all look.
            if self.step % LOOK_EVERY and batches < self.per_epoch:
                due = asked = False
            else:
                wishes = torch.tensor([due, asked], dtype=torch.int32, device=self.fabric.device)
                due, asked = (value > 0 for value in self.summed(wishes).tolist())
        if due or asked or (self.saving.steps and self.step % self.saving.steps == 0):
            self.save()
        if asked:
            path = self.saving.folder.path
            raise Interrupted(f"stopped after step {self.step}; start it again with --resume to continue {path}")

    def end_epoch(self) -> bool:
        """Measure and write a row; whether every loss was finite."""
        seen = self.per_epoch * self.config.batch_size
        loss, wrong = self.over_all(self.loss_sum, self.wrong)
        row: dict[str, Any] = {
            "epoch": len(self.rows) + 1,
            "steps": self.step,
            "learning_rate": self.config.learning_rate_in(len(self.rows)),
            "train_loss": loss / seen,
            "train_error": wrong / seen,
        }
        for name, part in (("validation", self.parts.validation), ("test", self.parts.test)):
            row[f"{name}_loss"], row[f"{name}_error"] = self.measured(part) if part else (None, None)
        row["seconds"] = round(self.seconds(), 3)
        well = all(math.isfinite(value) for value in row.values() if value is not None)
        self.rows.append(
            {key: None if value is None or not math.isfinite(value) else value for key, value in row.items()}
        )
        self.report.epoch(self.rows[-1])
        if self.fabric.is_global_zero:
            self.saving.folder.write_csv("epochs.csv", self.rows)
            self.saving.folder.write("events.out.tfevents.oni", event_file(self.rows, self.saving.folder.started()))
        self.before, self.since = 0.0, time.perf_counter()
        self.start_epoch()
        return well

    @torch.no_grad()
    def measured(self, part: Part) -> tuple[float, float]:
        """Loss and error on every sample once."""
        self.model.eval()
        loss = torch.zeros((), dtype=torch.float64, device=self.fabric.device)
        wrong = torch.zeros((), dtype=torch.int64, device=self.fabric.device)
        size = max(self.config.batch_size, 1000)
        for images, labels in part.in_turn(size, self.fabric.global_rank, self.fabric.world_size):
            logits = self.model(images)
            loss += F.cross_entropy(logits, labels, reduction="sum")
            wrong += (logits.argmax(1) != labels).sum()
        total, errors = self.over_all(loss, wrong)
        return total / len(part), errors / len(part)

    def look(self) -> None:
        """Let everyone watch, without a trace in the training."""
        if not self.watch:
            return
        training = self.network.training
        self.network.eval()
        own = [self.fabric.device] if self.fabric.device.type == "cuda" else []
        with torch.random.fork_rng(own):
            for name, function in self.watch.items():
                seen = function(self.step, self.network)
                if seen is not None:
                    # Refused now if it is not JSON; what is not finite is None.
                    self.watched[name][self.step] = json.loads(json.dumps(seen), parse_constant=lambda _: None)
        self.network.train(training)

    def over_all(self, loss: Tensor, wrong: Tensor) -> tuple[float, int]:
        """Both sums over all processes."""
        return self.summed(loss).item(), int(self.summed(wrong).item())

    def summed(self, value: Tensor) -> Tensor:
        if self.fabric.world_size == 1:
            return value
        # A copy: the reduction is in place.
        return cast(Tensor, self.fabric.all_reduce(value.clone(), reduce_op="sum"))

    def seconds(self) -> float:
        """The time in this epoch, also before an interruption."""
        return self.before + time.perf_counter() - self.since

    def save(self) -> None:
        """Write a checkpoint."""
        model, optimizer = states(self.network, self.optimizer.optimizer)
        own = {"loss": self.loss_sum.cpu(), "wrong": self.wrong.cpu(), "random": random_state(self.fabric.device)}
        processes: list[Any] = [own]
        if self.fabric.world_size > 1:
            processes = [None] * self.fabric.world_size
            torch.distributed.all_gather_object(processes, own)
        if self.fabric.is_global_zero:
            state = {
                "hash": self.config.hash,
                "data": self.data,
                "step": self.step,
                "seconds": self.seconds(),
                "rows": json.dumps(self.rows),
                "watched": json.dumps(self.watched),
                "model": model,
                "optimizer": optimizer,
                "precision": self.fabric.strategy.precision.state_dict(),
                "processes": processes,
            }
            self.saving.folder.save_checkpoint(self.step, state)
        self.saved_at = time.perf_counter()

    def write_end(self, status: str) -> None:
        """Write metrics.json, by which a run is known to have ended."""
        if not self.fabric.is_global_zero:
            return
        last = self.rows[-1] if self.rows and (status == "finished" or self.rows[-1]["steps"] == self.step) else {}
        measured = ("train_loss", "train_error", "validation_loss", "validation_error", "test_loss", "test_error")
        metrics = {
            "status": status,
            "steps": self.step,
            "epochs": len(self.rows),
            **{name: last.get(name) if status == "finished" else None for name in measured},
            "seconds": round(sum(row["seconds"] for row in self.rows) + (0.0 if last else self.seconds()), 3),
        }
        watched = {name: {str(step): value for step, value in of.items()} for name, of in self.watched.items()}
        self.saving.folder.write_json("metrics.json", {"metrics": metrics, "epochs": self.rows, "watched": watched})
