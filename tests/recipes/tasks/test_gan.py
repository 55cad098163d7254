"""The task gan: what is updated with what, what is put on which layer, and how a run ends."""

import io
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.nn.utils import parametrize
from torch.testing import assert_close

import oni
import oni.models.cache
from oni.cli import main
from oni.recipes.data.images import Images
from oni.recipes.run_files.config import Config
from oni.recipes.run_files.run_folder import RunFolder
from oni.recipes.sheets import to_bytes, write_sheet
from oni.recipes.tasks.gan import GANTraining
from oni.recipes.tasks.gan_losses import LOSSES
from oni.recipes.tasks.gan_setup import build_gan
from oni.recipes.training.devices import Hardware, launch_fabric
from oni.recipes.training.run import train

EXAMPLE = Path(__file__).parents[3] / "examples" / "gan.yaml"
ONI = {"method": "oni-ns", "method_options": {"steps": 2, "learn_scale": False}}


def make_images(channels=1, size=28):
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (194, channels, size, size), dtype=torch.uint8, generator=generator)
    labels = torch.zeros(194, dtype=torch.uint8)
    return Images(pixels[:24], labels[:24], pixels[24:], labels[24:])


def make_config(**changes):
    options = {"n_dis": 2, "updates": 3, "distance_samples": 0, **changes.pop("task_options", {})}
    values = {
        "data": "fashion-mnist-sample",
        "task": "gan",
        "network": "dcgan",
        "network_options": {"width": 2, "channels": 1},
        **ONI,
        "optimizer": "adam",
        "learning_rate": 0.002,
        "batch_size": 4,
        "epochs": 2,
        "drops": (),
    }
    return Config(**{**values, **changes, "task_options": options})


def make_task(images=None, **changes):
    config = make_config(**changes)
    return GANTraining(config, launch_fabric(Hardware("cpu"), config.precision), images or make_images())


def test_losses():
    real, fake = torch.tensor([2.0, -1.0]), torch.tensor([0.5, -3.0])
    ones, zeros = torch.ones(2), torch.zeros(2)
    entropy = F.binary_cross_entropy_with_logits
    d_loss, g_loss = LOSSES["non-saturating"]
    assert_close(d_loss(real, fake), entropy(real, ones) + entropy(fake, zeros))
    assert_close(g_loss(fake), entropy(fake, ones))
    d_loss, g_loss = LOSSES["hinge"]
    # (max(0, 1 - 2) + max(0, 1 + 1)) / 2 + (max(0, 1 + 0.5) + max(0, 1 - 3)) / 2
    assert d_loss(real, fake).item() == pytest.approx((0 + 2) / 2 + (1.5 + 0) / 2)
    assert g_loss(fake).item() == pytest.approx(1.25)


def kinds(discriminator):
    """What computes the weight of every layer."""
    return {
        name: type(module.parametrizations.weight[0]).__name__
        for name, module in discriminator.named_modules()
        if parametrize.is_parametrized(module)
    }


def test_what_is_on_which_layer():
    features = [f"features.{index}" for index in range(0, 14, 2)]
    gan = build_gan(make_config())
    assert kinds(gan.generator) == {}
    assert kinds(gan.discriminator) == {**dict.fromkeys(features, "Orthogonal"), "score": "_SpectralNorm"}
    assert not any("scale" in name for name, _ in gan.discriminator.named_parameters())
    whole = build_gan(make_config(change_output=True))
    assert kinds(whole.discriminator) == dict.fromkeys([*features, "score"], "Orthogonal")
    spectral = build_gan(make_config(method="sn", method_options={}))
    assert kinds(spectral.discriminator) == dict.fromkeys([*features, "score"], "_SpectralNorm")
    slip = build_gan(make_config(task_options={"first_layer": "unnormalised"}))
    assert kinds(slip.discriminator)["features.0"] == "Unnormalised"
    assert set(kinds(slip.discriminator).values()) == {"Unnormalised", "Orthogonal", "_SpectralNorm"}
    options = {"width": 2, "channels": 1}
    slip = build_gan(
        make_config(network="resnet-gan", network_options=options, task_options={"first_layer": "unnormalised"})
    )
    layers = kinds(slip.discriminator)
    assert [name for name, kind in layers.items() if kind == "Unnormalised"] == [
        "blocks.0.residual.0",
        "blocks.0.bypass.1",
    ]


def test_one_orthogonalisation_for_each_update(monkeypatch):
    task = make_task(task_options={"n_dis": 3})
    computed = []
    compute = oni.models.cache.orthogonalize_each
    monkeypatch.setattr(
        oni.models.cache, "orthogonalize_each", lambda Zs, **options: computed.append(len(Zs)) or compute(Zs, **options)
    )
    task.start_epoch(0, 0)
    task.train_step()
    # Seven convolutions, three updates of the discriminator and one of the generator.
    assert sum(computed) == 7 * (3 + 1)


