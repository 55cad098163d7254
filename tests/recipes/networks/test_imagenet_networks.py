"""VGG-16 and the ResNets: torchvision's keys and shapes, published sizes, ResNetVar, which layers a method changes."""

import pytest
import torch
from torch import nn

from oni.nn.from_proxy import FromProxy
from oni.recipes.networks.registry import NETWORKS, find_plain_layers
from oni.recipes.networks.resnet_imagenet import resnet18, resnet50, resnet101
from oni.recipes.networks.vgg16 import VGG16
from oni.recipes.run_files.config import Config
from oni.recipes.tasks.classification import build_network

# The state dicts that torchvision's models/vgg.py and models/resnet.py build; read_keys adds biases and statistics.
VGG16_KEYS = """
features.0 64 3 3 3; features.2 64 64 3 3; features.5 128 64 3 3; features.7 128 128 3 3; features.10 256 128 3 3;
features.12 256 256 3 3; features.14 256 256 3 3; features.17 512 256 3 3; features.19 512 512 3 3;
features.21 512 512 3 3; features.24 512 512 3 3; features.26 512 512 3 3; features.28 512 512 3 3;
classifier.0 4096 25088; classifier.3 4096 4096; classifier.6 1000 4096
"""
RESNET18_KEYS = """
conv1 64 3 7 7; bn1 64;
layer1.0.conv1 64 64 3 3; layer1.0.bn1 64; layer1.0.conv2 64 64 3 3; layer1.0.bn2 64;
layer1.1.conv1 64 64 3 3; layer1.1.bn1 64; layer1.1.conv2 64 64 3 3; layer1.1.bn2 64;
layer2.0.conv1 128 64 3 3; layer2.0.bn1 128; layer2.0.conv2 128 128 3 3; layer2.0.bn2 128;
layer2.0.downsample.0 128 64 1 1; layer2.0.downsample.1 128;
layer2.1.conv1 128 128 3 3; layer2.1.bn1 128; layer2.1.conv2 128 128 3 3; layer2.1.bn2 128;
layer3.0.conv1 256 128 3 3; layer3.0.bn1 256; layer3.0.conv2 256 256 3 3; layer3.0.bn2 256;
layer3.0.downsample.0 256 128 1 1; layer3.0.downsample.1 256;
layer3.1.conv1 256 256 3 3; layer3.1.bn1 256; layer3.1.conv2 256 256 3 3; layer3.1.bn2 256;
layer4.0.conv1 512 256 3 3; layer4.0.bn1 512; layer4.0.conv2 512 512 3 3; layer4.0.bn2 512;
layer4.0.downsample.0 512 256 1 1; layer4.0.downsample.1 512;
layer4.1.conv1 512 512 3 3; layer4.1.bn1 512; layer4.1.conv2 512 512 3 3; layer4.1.bn2 512;
fc 1000 512
"""
# Of a bottleneck: the first block of each stage, and one of the others.
BOTTLENECKS = """
layer1.0.conv1 64 64 1 1; layer1.0.bn1 64; layer1.0.conv2 64 64 3 3; layer1.0.bn2 64; layer1.0.conv3 256 64 1 1;
layer1.0.bn3 256; layer1.0.downsample.0 256 64 1 1; layer1.0.downsample.1 256;
layer1.+.conv1 64 256 1 1; layer1.+.bn1 64; layer1.+.conv2 64 64 3 3; layer1.+.bn2 64; layer1.+.conv3 256 64 1 1;
layer1.+.bn3 256;
layer2.0.conv1 128 256 1 1; layer2.0.bn1 128; layer2.0.conv2 128 128 3 3; layer2.0.bn2 128; layer2.0.conv3 512 128 1 1;
layer2.0.bn3 512; layer2.0.downsample.0 512 256 1 1; layer2.0.downsample.1 512;
layer2.+.conv1 128 512 1 1; layer2.+.bn1 128; layer2.+.conv2 128 128 3 3; layer2.+.bn2 128; layer2.+.conv3 512 128 1 1;
layer2.+.bn3 512;
layer3.0.conv1 256 512 1 1; layer3.0.bn1 256; layer3.0.conv2 256 256 3 3; layer3.0.bn2 256; layer3.0.conv3 1024 256 1 1;
layer3.0.bn3 1024; layer3.0.downsample.0 1024 512 1 1; layer3.0.downsample.1 1024;
layer3.+.conv1 256 1024 1 1; layer3.+.bn1 256; layer3.+.conv2 256 256 3 3; layer3.+.bn2 256;
layer3.+.conv3 1024 256 1 1; layer3.+.bn3 1024;
layer4.0.conv1 512 1024 1 1; layer4.0.bn1 512; layer4.0.conv2 512 512 3 3; layer4.0.bn2 512;
layer4.0.conv3 2048 512 1 1; layer4.0.bn3 2048; layer4.0.downsample.0 2048 1024 1 1; layer4.0.downsample.1 2048;
layer4.+.conv1 512 2048 1 1; layer4.+.bn1 512; layer4.+.conv2 512 512 3 3; layer4.+.bn2 512;
layer4.+.conv3 2048 512 1 1; layer4.+.bn3 2048
"""


