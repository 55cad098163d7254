"""Runs on folders of images: top-5 errors, batches in parts, images that can't be read, interruptions, compilation."""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oni.cli import main
from oni.recipes.data.datasets import load_dataset
from oni.recipes.data.image_folder import load
from oni.recipes.data.tiny_folder import write_folder
from oni.recipes.run_files.config import Config
from oni.recipes.run_files.overrides import apply_changes
from oni.recipes.run_files.run_folder import RunFolder
from oni.recipes.tasks.classification import Classification, build_network
from oni.recipes.training.devices import Hardware, launch_fabric
from oni.recipes.training.run import find_result, train

CONFIG = Config(
    data="generated-folder",
    network="resnet18",
    network_options={"width": 4, "norm": "none", "classes": 8},
    method="oni",
    method_options={"steps": 2},
    learning_rate=0.05,
    momentum=0.9,
    weight_decay=1e-4,
    batch_size=16,
    epochs=2,
    drops=(1,),
    normalise="mean-std",
    augment=("resized-crop", "flip"),
    precision="64-true",
)


DENSE = replace(
    CONFIG, network="mlp", network_options={"depth": 1, "width": 8, "inputs": 3072, "classes": 8}, method_options={}
)
"""Without convolutions, whose many calls take most of the time."""


def last_state(result):
    return RunFolder(result.folder.parent, result.config).load_checkpoint(pytest.fail)["task"]["models"]["network"]


def without_times(rows):
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]


def test_top5_against_a_count_of_its_own(tmp_path):
    result = train(replace(DENSE, epochs=1), tmp_path, progress="none")
    network = build_network(result.config)
    network.load_state_dict(last_state(result))
    task = Classification(result.config, launch_fabric(Hardware("cpu"), "64-true"), load_dataset("generated-folder"))
    images, labels = task.parts.test.batch(torch.arange(32))
    with torch.no_grad():
        ranked = network.eval()(images).argsort(1, descending=True)
    places = [row.index(label) for row, label in zip(ranked.tolist(), labels.tolist(), strict=True)]
    assert result.metrics["test_top5_error"] == sum(place >= 5 for place in places) / 32
    assert result.metrics["test_error"] == sum(place >= 1 for place in places) / 32
    assert 0 < result.metrics["test_top5_error"] < result.metrics["test_error"]


@pytest.mark.parametrize("method", ["oni", "orth-reg"])
def test_a_batch_in_parts_is_the_whole_batch(method, tmp_path):
    whole = replace(DENSE, method=method, method_options={})
    results = [train(replace(whole, accumulate=parts), tmp_path, progress="none") for parts in (1, 4)]
    for name, value in results[0].metrics.items():
        if name not in ("status", "seconds") and value is not None:
            # float64: means of parts are added in another order, in ten steps one after the other.
            assert results[1].metrics[name] == pytest.approx(value, rel=1e-9), name
    assert_close(last_state(results[1]), last_state(results[0]), rtol=1e-9, atol=1e-11)
    assert results[0].config.hash != results[1].config.hash
    with pytest.raises(ValueError, match="batch_size=16 can't be split equally over 1 processes in 3 parts each"):
        train(replace(whole, accumulate=3), tmp_path, progress="none")


@pytest.fixture
def spoilt(tmp_path):
    """A folder in which two training images and a test image can't be read."""
    folder = tmp_path / "images"
    write_folder(folder)
    for name in ("train/class-0/3.png", "train/class-5/0.png", "val/class-7/1.png"):
        (folder / name).write_bytes((folder / name).read_bytes()[:500])
    return folder


def test_unreadable_images_are_named_and_counted(spoilt, tmp_path, capfd):
    options = {"size": 32, "resize": 36, "unreadable": "skip"}
    config = replace(DENSE, data="image-folder", data_options=options, accumulate=2)
    data = load(spoilt, **options, cache=tmp_path)
    result = train(config, tmp_path, data=data, progress="none")
    printed = capfd.readouterr().err
    # Each once, though it is met in every epoch.
    for name in ("train/class-0/3.png", "train/class-5/0.png", "val/class-7/1.png"):
        assert printed.count(f"warning: left out: {spoilt / name}: ") == 1
    assert [row["unreadable"] for row in result.epochs] == [3, 3]
    # In parts or whole, a missing image counts for nothing.
    whole = train(replace(config, accumulate=1), tmp_path, data=data, progress="none")
    assert_close(last_state(whole), last_state(result), rtol=1e-9, atol=1e-11)
    assert result.metrics["train_loss"] == pytest.approx(whole.metrics["train_loss"], rel=1e-9)


EXAMPLE = Path(__file__).parents[3] / "examples" / "image_folder.yaml"