def test_each_update_changes_its_own_network():
    task = make_task()
    task.start_epoch(0, 0)
    states = {name: [value.clone() for value in model.parameters()] for name, model in task.models.items()}

    def changed(name):
        return [not torch.equal(*pair) for pair in zip(task.models[name].parameters(), states[name], strict=True)]

    task.update_discriminator(next(task.real_images), 0)
    assert all(changed("discriminator"))
    assert not any(changed("generator"))
    states["discriminator"] = [value.clone() for value in task.models["discriminator"].parameters()]
    gradients = [value.grad.clone() for value in task.models["discriminator"].parameters()]
    task.update_generator()
    assert not any(changed("discriminator"))
    assert all(changed("generator"))
    for value, gradient in zip(task.models["discriminator"].parameters(), gradients, strict=True):
        assert value.requires_grad
        assert torch.equal(value.grad, gradient)


def test_what_a_method_adds_to_the_loss():
    """Of the discriminator's own layers, not of the last one with its spectral normalisation."""
    method = {"method": "orth-reg", "method_options": {"coefficient": 100.0}}
    task = make_task(**method)
    D = task.models["discriminator"]
    assert_close(task.method_loss(D), oni.baselines.penalty(D, 100.0, skip="score"))
    gradients = {}
    for name, loss in (("with", task.method_loss), ("without", None)):
        other = make_task(**method)
        other.start_epoch(0, 0)
        other.method_loss = loss and other.method_loss
        # Away from orthogonal, where the penalty has no gradient.
        nn.init.normal_(other.models["discriminator"].features[2].weight)
        other.update_discriminator(next(other.real_images), 0)
        gradients[name] = other.models["discriminator"].features[2].weight.grad
    assert gradients["with"].norm() > 10 * gradients["without"].norm()
    assert make_task().method_loss is None


@pytest.mark.parametrize("reuse", [False, True])
def test_real_images(monkeypatch, reuse):
    """Fresh ones for each update, pass after pass over all; or the same between two updates of the generator."""
    task = make_task(task_options={"reuse_batch": reuse, "updates": 6})
    seen = []
    monkeypatch.setattr(task, "update_discriminator", lambda real, number: seen.append(real.clone()))
    monkeypatch.setattr(task, "update_generator", lambda: None)
    for epoch in range(2):
        task.start_epoch(epoch, 0)
        for _ in range(6):
            task.train_step()
    assert len(seen) == 24
    assert seen[0].shape == (4, 1, 32, 32)
    # Black around 28 x 28 pixels, which are in [-1, 1].
    assert torch.equal(seen[0][:, :, :2], torch.full((4, 1, 2, 32), -1.0))
    assert {float(seen[0].min()), float(seen[0].max())} == {-1.0, 1.0}
    batches = seen[::2] if reuse else list(seen)
    assert all(torch.equal(a, b) for a, b in zip(seen[::2], seen[1::2], strict=True)) == reuse
    one_pass = torch.cat(batches[:6]).flatten(1)
    assert len(one_pass.unique(dim=0)) == 24, "all of them once"
    assert not torch.equal(batches[0], batches[6]), "in another order"
    # An interruption between two updates changes nothing.
    task.start_epoch(1, 2)
    seen.clear()
    task.train_step()
    later = batches[8] if reuse else batches[16]
    assert torch.equal(seen[0], later)


def test_the_learning_rate_falls():
    task = make_task(task_options={"epoch_decay": 0.5, "beta2": 0.8}, momentum=0.3)
    task.start_epoch(2, 0)
    for optimizer in task.optimizers.values():
        assert optimizer.param_groups[0]["lr"] == pytest.approx(0.002 / 4)
        assert optimizer.param_groups[0]["betas"] == (0.3, 0.8)


def test_moving_average():
    task = make_task(task_options={"ema": 0.75})
    task.start_epoch(0, 0)
    before = {name: value.clone() for name, value in task.average.items()}
    task.update_generator()
    now = task.models["generator"].state_dict()
    name = "layers.1.weight"
    assert_close(task.average[name], 0.75 * before[name] + 0.25 * now[name])
    assert torch.equal(task.average["layers.2.running_var"], now["layers.2.running_var"])
    averaged = task.generate(2)
    task.options["ema"] = 0.0
    assert not torch.equal(task.generate(2), averaged)


class Killed(Exception):
    pass


def kill_at(step):
    def look(done, model):
        if done == step:
            raise Killed

    return look


