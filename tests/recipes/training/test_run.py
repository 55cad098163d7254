"""One run in one process: what it writes, what it refuses, what it survives."""

import csv
import errno
import json
import os
import signal
import threading
from dataclasses import replace

import pytest
import torch

from oni.recipes.data.batches import shuffle_indices
from oni.recipes.data.images import Images
from oni.recipes.networks.registry import NETWORKS
from oni.recipes.run_files.config import Config
from oni.recipes.run_files.run_folder import Busy, NotSaved, RunFolder
from oni.recipes.tasks import classification
from oni.recipes.tasks.classification import build_network
from oni.recipes.training import run
from oni.recipes.training.devices import Hardware
from oni.recipes.training.interruption import Interrupted
from oni.recipes.training.optimizer import build_optimizer
from oni.recipes.training.parts import split
from oni.recipes.training.run import find_result, train

SMALL = Config(
    data="fashion-mnist-sample",
    network_options={"depth": 1, "width": 8, "inputs": 12},
    batch_size=16,
    epochs=2,
    drops=(1,),
    learning_rate=0.1,
)


@pytest.fixture(scope="module")
def images():
    """Random bytes, with labels that can be learnt."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (150, 1, 3, 4), dtype=torch.uint8, generator=generator)
    labels = (pixels[:, 0, 0, 0] // 26).clamp(max=9)
    return Images(pixels[:100], labels[:100], pixels[100:], labels[100:])


def train_quietly(config, out, images, **options):
    return train(config, out, data=images, **{"progress": "none", **options})


def watch_with(function):
    return replace(SMALL, watch=("eye",)), {"watch": {"eye": function}}


def test_the_folder_of_a_run(images, tmp_path):
    config = replace(SMALL, validation=20)
    result = train_quietly(config, tmp_path, images)
    assert result.trained
    # Not the official data of that name, so their digest is part of the run's.
    assert result.folder == tmp_path / f"{config.name}-data-{images.sha256[:8]}"
    assert json.loads((result.folder / "config.json").read_text()) == config.as_dict()
    session = result.folder.joinpath("run.json")
    record = json.loads(session.read_text())["sessions"][0]
    assert {"code", "versions", "machine", "hardware", "started", "from_step"} <= record.keys()
    with (result.folder / "epochs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert [float(row["learning_rate"]) for row in rows] == [0.1, 0.05]
    # 80 are left to train on, in batches of 16.
    assert [int(row["steps"]) for row in rows] == [5, 10]
    assert float(rows[1]["test_error"]) == result.metrics["test_error"]
    assert 0 <= result.metrics["validation_error"] <= 1
    assert [step for _, step, _ in RunFolder(tmp_path, config, images.sha256).checkpoints()] == [10]
    assert not list(result.folder.glob(".*.part"))


def test_finished_runs_are_not_trained_again(images, tmp_path):
    first = train_quietly(SMALL, tmp_path, images)
    again = train_quietly(SMALL, tmp_path, images)
    assert not again.trained
    assert (again.metrics, again.epochs) == (first.metrics, first.epochs)


def test_training_keeps_freed_memory(images, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(run, "keep_freed_memory", lambda: calls.append("kept"))
    train_quietly(SMALL, tmp_path, images)
    assert calls == ["kept"]
    train_quietly(SMALL, tmp_path, images)
    assert calls == ["kept"], "nothing was trained"


def test_the_callers_generator_is_left_alone(images, tmp_path):
    before = torch.get_rng_state()
    train_quietly(SMALL, tmp_path, images)
    assert torch.equal(torch.get_rng_state(), before)


def test_evaluation_is_of_every_sample_once(images, tmp_path):
    weights = {}
    config, watch = watch_with(
        lambda step, model: weights.update({step: {k: v.clone() for k, v in model.state_dict().items()}})
    )
    result = train_quietly(config, tmp_path, images, **watch)
    network = build_network(config)
    network.load_state_dict(weights[12])
    parts = split(images, config, torch.device("cpu"), torch.float32)
    pixels, labels = parts.test.batch(torch.arange(50))
    with torch.no_grad():
        expected = (network(pixels).argmax(1) != labels).double().mean().item()
    assert result.metrics["test_error"] == expected


def test_scaling_and_split(images):
    config = replace(SMALL, validation=30, samples=40)
    parts = split(images, config, torch.device("cpu"), torch.float64)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (40, 30, 50)
    every, _ = parts.train.batch(torch.arange(40))
    assert abs(every.mean().item()) < 1e-14  # the mean of 480 float64 numbers below 1
    held_out = {tuple(image.flatten().tolist()) for image in parts.validation.samples.images}
    assert not held_out & {tuple(image.flatten().tolist()) for image in parts.train.samples.images}


def test_order_is_a_function_of_seed_and_epoch():
    assert shuffle_indices(50, 1, 2).equal(shuffle_indices(50, 1, 2))
    assert not shuffle_indices(50, 1, 2).equal(shuffle_indices(50, 2, 1))
    assert sorted(shuffle_indices(50, 1, 2).tolist()) == list(range(50))


def test_every_epoch_has_its_order(images, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        classification, "shuffle_indices", lambda *arguments: asked.append(arguments) or shuffle_indices(*arguments)
    )
    train_quietly(replace(SMALL, seed=3), tmp_path, images)
    assert asked == [(100, 3, 0), (100, 3, 1)]


def test_watching_leaves_no_trace_and_is_recorded(images, tmp_path):
    def look(step, model):
        assert not model.training
        torch.rand(3)
        return {"step": step, "inf": float("inf")} if step in (0, 7) else None

    config, watch = watch_with(look)
    watched = train_quietly(config, tmp_path, images, **watch)
    assert watched.watched == {"eye": {0: {"step": 0, "inf": None}, 7: {"step": 7, "inf": None}}}
    assert find_result(config, tmp_path, images.sha256).watched == watched.watched
    assert train_quietly(SMALL, tmp_path, images).metrics["test_loss"] == watched.metrics["test_loss"]
    with pytest.raises(ValueError, match="watch must have the names"):
        train_quietly(config, tmp_path, images)


def test_divergence_is_recorded_and_kept(images, tmp_path):
    def break_it(step, model):
        if step == 8:
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))

    config, watch = watch_with(break_it)
    result = train_quietly(config, tmp_path, images, checkpoint_steps=4, **watch)
    assert result.diverged
    assert result.metrics["test_error"] is None
    assert [row["train_loss"] is None for row in result.epochs] == [False, True]
    assert RunFolder(tmp_path, config, images.sha256).checkpoints()
    assert not train_quietly(config, tmp_path, images, **watch).trained


def test_divergence_is_seen_within_an_epoch(images, tmp_path):
    # The first step overflows; the loss is looked at every 20 steps, of which an epoch has 25.
    config = replace(SMALL, method="plain", method_options={}, learning_rate=1e38, batch_size=4)
    result = train_quietly(config, tmp_path, images)
    assert result.diverged
    assert (result.metrics["steps"], result.metrics["epochs"]) == (20, 0)


def cut(step):
    """Ends a run the way that a crash does."""

    def look(done, model):
        if done == step:
            raise RuntimeError("cut")

    return look


@pytest.mark.parametrize("damage", [lambda content: content[:-40], lambda content: content[:99] + b"?" + content[100:]])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(damage, images, tmp_path, capsys):
    config, watch = watch_with(cut(9))
    with pytest.raises(RuntimeError, match="cut"):
        train_quietly(config, tmp_path, images, checkpoint_steps=3, **watch)
    folder = RunFolder(tmp_path, config, images.sha256)
    (newest, step, _), (_, previous, _) = folder.checkpoints()
    assert (step, previous) == (6, 3)
    path = folder.path / newest
    path.write_bytes(damage(path.read_bytes()))
    resumed = train_quietly(config, tmp_path, images, watch={"eye": cut(-1)})
    assert newest in capsys.readouterr().err
    assert folder.read("run.json")["sessions"][-1]["from_step"] == 3
    whole = train_quietly(config, tmp_path / "whole", images, watch={"eye": cut(-1)})
    assert resumed.metrics["test_loss"] == whole.metrics["test_loss"]


class Forgetful(torch.nn.Module):
    """Draws random numbers while it trains."""

    def __init__(self, inputs=12):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(inputs, 8), torch.nn.Dropout(), torch.nn.Linear(8, 10)
        )

    def forward(self, images):
        return self.layers(images)


def test_generators_continue(images, tmp_path, monkeypatch):
    monkeypatch.setitem(NETWORKS, "forgetful", Forgetful)
    config = replace(SMALL, network="forgetful", network_options={}, watch=("eye",), momentum=0.5)
    with pytest.raises(RuntimeError, match="cut"):
        train_quietly(config, tmp_path, images, checkpoint_seconds=0, watch={"eye": cut(9)})
    assert [step for _, step, _ in RunFolder(tmp_path, config, images.sha256).checkpoints()] == [8, 7]
    resumed = train_quietly(config, tmp_path, images, watch={"eye": cut(-1)})
    whole = train_quietly(config, tmp_path / "whole", images, watch={"eye": cut(-1)})
    assert [row["train_loss"] for row in resumed.epochs] == [row["train_loss"] for row in whole.epochs]


def test_watching_draws_from_generators_of_its_own(images, tmp_path, monkeypatch):
    monkeypatch.setitem(NETWORKS, "forgetful", Forgetful)
    config = replace(SMALL, network="forgetful", network_options={}, watch=("eye",))
    draws = train_quietly(config, tmp_path / "draws", images, watch={"eye": lambda step, model: torch.rand(()).item()})
    looks = train_quietly(config, tmp_path / "looks", images, watch={"eye": lambda step, model: None})
    assert draws.metrics["train_loss"] == looks.metrics["train_loss"]


def test_killed_before_the_last_line(images, tmp_path):
    result = train_quietly(SMALL, tmp_path, images)
    (result.folder / "metrics.json").unlink()
    again = train_quietly(SMALL, tmp_path, images)
    assert (again.metrics, again.epochs) == (result.metrics, result.epochs)


def test_a_full_disk_keeps_what_there_is(images, tmp_path, monkeypatch):
    full = False
    fsync = os.fsync

    def no_space(handle):
        if full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(handle)

    def fill(step, model):
        nonlocal full
        full = step >= 5

    monkeypatch.setattr(os, "fsync", no_space)
    config, watch = watch_with(fill)
    with pytest.raises(NotSaved, match="No space left on device") as caught:
        train_quietly(config, tmp_path, images, checkpoint_steps=3, **watch)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.exit_code == 74
    folder = RunFolder(tmp_path, config, images.sha256)
    assert [step for _, step, _ in folder.checkpoints()] == [3]
    assert folder.checkpoints()[0][0] in str(caught.value)
    assert not list(folder.path.glob(".*.part"))
    monkeypatch.setattr(os, "fsync", fsync)
    resumed = train_quietly(config, tmp_path, images, watch={"eye": cut(-1)})
    whole = train_quietly(config, tmp_path / "whole", images, watch={"eye": cut(-1)})
    assert resumed.metrics["test_loss"] == whole.metrics["test_loss"]


def test_a_folder_that_cannot_be_made(images, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotSaved) as caught:
        train_quietly(SMALL, tmp_path / "file", images)
    assert str(tmp_path / "file") in str(caught.value)


def test_two_at_once(images, tmp_path):
    with RunFolder(tmp_path, SMALL, images.sha256).lock(), pytest.raises(Busy, match="another process"):
        train_quietly(SMALL, tmp_path, images)


def test_signals_are_given_back(images, tmp_path):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    config, watch = watch_with(lambda step, model: signal.raise_signal(signal.SIGTERM) if step == 4 else None)
    with pytest.raises(Interrupted, match="after step 4"):
        train_quietly(config, tmp_path, images, **watch)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert [step for _, step, _ in RunFolder(tmp_path, config, images.sha256).checkpoints()] == [4]


def test_from_another_thread(images, tmp_path):
    results = []
    thread = threading.Thread(target=lambda: results.append(train_quietly(SMALL, tmp_path, images)))
    thread.start()
    thread.join()
    assert results[0].metrics["status"] == "finished"


def test_other_data_are_another_run(images, tmp_path):
    config, watch = watch_with(cut(4))
    with pytest.raises(RuntimeError, match="cut"):
        train_quietly(config, tmp_path, images, checkpoint_steps=3, **watch)
    other = replace(images, test_labels=images.test_labels.flip(0))
    assert train_quietly(config, tmp_path, other, watch={"eye": cut(-1)}).metrics["status"] == "finished"
    assert len(list(tmp_path.iterdir())) == 2


def test_no_weight_decay_on_scales():
    for method in ("oni", "wn", "centred-wn"):
        config = replace(SMALL, method=method, method_options={}, weight_decay=0.1)
        decayed, free = build_optimizer(config, build_network(config)).param_groups
        assert decayed["weight_decay"] == 0.1
        assert free["weight_decay"] == 0
        assert len(free["params"]) == 1  # of the one hidden layer


@pytest.mark.parametrize(("decay_scales", "factor"), [(False, 1.0), (True, 1 - 0.5 * 0.1)])
def test_scales_decay_if_they_are_asked_to(decay_scales, factor):
    """A step without gradients is the decay alone: learning rate times weight decay times the parameter."""
    config = replace(SMALL, weight_decay=0.1, learning_rate=0.5, momentum=0.0, decay_scales=decay_scales)
    network = build_network(config)
    optimizer = build_optimizer(config, network)
    before = {name: parameter.detach().clone() for name, parameter in network.named_parameters()}
    for parameter in network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    scales = [name for name in before if name.endswith(".scale")]
    assert len(scales) == 1  # of the one hidden layer
    for name, parameter in network.named_parameters():
        expected = before[name] * (factor if name in scales else 0.95)
        # Three roundings of float32: of the rate, the product and the sum.
        torch.testing.assert_close(parameter.detach(), expected, rtol=3 * torch.finfo(torch.float32).eps, atol=0)


@pytest.mark.parametrize("method", ["plain", "orth-reg", "olm"])
def test_other_methods_and_adam(method, images, tmp_path):
    config = replace(SMALL, method=method, method_options={}, optimizer="adam", learning_rate=0.01, epochs=1)
    assert train_quietly(config, tmp_path, images).metrics["status"] == "finished"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": 101}, "larger than the 100 training samples"),
        ({"validation": 100}, "more than the 100 training"),
        ({"samples": 90, "validation": 11}, "more than the 100 training"),
    ],
)
def test_impossible_splits(change, message, images, tmp_path):
    with pytest.raises(ValueError, match=message):
        train_quietly(replace(SMALL, **change), tmp_path, images)


def test_impossible_hardware():
    with pytest.raises(ValueError, match="unknown strategy 'fsdp'; did you mean 'fsdp2'"):
        Hardware(strategy="fsdp")
    with pytest.raises(ValueError, match="devices must be at least 1"):
        Hardware(devices=0)


@pytest.mark.parametrize("kind", ["lines", "json", "bar"])
def test_progress(kind, images, tmp_path, capsys):
    train_quietly(SMALL, tmp_path, images, progress=kind)
    shown = capsys.readouterr()
    if kind == "json":
        events = [json.loads(line)["event"] for line in shown.out.splitlines()]
        # These are nobody's official data, of which a process warns once.
        assert [event for event in events if event != "warning"] == ["start", "epoch", "epoch", "end"]
    else:
        assert shown.out == ""
        assert ": finished" in shown.err.splitlines()[-1]
        assert ("epoch 2: train loss" in shown.err) == (kind == "lines")