def read_keys(text, counts=()):
    """Every key of a state dict with its shape; ``+`` stands for all blocks of a stage but the first."""
    keys = {}
    for entry in text.replace("\n", " ").split(";"):
        name, *sizes = entry.split()
        shape = tuple(map(int, sizes))
        numbers = range(1, counts[int(name[5]) - 1]) if "+" in name else [0]
        for number in numbers:
            layer = name.replace("+", str(number))
            keys[f"{layer}.weight"] = shape
            if len(shape) == 1:
                keys |= {f"{layer}.{part}": shape for part in ("bias", "running_mean", "running_var")}
                keys[f"{layer}.num_batches_tracked"] = ()
            elif len(shape) == 2 or layer.startswith("features"):
                keys[f"{layer}.bias"] = shape[:1]
    return keys


def bottleneck_keys(*counts):
    return read_keys(f"conv1 64 3 7 7; bn1 64; {BOTTLENECKS}; fc 1000 2048", counts)


@pytest.mark.parametrize(
    ("build", "keys", "parameters"),
    [
        (VGG16, read_keys(VGG16_KEYS), 138_357_544),
        (resnet18, read_keys(RESNET18_KEYS), 11_689_512),
        (resnet50, bottleneck_keys(3, 4, 6, 3), 25_557_032),
        (resnet101, bottleneck_keys(3, 4, 23, 3), 44_549_160),
    ],
    ids=["vgg16", "resnet18", "resnet50", "resnet101"],
)
def test_a_checkpoint_of_torchvision_loads(build, keys, parameters):
    with torch.device("meta"):
        net = build()
    assert {name: tuple(value.shape) for name, value in net.state_dict().items()} == keys
    # The published sizes.
    assert sum(parameter.numel() for parameter in net.parameters()) == parameters
    state = {name: torch.empty(shape, device="meta") for name, shape in keys.items()}
    assert build_on_meta(build).load_state_dict(state, assign=True).missing_keys == []


def build_on_meta(build):
    with torch.device("meta"):
        return build()


def count(net, kind):
    return sum(isinstance(module, kind) for module in net.modules())


@pytest.mark.parametrize(("build", "convolutions"), [(resnet18, 20), (resnet50, 53), (resnet101, 104)])
def test_normalisations(build, convolutions):
    with torch.device("meta"):
        usual, bare, variant = build(), build(norm="none"), build(variant=True)
    assert [count(net, nn.Conv2d) for net in (usual, bare, variant)] == [convolutions] * 3
    # ResNetVar has none in the stem and one more at the end.
    assert [count(net, nn.BatchNorm2d) for net in (usual, bare, variant)] == [convolutions, 0, convolutions]
    with pytest.raises(ValueError, match='variant=True moves normalisation layers, so it needs norm="batch"'):
        build(norm="none", variant=True)


def test_the_block_of_resnetvar_against_its_formula():
    torch.manual_seed(0)
    net = resnet18(variant=True, width=4, classes=3).double()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight)
            nn.init.normal_(module.bias)
    block, same = net.layer2[0], net.layer2[1]
    x = torch.randn(3, 4, 8, 8, dtype=torch.float64)
    shortcut = block.downsample[1](block.downsample[0](x))
    inside = block.conv2(block.bn2(torch.relu(block.conv1(block.bn1(x)))))
    out = torch.relu(inside + shortcut)
    assert torch.equal(block(x), out)
    assert torch.equal(same(out), torch.relu(same.conv2(same.bn2(torch.relu(same.conv1(same.bn1(out))))) + out))
    assert block.bn1.num_features == 4
    assert isinstance(net.bn1, nn.Identity)
    images = torch.randn(2, 3, 64, 64, dtype=torch.float64)
    features = net.layer4(net.layer3(net.layer2(net.layer1(net.maxpool(torch.relu(net.conv1(images)))))))
    assert torch.equal(net(images), net.fc(net.last_norm(features).mean((2, 3))))