@pytest.mark.parametrize("network", ["dcgan", "resnet-gan"])
def test_interrupted_and_resumed_bit_for_bit(tmp_path, assert_equal_states, network):
    method, samples = (ONI, 0) if network == "dcgan" else ({"method": "sn", "method_options": {}}, 200)
    config = make_config(
        network=network, **method, watch=("end",), task_options={"loss": "hinge", "distance_samples": samples}
    )
    options = {"data": make_images(), "progress": "none", "checkpoint_steps": 2}
    with pytest.raises(Killed):
        train(config, tmp_path / "cut", watch={"end": kill_at(5)}, **options)
    cut = train(config, tmp_path / "cut", watch={"end": kill_at(-1)}, **options)
    whole = train(config, tmp_path / "whole", watch={"end": kill_at(-1)}, **options)
    assert [{**row, "seconds": 0} for row in cut.epochs] == [{**row, "seconds": 0} for row in whole.epochs]
    first, second = (
        RunFolder(tmp_path / name, config, options["data"].sha256).load_checkpoint(pytest.fail)
        for name in ("cut", "whole")
    )
    assert_equal_states(first["task"], second["task"])
    assert list(whole.metrics)[3:-1] == list(GANTraining.metrics)
    assert all(math.isfinite(whole.metrics[name]) for name in GANTraining.metrics[:-1])
    assert (whole.metrics["random_feature_distance"] is None) == (samples == 0)
    sheets = sorted((whole.folder / "samples").iterdir())
    assert [sheet.name for sheet in sheets] == ["update-0000003.png", "update-0000006.png"]
    # 8 x 8 images of 32 pixels, with two between them.
    assert Image.open(io.BytesIO(sheets[0].read_bytes())).size == (8 * 34 - 2, 8 * 34 - 2)
    assert sheets[1].read_bytes() == (cut.folder / "samples" / sheets[1].name).read_bytes()


def test_divergence_is_a_result(tmp_path):
    config = make_config(learning_rate=1e30, epochs=1)
    result = train(config, tmp_path, data=make_images(), progress="none")
    assert result.diverged
    assert result.metrics["g_loss"] is None
    again = train(config, tmp_path, data=make_images(), progress="none")
    assert not again.trained


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"task_options": {"loss": "wasserstein"}}, "unknown task_options.loss 'wasserstein'; choose from non-satur"),
        ({"task_options": {"first_layer": "authors"}}, "unknown task_options.first_layer 'authors'"),
        ({"task_options": {"n_dis": 0}}, "task_options.n_dis must be a whole number of at least 1, got 0"),
        ({"task_options": {"updates": 1.5}}, "task_options.updates must be a whole number of at least 0, got 1.5"),
        (
            {"task_options": {"distance_samples": 160}},
            "distance_samples must be 0 or exceed the 160 random features",
        ),
        ({"task_options": {"ema": 1}}, "task_options.ema must be at least 0 and below 1, got 1"),
        ({"task_options": {"reuse_batch": 1}}, "task_options.reuse_batch must be true or false, got 1"),
        ({"accumulate": 2}, "task 'gan' does not support accumulate=2; leave it at 1"),
        ({"normalise": "mean-std"}, "task 'gan' does not support normalise='mean-std'; leave it at 'mean'"),
        ({"network": "mlp", "network_options": {"depth": 2}}, "task 'gan' needs a generator and a discriminator"),
        (
            {"network_options": {"width": 2, "channels": 3}},
            "have 1 channels, but the networks have 3; pass network_options.ch",
        ),
        (
            {"method": "sn", "method_options": {}, "task_options": {"first_layer": "unnormalised"}},
            "first_layer=unnormalised needs method oni, got method='sn'",
        ),
    ],
)
def test_what_is_refused(tmp_path, changes, complaint):
    with pytest.raises(ValueError, match=complaint):
        train(make_config(**changes), tmp_path, data=make_images(), progress="none")
    assert not any(tmp_path.iterdir())


def test_the_example(tmp_path, capsys):
    small = [
        "epochs=1",
        "task_options.updates=2",
        "task_options.distance_samples=0",
        "samples=64",
        "network_options.width=2",
    ]
    assert main(["train", str(EXAMPLE), "--out", str(tmp_path), "--plain", *small]) == 0
    (run,) = tmp_path.iterdir()
    assert str(run) in capsys.readouterr().out
    assert json.loads((run / "config.json").read_text())["task_options"]["loss"] == "hinge"
    assert [sheet.name for sheet in (run / "samples").iterdir()] == ["update-0000002.png"]


def test_images_that_are_too_large():
    with pytest.raises(ValueError, match="images must be at most 32 x 32 for a GAN, got 40 x 40"):
        next(make_task(make_images(size=40)).read_images(0))


def test_sheets():
    images = to_bytes(torch.linspace(-1, 1, 3 * 2 * 4).reshape(3, 2, 2, 2)[:, :1])
    sheet = Image.open(io.BytesIO(write_sheet(images, 2)))
    assert sheet.size == (6, 6)
    assert sheet.getpixel((0, 0)) == 0
    assert sheet.getpixel((2, 0)) == 255, "white between images"
    assert sheet.getpixel((5, 5)) == 255, "and where there is none"
    bad = torch.zeros(3, 1, 2, 2)
    bad[1, 0, 0, 0] = math.nan
    with pytest.raises(ValueError, match="1 of 3 images contain NaN or infinity: 1; the generator diverged"):
        to_bytes(bad)
