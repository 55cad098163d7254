"""Your own training loop, before and after the two lines that make a network orthogonal.

A plain 20-layer ReLU network learns to tell ten noisy prototypes apart. The same loop runs three times, with the same
seed, the same learning rate and the same batches:

    before       torch's initialisation, plain weights
    sqrt 2       orthogonal initialisation times sqrt 2, which preserves the signal through the ReLUs; plain weights
    after        the network of "before" and oni.convert: weights that start orthogonal and stay near it, times sqrt 2

    python examples/before_and_after.py
"""

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import oni

WIDTH, CLASSES = 64, 10


def network(depth, gain=None):
    """An MLP, initialised by torch or, with a gain, orthogonal."""
    sizes = [WIDTH] * depth + [CLASSES]
    layers = []
    for inputs, outputs in pairwise(sizes):
        linear = nn.Linear(inputs, outputs)
        if gain is not None:
            nn.init.orthogonal_(linear.weight, gain)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def draw(prototypes, count, generator):
    labels = torch.randint(CLASSES, (count,), generator=generator)
    return prototypes[labels] + 1.5 * torch.randn(count, WIDTH, generator=generator), labels


def train(model, args):
    """An ordinary training loop."""
    generator = torch.Generator().manual_seed(args.seed)
    prototypes = torch.randn(CLASSES, WIDTH, generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    losses = []
    for _ in range(args.steps):
        x, labels = draw(prototypes, 128, generator)
        loss = cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def fresh(args, gain=None):
    torch.manual_seed(args.seed)
    return network(args.depth, gain)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400, help="optimizer steps")
    parser.add_argument("--depth", type=int, default=20, help="linear layers")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate, the same for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="where to keep the checkpoint (default: a temporary folder)")
    args = parser.parse_args()

    curves = {"before": train(fresh(args), args), "sqrt 2": train(fresh(args, gain=2**0.5), args)}

    model = fresh(args)
    oni.convert(model, sigma_min=0.9, scale="relu", start="orthogonal")  # the first line
    curves["after"] = train(model, args)

    print(f"training loss, {args.depth} layers, learning rate {args.lr}; a guess gives 2.303\n")
    print("steps      " + "".join(f"{name:>10}" for name in curves))
    for rows in torch.arange(args.steps).chunk(10):
        means = "".join(f"{losses[rows].mean():10.3f}" for losses in curves.values())
        print(f"{rows[0] + 1:4} - {rows[-1] + 1:4}{means}")
    print(f"\n{oni.summary(model)}\n")

    x = torch.randn(256, WIDTH)
    trained = model(x)
    oni.bake(model)  # the second line: now the model is plain

    with tempfile.TemporaryDirectory() as scratch:
        folder = args.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), folder / "model.pt")
        shipped = network(args.depth)
        shipped.load_state_dict(torch.load(folder / "model.pt", weights_only=True), strict=True)
    difference = (shipped(x) - trained).abs().max().item()
    print(f"The plain network with the checkpoint differs from the trained one by at most {difference:.1e}.")


if __name__ == "__main__":
    main()
