import itertools
from collections import Counter

import pytest
import torch
from torch import nn

import oni
from oni.recipes.networks import resnet_gan
from oni.recipes.networks.dcgan import LATENT, Discriminator, Generator, dcgan
from oni.recipes.networks.gan import image_layers
from oni.recipes.networks.mlp import MLP
from oni.recipes.networks.normalisation import norm_layer
from oni.recipes.networks.patch_mix import MixBlock, PatchMix
from oni.recipes.networks.resnet_cifar import ResNetCIFAR, resnet110
from oni.recipes.networks.resnet_imagenet import resnet18, resnet50
from oni.recipes.networks.vgg import VGG
from oni.recipes.networks.vgg16 import VGG16

CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)


def parameters(net):
    return sum(parameter.numel() for parameter in net.parameters())


def convolutions(net):
    return [module for module in net.modules() if isinstance(module, CONVOLUTIONS)]


def maps(net, *shape):
    """The output shape of every convolution, in the order of use."""
    seen = []
    for conv in convolutions(net):
        conv.register_forward_hook(lambda module, given, out: seen.append(tuple(out.shape[1:])))
    with torch.no_grad():
        net(torch.randn(1, *shape))
    return seen


@pytest.mark.parametrize("bias", [True, False])
def test_mlp(bias):
    net = MLP(20, bias=bias)
    weights = 784 * 256 + 19 * 256**2 + 256 * 10
    assert parameters(net) == weights + (20 * 256 if bias else 0) + 10
    assert net(torch.randn(3, 1, 28, 28)).shape == (3, 10)
    linear = [layer for layer in net.layers if isinstance(layer, nn.Linear)]
    assert len(linear) == 21
    assert [type(layer) for layer in net.layers[2:-1:2]] == 20 * [nn.ReLU]


def test_mlp_with_batch_normalisation():
    net = MLP(3, width=16, inputs=12, norm="batch")
    kinds = [type(layer) for layer in net.layers]
    assert kinds == [nn.Flatten, *3 * [nn.Linear, nn.BatchNorm1d, nn.ReLU], nn.Linear]
    hidden = net.layers[:3](torch.randn(64, 12))
    # Normalised per feature; BatchNorm's eps of 1e-5 takes a little off a variance of about 1/3.
    torch.testing.assert_close(hidden.mean(0), torch.zeros(16), atol=1e-6, rtol=0)
    torch.testing.assert_close(hidden.std(0, unbiased=False), torch.ones(16), atol=1e-3, rtol=0)
    assert list(MLP(3, norm="none").state_dict()) == list(MLP(3).state_dict())