def test_the_block_of_resnet_against_its_formula():
    torch.manual_seed(0)
    net = resnet50(width=4, classes=3).double()
    block = net.layer2[0]
    x = torch.randn(3, 16, 8, 8, dtype=torch.float64)
    inside = torch.relu(block.bn2(block.conv2(torch.relu(block.bn1(block.conv1(x))))))
    assert block.conv2.stride == (2, 2)
    assert torch.equal(block(x), torch.relu(block.bn3(block.conv3(inside)) + block.downsample(x)))


@pytest.mark.parametrize(
    ("network", "options", "changed"),
    [
        ("vgg16", {"width": 2, "hidden": 4, "places": 1}, 13),
        ("resnet18", {"width": 2, "norm": "none"}, 20),
        ("resnet18", {"width": 2}, 20),
        # The three shortcuts stay plain, and in a network of bottlenecks the four.
        ("resnet18", {"width": 2, "variant": True}, 17),
        ("resnet50", {"width": 2, "variant": True}, 49),
    ],
)
@pytest.mark.parametrize("method", ["oni", "wn"])
def test_which_layers_a_method_changes(network, options, changed, method):
    config = Config(network=network, network_options={**options, "classes": 3}, method=method)
    net = build_network(config)
    steps = [module for module in net.modules() if isinstance(module, nn.utils.parametrize.ParametrizationList)]
    assert len(steps) == changed
    if method == "oni":
        assert all(isinstance(step[0], FromProxy) for step in steps)
    for name, module in net.named_modules():
        is_plain = isinstance(module, nn.Linear) or (options.get("variant") and name.endswith("downsample.0"))
        if isinstance(module, nn.Conv2d | nn.Linear):
            assert nn.utils.parametrize.is_parametrized(module) != is_plain, name


def test_the_output_layer_on_request():
    net = NETWORKS["vgg16"](width=2, hidden=4, places=1, classes=3)
    assert find_plain_layers(net) == ["classifier.0", "classifier.3", "classifier.6"]
    assert find_plain_layers(net, change_output=True) == ["classifier.0", "classifier.3"]


def test_small_networks_for_small_images():
    torch.manual_seed(0)
    net = VGG16(width=4, hidden=16, places=2, classes=5)
    assert net(torch.randn(2, 3, 64, 64)).shape == (2, 5)
    assert net.features[0].bias.abs().max() == 0
    deep = net.features[28]
    # He's by fan-out: variance 2 / (9 * 32 filters); 9,216 draws, five standard errors of a deviation.
    assert deep.weight.detach().std() == pytest.approx((2 / (9 * 32)) ** 0.5, rel=5 / (2 * 9216) ** 0.5)
    # Each linear layer passes on as much as one that starts as N(0, 0.01) at full size.
    first = net.classifier[0].weight.detach()
    assert first.std() == pytest.approx(0.01 * (25088 / 128) ** 0.5, rel=5 / (2 * first.numel()) ** 0.5)
    normalised = VGG16(width=4, hidden=16, places=2, norm="batch", classes=5)
    kinds = [type(layer) for layer in normalised.features[:7]]
    assert kinds == [*2 * [nn.Conv2d, nn.BatchNorm2d, nn.ReLU], nn.MaxPool2d]
    with torch.device("meta"):
        # torchvision's vgg16_bn: a factor and an offset for each of 4,224 filters more.
        large = VGG16(norm="batch")
    assert sum(parameter.numel() for parameter in large.parameters()) == 138_365_992
    assert "features.41.running_var" in large.state_dict()
    for build in (resnet18, resnet50):
        small = build(width=4, classes=5)
        assert small(torch.randn(2, 3, 64, 64)).shape == (2, 5)
        assert small.layer4[0].conv1.out_channels == 32


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: VGG16(width=0), "width must be at least 1, got 0"),
        (lambda: VGG16(places=0), "places must be at least 1, got 0"),
        (lambda: resnet18(width=0), "width must be at least 1, got 0"),
        (lambda: resnet50(norm="layer"), "norm must be one of 'none', 'batch', 'group', got 'layer'"),
    ],
)
def test_what_is_refused(build, complaint):
    with pytest.raises(ValueError, match=complaint):
        build()
