"""Classification of images: formats, scales started by data, momentum, and when it is measured."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from oni.recipes.data.tiny_images import make_images
from oni.recipes.networks.mlp import MLP
from oni.recipes.networks.resnet_cifar import ResNetCIFAR
from oni.recipes.networks.vgg import VGG
from oni.recipes.run_files.config import Config
from oni.recipes.tasks.classification import Classification, choose_memory_format
from oni.recipes.training.devices import Hardware, launch_fabric
from oni.recipes.training.run import train

CPU = torch.device("cpu")
CONFIG = Config(
    data="generated",
    network="vgg",
    network_options={"g": 1, "k": 1},
    momentum=0.9,
    batch_size=16,
    samples=48,
    validation=16,
    epochs=3,
    drops=(1,),
    augment=("flip-half", "crop-together"),
    normalise="mean-std",
    nesterov=True,
    reset_momentum=True,
    init_scale=True,
    measure_every=2,
    learning_rate=0.05,
)


def make_task(**changes):
    return Classification(replace(CONFIG, **changes), launch_fabric(Hardware("cpu"), "32-true"), make_images())


def test_channels_come_last_where_that_is_faster():
    last, contiguous = torch.channels_last, torch.contiguous_format
    assert choose_memory_format(VGG(1, 1), CPU) == choose_memory_format(ResNetCIFAR(1, norm="batch"), CPU) == last
    assert choose_memory_format(ResNetCIFAR(1, norm="group"), CPU) == contiguous
    assert choose_memory_format(MLP(1), CPU) == choose_memory_format(VGG(1, 1), torch.device("cuda")) == contiguous
    narrow, wide = (nn.Conv2d(channels, 8, 1, stride=2) for channels in (4, 8))
    assert choose_memory_format(narrow, CPU) == contiguous, "oneDNN for AVX2 writes past the end of its gradient"
    assert choose_memory_format(wide, CPU) == last
    task = make_task()
    seen = []
    task.models["network"].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    task.start_epoch(0, 0)
    task.train_step()
    task.measure()
    task.evaluate(task.parts.test)
    assert len(seen) > 1
    assert all(images.is_contiguous(memory_format=last) for images in seen)
    proxies = [module.parametrizations.weight.original for module in task.models["network"].features[::2]]
    assert all(proxy.is_contiguous() for proxy in proxies), "their matrices are then views"


def test_scales_start_from_data():
    network = make_task().models["network"]
    inputs, outputs = make_task().parts.train.batch(torch.arange(48))[0], []
    for layer in network.features[::2]:
        layer.register_forward_hook(lambda _, __, out: outputs.append(out.detach()))
    network(inputs)
    for out in outputs:
        # Without a bias only the variance is 1; float32.
        torch.testing.assert_close(out.std((0, 2, 3), correction=0), torch.ones(out.shape[1]), atol=1e-4, rtol=0)
    again, other = make_task().models["network"], make_task(seed=1).models["network"]
    scale = "features.0.parametrizations.weight.0.scale"
    assert torch.equal(network.get_parameter(scale), again.get_parameter(scale))
    assert not torch.equal(network.get_parameter(scale), other.get_parameter(scale))
    constant = make_task(init_scale=False).models["network"].get_parameter(scale)
    torch.testing.assert_close(constant, torch.full((32,), 2**0.5))
    with pytest.raises(ValueError, match="learnable scale"):
        make_task(method="plain", method_options={})


def test_small_branches_keep_the_sum_of_a_residual_network_near_1():
    options = {"network": "resnet-cifar", "network_options": {"blocks": 3}}
    sizes = {}
    for small in (False, True):
        task = make_task(**options, small_branches=small)
        network, outputs = task.models["network"], []
        network.blocks.register_forward_hook(lambda _, __, out, kept=outputs: kept.append(out.detach()))
        ends = [network.get_submodule(name) for name in network.branch_ends]
        branches = []
        for end in ends:
            end.register_forward_hook(lambda _, __, out, kept=branches: kept.append(out.detach()))
        network(task.parts.train.batch(torch.arange(48))[0])
        expected = 9**-0.5 if small else 1.0
        for out in branches:
            # Nine branches; statistics of float32.
            torch.testing.assert_close(
                out.std((0, 2, 3), correction=0), torch.full((out.shape[1],), expected), atol=1e-3, rtol=0
            )
        sizes[small] = outputs[0].square().mean().sqrt().item()
    assert sizes[True] < 1.5 < sizes[False]
    with pytest.raises(ValueError, match="small_branches=true needs a network with branch_ends; VGG has none"):
        make_task(small_branches=True)


def test_momentum_is_forgotten_when_the_rate_drops_and_only_then():
    task = make_task()
    optimizer = task.optimizers["network"].optimizer
    assert {group["nesterov"] for group in optimizer.param_groups} == {True}
    task.start_epoch(0, 0)
    task.train_step()
    assert optimizer.state
    task.start_epoch(1, 1)  # continued after an interruption, one step after the drop
    assert optimizer.state
    task.start_epoch(1, 0)
    assert not optimizer.state
    assert task.learning_rate == 0.025
    kept = make_task(reset_momentum=False)
    kept.start_epoch(0, 0)
    kept.train_step()
    kept.start_epoch(1, 0)
    assert kept.optimizers["network"].optimizer.state


class Cut(Exception):
    pass


def test_resumed_bit_for_bit_and_measured_when_asked(tmp_path, assert_equal_states):
    """Cut in the epoch after the drop: momentum, batches and scales are those of a run that was not."""
    config = replace(CONFIG, watch=("eye",))

    def cut(step, model):
        if step == 4:
            raise Cut

    options = {"progress": "none", "checkpoint_steps": 2}
    with pytest.raises(Cut):
        train(config, tmp_path / "cut", watch={"eye": cut}, **options)
    resumed = train(config, tmp_path / "cut", watch={"eye": lambda step, model: None}, **options)
    whole = train(config, tmp_path / "whole", watch={"eye": lambda step, model: None}, **options)

    def final_state(result):
        (path,) = result.folder.glob("checkpoint-*9-*.pt")
        return torch.load(path, weights_only=True)["task"]

    assert_equal_states(final_state(resumed), final_state(whole))
    for result in (resumed, whole):
        assert [row["test_error"] is None for row in result.epochs] == [True, False, False]
        assert [row["validation_loss"] is None for row in result.epochs] == [True, False, False]
        assert all(row["train_error"] is not None for row in result.epochs)
        assert result.metrics["test_error"] is not None
    assert [row["test_loss"] for row in resumed.epochs] == [row["test_loss"] for row in whole.epochs]


@pytest.mark.parametrize(("network", "sizes"), [("vgg", {"g": 1, "k": 1}), ("resnet-cifar", {"blocks": 1})])
def test_a_frozen_bias_is_never_trained(network, sizes):
    """Neither by its gradient nor by weight decay or momentum; the bias of the output layer is."""
    options = {**sizes, "frozen_bias": True}
    task = make_task(network=network, network_options=options, init_scale=False, weight_decay=0.1, momentum=0.9)
    output = task.models["network"].classifier.bias.clone()
    biases = [layer.bias.clone() for layer in task.models["network"].modules() if isinstance(layer, nn.Conv2d)]
    assert all(bias.any() for bias in biases)
    task.start_epoch(0, 0)
    for _ in range(2):
        task.train_step()
    after = [layer.bias for layer in task.models["network"].modules() if isinstance(layer, nn.Conv2d)]
    assert all(map(torch.equal, biases, after))
    assert not torch.equal(task.models["network"].classifier.bias, output)


def test_a_frozen_bias_excludes_a_trained_one():
    with pytest.raises(ValueError, match="exclude each other"):
        VGG(1, 1, bias=True, frozen_bias=True)