def test_mlp_with_groupsort():
    net = MLP(2, width=16, inputs=12, norm="batch", activation="groupsort")
    kinds = [type(layer) for layer in net.layers]
    assert kinds == [nn.Flatten, *2 * [nn.Linear, nn.BatchNorm1d, oni.nn.GroupSort], nn.Linear]
    torch.manual_seed(1)
    first = MLP(2)
    torch.manual_seed(1)
    second = MLP(2, activation="groupsort")
    # The same start, so that runs differ by the activation alone.
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("pooling", ["none", "sum"])
def test_patch_mix(pooling):
    width, depth, patch, size = 48, 2, 4, 16
    net = PatchMix(width, depth, patch=patch, size=size, classes=7, pooling=pooling)
    tokens = 16
    patches = 3 * patch**2 * width + width
    mixing = 2 * (tokens**2 + tokens + width**2 + width)
    inputs = width if pooling == "sum" else tokens * width
    assert parameters(net) == patches + depth * mixing + 7 * inputs + 7
    assert maps(net, 3, size, size) == [(width, 4, 4)]
    assert net(torch.randn(2, 3, size, size)).shape == (2, 7)
    assert PatchMix(depth=1, size=28, channels=1)(torch.randn(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("pooling", ["none", "sum"])
def test_patch_mix_is_1_lipschitz_and_some_inputs_keep_their_distance(pooling):
    net = oni.convert(PatchMix(48, 1, size=16, pooling=pooling), steps=12, center=False).double()
    bound = float(oni.diagnostics.lipschitz_bound(net, (3, 16, 16)))
    # Orthogonal weights, as far as 12 steps take these.
    assert bound == pytest.approx(1, abs=1e-3)
    features = nn.Sequential(net.patches, nn.Flatten(2), net.blocks)
    x = torch.randn(4, 3, 16, 16, dtype=torch.float64)
    sigma = oni.diagnostics.jacobian_spectrum(features, x).sigma
    assert float(sigma.max()) <= bound
    # Blocks that turned what they mix away from what they are averaged with would halve lengths twice.
    assert float(sigma.median()) > 0.7
    # Tokens that agree keep their length when they are summed.
    alike = torch.randn(1, 48, 1, dtype=torch.float64).expand(1, 48, 16)
    pooled = alike.sum(2) / 4 if pooling == "sum" else alike.flatten(1)
    torch.testing.assert_close(pooled.norm(), alike.norm())


def test_a_block_mixes_tokens_and_channels():
    block = MixBlock(4, 6).double()
    x = torch.randn(2, 4, 6, dtype=torch.float64)

    def run(layers, x):
        h = torch.einsum("ij,...j->...i", layers[0].weight, x) + layers[0].bias
        return h, lambda y: torch.einsum("ij,...j->...i", layers[2].weight, y) + layers[2].bias

    h, after = run(block.tokens, x)
    pairs = h.unflatten(1, (2, 2)).sort(2).values.flatten(1, 2)  # of channels, which are on axis 1
    middle = (x + after(pairs)) / 2
    h, after = run(block.channels, middle.mT)
    expected = (middle + after(h.unflatten(2, (2, 2)).sort(3).values.flatten(2)).mT) / 2
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize(("g", "k"), [(2, 1), (3, 2), (4, 3)])
def test_vgg(g, k):
    net = VGG(g, k)
    a, b, c = 32 * k, 64 * k, 128 * k
    weights = 9 * (3 * a + g * a * a + (a + (g - 1) * b) * b + (b + (g - 1) * c) * c)
    assert parameters(net) == weights + c * 10 + 10
    assert len(convolutions(net)) == 3 * g + 1
    assert maps(net, 3, 32, 32) == [(a, 32, 32)] * (g + 1) + [(b, 16, 16)] * g + [(c, 8, 8)] * g
    # He's by fan-out: variance 2 / (9 filters).
    assert convolutions(net)[-1].weight.detach().std() == pytest.approx((2 / (9 * c)) ** 0.5, rel=0.05)
    assert net(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert parameters(VGG(g, k, bias=True)) - parameters(net) == (g + 1) * a + g * b + g * c


def test_vgg_with_normalisation():
    kinds = [type(layer) for layer in VGG(1, 1, norm="batch").features]
    assert kinds == 4 * [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    groups = [layer.num_groups for layer in VGG(1, 1, norm="group", groups=64).features[1::3]]
    assert groups == [32, 32, 64, 64]
    assert list(VGG(1, 1, norm="none").state_dict()) == list(VGG(1, 1).state_dict())


@pytest.mark.parametrize("norm", ["none", "batch", "group"])
def test_resnet110(norm):
    net = resnet110(norm=norm)
    assert len(convolutions(net)) == 109
    weights = 9 * (3 * 16 + 36 * 16**2 + 16 * 32 + 35 * 32**2 + 32 * 64 + 35 * 64**2)
    filters = 37 * 16 + 36 * 32 + 36 * 64
    # A bias each without normalisation; a factor and an offset with it.
    assert parameters(net) == weights + filters * (1 if norm == "none" else 2) + 650
    if norm == "none":
        assert maps(net, 3, 32, 32) == [(16, 32, 32)] * 37 + [(32, 16, 16)] * 36 + [(64, 8, 8)] * 36
    kinds = Counter(type(module) for module in net.modules())
    assert kinds[nn.BatchNorm2d] == (109 if norm == "batch" else 0)
    assert kinds[nn.GroupNorm] == (109 if norm == "group" else 0)


def test_resnet_with_frozen_biases():
    torch.manual_seed(0)
    trained = ResNetCIFAR(2)
    torch.manual_seed(0)
    frozen = ResNetCIFAR(2, frozen_bias=True)
    assert [name for name, parameter in frozen.named_parameters() if not parameter.requires_grad] == [
        f"{name}.bias" for name, module in frozen.named_modules() if isinstance(module, nn.Conv2d)
    ]
    assert all(parameter.requires_grad for parameter in trained.parameters())
    # They are where torch's start leaves them, as are all other parameters.
    for name, parameter in trained.named_parameters():
        assert torch.equal(parameter, frozen.get_parameter(name)), name
    assert all(convolution.bias.any() for convolution in convolutions(frozen))
    for norm in ("batch", "group"):
        with pytest.raises(ValueError, match=f"frozen_bias=True needs norm=\"none\", got norm='{norm}'"):
            ResNetCIFAR(2, norm=norm, frozen_bias=True)


def test_option_a_shortcut():
    block = ResNetCIFAR(1).blocks[1]
    x = torch.rand(2, 16, 8, 8)
    out = block.shortcut(x)
    assert out.shape == (2, 32, 4, 4)
    assert torch.equal(out[:, :16], x[:, :, ::2, ::2])
    assert not out[:, 16:].any()
    for conv in (block.conv1, block.conv2):
        nn.init.zeros_(conv.weight)
        nn.init.zeros_(conv.bias)
    assert torch.equal(block(x), out)


@pytest.mark.parametrize(("build", "features"), [(resnet18, 512), (resnet50, 2048)])
def test_resnet_at_64(build, features):
    net = build(norm="group", classes=7)
    sizes = [shape[-1] for shape in maps(net, 3, 64, 64)]
    assert sizes[0] == 32
    assert set(sizes[1:]) == {16, 8, 4, 2}
    assert maps(net, 3, 96, 64)[-1][-2:] == (3, 2)
    assert net.fc.in_features == features
    assert net(torch.randn(2, 3, 64, 64)).shape == (2, 7)


def test_generator():
    net = Generator()
    images = net(torch.randn(2, LATENT))
    assert images.shape == (2, 3, 32, 32)
    assert images.abs().max() <= 1
    assert maps(net, LATENT) == [(512, 4, 4), (256, 8, 8), (128, 16, 16), (64, 32, 32), (3, 32, 32)]
    widths = [128, 512, 256, 128, 64]
    weights = 16 * sum(a * b for a, b in itertools.pairwise(widths)) + 9 * 64 * 3
    assert parameters(net) == weights + 3 * sum(widths[1:]) + 3


def test_discriminator():
    net = Discriminator()
    assert net(torch.randn(2, 3, 32, 32)).shape == (2,)
    expected = [(64, 32), (64, 16), (128, 16), (128, 8), (256, 8), (256, 4), (512, 4)]
    assert maps(net, 3, 32, 32) == [(width, size, size) for width, size in expected]
    widths = [3, 64, 64, 128, 128, 256, 256, 512]
    weights = sum(a * b * s * s for a, b, s in zip(widths, widths[1:], [3, 4, 3, 4, 3, 4, 3], strict=False))
    assert parameters(net) == weights + sum(widths[1:]) + 8192 + 1


def test_resnet_gan():
    w = 128
    generator, discriminator = resnet_gan.Generator(), resnet_gan.Discriminator()
    block = 2 * (9 * w * w + w)
    # A dense layer; three blocks, each with two batch normalisations; the last one, and a convolution to colours.
    assert parameters(generator) == (LATENT + 1) * 16 * w + 3 * (block + 4 * w) + 2 * w + 27 * w + 3
    first, second = 27 * w + w + 9 * w * w + w + 3 * w + w, block + w * w + w
    assert parameters(discriminator) == first + second + 2 * block + w + 1
    assert generator(torch.randn(2, LATENT)).shape == (2, 3, 32, 32)
    assert maps(discriminator, 3, 32, 32) == [
        *[(w, 32, 32)] * 2,
        (w, 16, 16),  # the bypass pools the image first
        *[(w, 16, 16)] * 3,  # and here last
        *[(w, 8, 8)] * 4,
    ]
    assert image_layers(discriminator, 3) == ["blocks.0.residual.0", "blocks.0.bypass.1"]
    # Xavier's uniform: variance 2 / (9 (inputs + outputs)); the bypass has twice that.
    assert float(convolutions(discriminator)[1].weight.detach().std()) == pytest.approx((1 / (9 * w)) ** 0.5, rel=0.02)
    assert float(discriminator.blocks[1].bypass[0].weight.detach().std()) == pytest.approx((2 / w) ** 0.5, rel=0.02)


def test_sum_pooling_is_64_times_the_average():
    net = resnet_gan.Discriminator(4)
    x, bias = torch.randn(2, 3, 32, 32), net.score.bias
    total = net(x) - bias
    net.pooling = "average"
    # Rounding of sums of 64 numbers.
    torch.testing.assert_close(64 * (net(x) - bias), total, rtol=1e-4, atol=1e-5)


def test_dcgan_of_any_width():
    gan = dcgan(width=4, channels=1, latent=10)
    assert gan(torch.randn(3, 10)).shape == (3,)
    assert gan.generator(torch.randn(3, 10)).shape == (3, 1, 32, 32)
    assert [conv.out_channels for conv in convolutions(gan.generator)] == [32, 16, 8, 4, 1]
    assert [conv.out_channels for conv in convolutions(gan.discriminator)] == [4, 4, 8, 8, 16, 16, 32]
    assert image_layers(gan.discriminator, 1) == ["features.0"]


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda: MLP(20), (784,)),
        (lambda: PatchMix(16, 2, size=8), (3, 8, 8)),
        (lambda: VGG(2, 1), (3, 32, 32)),
        (resnet110, (3, 32, 32)),
        (lambda: resnet18(norm="group", width=16, classes=5), (3, 64, 64)),
        (lambda: VGG16(width=4, hidden=16, places=1, classes=5), (3, 32, 32)),
        (lambda: resnet50(norm="none", width=8, classes=5), (3, 32, 32)),
        (lambda: Generator(16), (LATENT,)),
        (lambda: Discriminator(16), (3, 32, 32)),
        (lambda: resnet_gan.Generator(8), (LATENT,)),
        (lambda: resnet_gan.Discriminator(8), (3, 32, 32)),
    ],
    ids=[
        "mlp",
        "patch-mix",
        "vgg",
        "resnet110",
        "resnet18",
        "vgg16",
        "resnet50",
        "dcgan-g",
        "dcgan-d",
        "resnet-g",
        "resnet-d",
    ],
)
def test_converted_trained_and_baked(build, shape):
    net = build()
    keys, count = list(net.state_dict()), parameters(net)
    oni.convert(net, steps=2)
    x = torch.randn(2, *shape)
    net(x).square().mean().backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
    net.eval()
    with torch.no_grad():
        live = net(x)
        oni.bake(net)
        torch.testing.assert_close(net(x), live, rtol=1e-5, atol=1e-6 * float(live.abs().max()))
    assert (list(net.state_dict()), parameters(net)) == (keys, count)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: MLP(0), "depth must be at least 1, got 0"),
        (lambda: MLP(1, width=0), "width must be at least 1, got 0"),
        (lambda: MLP(1, norm="layer"), "norm must be one of 'none', 'batch', got 'layer'"),
        (lambda: MLP(1, activation="gelu"), "activation must be one of 'relu', 'groupsort', got 'gelu'"),
        (lambda: MLP(1, width=5, activation="groupsort"), "width must be even, because groupsort sorts pairs .* got 5"),
        (lambda: PatchMix(15), "width must be even, because GroupSort sorts pairs of channels, got 15"),
        (lambda: PatchMix(depth=0), "depth must be at least 1, got 0"),
        (lambda: PatchMix(size=30), "patch must divide size, got patch=4, size=30"),
        (lambda: PatchMix(pooling="mean"), "pooling must be one of 'none', 'sum', got 'mean'"),
        (lambda: VGG(0, 1), "g and k must be at least 1, got g=0, k=1"),
        (lambda: dcgan(width=0), "width must be at least 1, got 0"),
        (lambda: resnet_gan.resnet_gan(latent=0), "latent must be at least 1, got 0"),
        (lambda: resnet_gan.Discriminator(pooling="max"), "pooling must be one of 'sum', 'average', got 'max'"),
        (lambda: norm_layer("group", 32, group_size=12), "group_size must divide the 32 channels of a layer or be 0"),
        (lambda: resnet110(norm="layer"), "norm must be one of 'none', 'batch', 'group', got 'layer'"),
    ],
)
def test_what_is_refused(build, complaint):
    with pytest.raises(ValueError, match=complaint):
        build()


def test_group_norm_is_capped():
    assert norm_layer("group", 64, 16).num_groups == 16
    assert norm_layer("group", 16, 64).num_groups == 16


def test_group_norm_by_the_size_of_groups():
    layers = [
        module for module in ResNetCIFAR(1, norm="group", group_size=32).modules() if isinstance(module, nn.GroupNorm)
    ]
    assert [layer.num_groups for layer in layers] == [1, 1, 1, 1, 1, 2, 2]
