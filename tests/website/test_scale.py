"""The estimate of what the paper's own scale takes."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from oni.diagnostics import cost
from oni.recipes.experiments.gan.family import ADAM
from oni.recipes.networks.registry import NETWORKS
from website.scale import count_work

BATCH = 2


def test_the_work_of_a_gan_is_what_torch_counts():
    gan = NETWORKS["dcgan"](width=2)
    layers = cost(gan, gan.latent, BATCH)
    plain, ours = count_work(gan, layers)
    z, real = torch.randn(BATCH, gan.latent), torch.randn(BATCH, 3, 32, 32)
    with FlopCounterMode(display=False) as counter:
        for _ in range(ADAM.n_dis):
            with torch.no_grad():
                fake = gan.generator(z)
            gan.discriminator(torch.cat([real, fake])).sum().backward()
        gan.discriminator.requires_grad_(False)
        gan.discriminator(gan.generator(z)).sum().backward()
    own = {layer.layer: layer.layer_itself for layer in layers}
    parts = ("generator", "discriminator")
    first = {part: next(own[layer] for layer in own if layer.startswith(part)) for part in parts}
    # Nobody asks for the gradients of real images and of z, which the estimate counts.
    not_needed = ADAM.n_dis * 2 * first["discriminator"] + first["generator"]
    assert 2 * (plain - not_needed) == counter.get_total_flops()
    once = sum(layer.oni for layer in layers if layer.layer.startswith("discriminator") and layer.kind == "Conv2d")
    assert 0 < (ADAM.n_dis + 1) * once < ours