@pytest.mark.skipif(not EXAMPLE.exists(), reason="the examples are not part of the installed package")
def test_the_example_ends_at_unreadable_images_unless_asked(spoilt, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    command = ["train", str(EXAMPLE), "--data", str(spoilt), "--out", str(tmp_path / "runs"), "--plain"]
    command += ["network_options.width=2", "data_options.size=32", "batch_size=16", "epochs=2", "drops=1"]
    eight = "network_options.classes=8"
    assert main([*command, eight, "data_options.unreadable=error", "--workers", "1"]) == 2
    error = capsys.readouterr().err
    assert "class-0/3.png: " in error or "class-5/0.png: " in error
    assert "pass data_options.unreadable=skip to leave it out" in error
    assert "Traceback" not in error
    assert main([*command, eight]) == 0
    assert "lowest test_top5_error, in epoch" in capsys.readouterr().out
    assert main([*command, eight, "--json"]) == 0
    lowest = json.loads(capsys.readouterr().out.splitlines()[-1])["lowest"]
    (folder,) = (tmp_path / "runs").glob("*/epochs.csv")
    rows = [line.split(",") for line in folder.read_text().splitlines()]
    errors = [float(row[rows[0].index("test_error")]) for row in rows[1:]]
    assert lowest["test_error"] == {"epoch": errors.index(min(errors)) + 1, "value": min(errors)}
    assert [path.suffix for path in (tmp_path / "cache" / "oni").iterdir()] == [".index"]
    assert main(command) == 2
    assert (
        "the data have 8 classes, but the network has 1000; pass network_options.classes=8" in capsys.readouterr().err
    )


def test_no_image_at_all(spoilt, tmp_path):
    for path in (spoilt / "val").rglob("*.png"):
        path.write_bytes(b"")
    options = {"size": 32, "resize": 36, "unreadable": "skip"}
    config = replace(DENSE, data="image-folder", data_options=options, epochs=1, drops=())
    with pytest.raises(ValueError, match="no sample could be read"):
        train(config, tmp_path, data=load(spoilt, **options, cache=tmp_path), progress="none")


def test_resume_within_an_epoch_with_workers(tmp_path, assert_equal_states):
    """An interrupted run that decodes in two processes, and one that never was, in its own."""

    def cut(step, model):
        if step == 7:
            raise RuntimeError("cut")

    config = replace(CONFIG, precision="32-true", watch=("eye",))
    hardware = Hardware("cpu", workers=2)
    with pytest.raises(RuntimeError, match="cut"):
        train(config, tmp_path / "cut", hardware=hardware, watch={"eye": cut}, progress="none", checkpoint_steps=3)
    resumed = train(config, tmp_path / "cut", hardware=hardware, watch={"eye": lambda *_: None}, progress="none")
    whole = train(
        config,
        tmp_path / "whole",
        hardware=Hardware("cpu", workers=0),
        watch={"eye": lambda *_: None},
        progress="none",
    )
    sessions = RunFolder(tmp_path / "cut", config).read("run.json")["sessions"]
    assert [session["from_step"] for session in sessions] == [0, 6]
    assert without_times(resumed.epochs) == without_times(whole.epochs)
    assert_equal_states(last_state(resumed), last_state(whole))


@pytest.mark.filterwarnings("ignore")  # torch.compile's own code uses what torch deprecates
def test_compiled_networks_train_alike(tmp_path, monkeypatch):
    # Traced, but without the minutes of compiling.
    monkeypatch.setattr(nn.Module, "compile", functools.partialmethod(nn.Module.compile, backend="eager"))
    config = replace(DENSE, accumulate=2)
    plain = train(config, tmp_path / "plain", progress="none")
    compiled = train(config, tmp_path / "compiled", hardware=Hardware("cpu", compile=True), progress="none")
    assert list(last_state(compiled)) == list(last_state(plain))
    # float64, with the same products in another order.
    assert_close(last_state(compiled), last_state(plain), rtol=1e-9, atol=1e-11)


WORKER = Path(__file__).parents[1] / "training" / "train_worker.py"
spec = importlib.util.spec_from_file_location("train_worker_for_images", WORKER)
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)


def test_two_processes_with_shards_and_batches_in_parts(tmp_path):
    changes = [
        "data=generated-folder", "network=resnet18", "network_options.width=4", "network_options.norm=none",
        "network_options.classes=8", "batch_size=16", "samples=0", "validation=15", "epochs=1", "drops=",
        "accumulate=2", "normalise=mean-std", "augment=resized-crop,flip", "precision=64-true",
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, str(WORKER), str(tmp_path / "two"), "fsdp2", *changes]
    both = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert both.returncode == 0, both.stderr
    config = apply_changes(worker.BASE, changes)
    alone = train(config, tmp_path / "one", watch={"eye": worker.eye("whole", 0)}, progress="none")
    together = find_result(config, tmp_path / "two")
    for name, value in alone.metrics.items():
        if name not in ("status", "seconds") and value is not None:
            # float64: gradients and losses are summed in another order, four steps one after the other.
            assert together.metrics[name] == pytest.approx(value, rel=1e-9), name
    assert_close(last_state(together), last_state(alone), rtol=1e-9, atol=1e-11)
