"""A GAN whose discriminator goes from spectral_norm to oni.orthogonal: one word changes.

Both bound every layer's largest singular value by 1. spectral_norm leaves the others in proportion; each step of
oni.orthogonal moves them further towards 1. After training, two steps (the paper's best for GANs) leave the median of
the third layer where spectral_norm does, at 0.32; five bring it to 0.98. The data are eight Gaussians on a circle: the
generator should cover them all, and put its samples close to them. One seed is one draw: try others.

    python examples/gan_discriminator.py
    python examples/gan_discriminator.py --newton 10 --seed 1
"""

import argparse
import math

import torch
from torch import nn
from torch.nn.functional import softplus
from torch.nn.utils.parametrizations import spectral_norm

import oni

RADIUS, SPREAD, LATENT, BATCH = 4.0, 0.1, 16, 128

angles = torch.arange(8) * math.pi / 4
MODES = RADIUS * torch.stack([angles.cos(), angles.sin()], dim=1)


def generator():
    return nn.Sequential(nn.Linear(LATENT, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


def discriminator(bounded):
    return nn.Sequential(
        bounded(nn.Linear(2, 64)),
        nn.LeakyReLU(0.2),
        bounded(nn.Linear(64, 64)),
        nn.LeakyReLU(0.2),
        bounded(nn.Linear(64, 64)),
        nn.LeakyReLU(0.2),
        bounded(nn.Linear(64, 1)),
    )


def train(bounded, args):
    torch.manual_seed(args.seed)
    G, D = generator(), discriminator(bounded)
    for_G = torch.optim.Adam(G.parameters(), lr=args.lr, betas=(0.5, 0.9))
    for_D = torch.optim.Adam(D.parameters(), lr=args.lr, betas=(0.5, 0.9))
    for _ in range(args.steps):
        real = MODES[torch.randint(len(MODES), (BATCH,))] + SPREAD * torch.randn(BATCH, 2)
        fake = G(torch.randn(BATCH, LATENT))

        # D runs twice before its optimizer steps: inside cached, its weights are computed once for both.
        with oni.cached(D):
            loss = softplus(-D(real)).mean() + softplus(D(fake.detach())).mean()
            for_D.zero_grad()
            loss.backward()
        for_D.step()

        loss = softplus(-D(fake)).mean()
        for_G.zero_grad()
        loss.backward()
        for_G.step()
    return G, D


@torch.no_grad()
def measure(G, count=4000):
    """How many modes have a fair share of good samples, and the share of good ones: within 3 spreads of a mode."""
    distance, nearest = torch.cdist(G(torch.randn(count, LATENT)), MODES).min(dim=1)
    good = distance < 3 * SPREAD
    per_mode = torch.bincount(nearest[good], minlength=len(MODES))
    return int((per_mode > count / 200).sum()), good.float().mean().item()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps of each network")
    parser.add_argument("--newton", type=int, default=2, help="steps of the orthogonalisation")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate, the same for both discriminators")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    def orthogonal(layer):
        return oni.orthogonal(layer, steps=args.newton)

    print("discriminator   modes covered   good samples   singular values of its third layer")
    for bounded in (spectral_norm, orthogonal):
        G, D = train(bounded, args)
        covered, good = measure(G)
        sigma = oni.spectrum(D.eval()[4].weight.detach())
        values = f"{sigma.min():.3f} - {sigma.max():.3f}, median {sigma.median():.3f}"
        print(f"{bounded.__name__:15} {covered:6} of {len(MODES)}    {good:11.1%}    {values}", flush=True)


if __name__ == "__main__":
    main()
