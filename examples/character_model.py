"""A small character model with orthogonal attention, orthogonal MLPs, both or neither.

A transformer of two blocks reads the help texts of Python's standard library and predicts each next character. The same
loop trains it five times, and each time the weights of one part are kept orthogonal:

    plain        torch's own start, free weights
    start        an orthogonal start of attention and MLPs, free weights
    attention    attention orthogonal, MLPs free
    mlp          MLPs orthogonal, attention free
    both         attention and MLPs orthogonal

Each kind first chooses its learning rate, by its loss on held-out text with seed 0. Then it is trained with other
seeds, and its loss on other text, in nats per character, is what counts.

    python examples/character_model.py
    python examples/character_model.py --steps 1000
"""

import argparse
import math
import platform
import statistics
from pydoc_data.topics import topics

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import oni

WIDTH, HEADS, BLOCKS, CONTEXT, BATCH = 64, 4, 2, 64, 16
ATTENTION, MLP = "blocks.*.self_attn*", "blocks.*.linear[12]"
ORTHOGONAL = {"attention": [ATTENTION], "mlp": [MLP], "both": [ATTENTION, MLP]}
KINDS = ("plain", "start", *ORTHOGONAL)


def read_text():
    """Characters as numbers, in three parts: to train on, to choose by, to test on."""
    text = "\n".join(topics[name] for name in sorted(topics))
    letters = sorted(set(text))
    numbers = {letter: number for number, letter in enumerate(letters)}
    tokens = torch.tensor([numbers[letter] for letter in text])
    held_out = len(tokens) // 10
    return tokens[: -2 * held_out], tokens[-2 * held_out : -held_out], tokens[-held_out:], len(letters)


class CharacterModel(nn.Module):
    def __init__(self, letters):
        super().__init__()
        self.letters, self.places = nn.Embedding(letters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(BLOCKS)
        )
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, tokens):
        x = self.letters(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x, src_mask=self.mask, is_causal=True)
        return self.head(self.norm(x))


def build(kind, letters):
    model = CharacterModel(letters)
    if kind == "start":
        # Orthogonal, and free from then on.
        oni.bake(oni.convert(model, only=ORTHOGONAL["both"], steps=8, start="orthogonal"))
    if kind in ORTHOGONAL:
        oni.convert(model, only=ORTHOGONAL[kind], sigma_min=0.9, start="orthogonal", learn_scale=True)
    return model


def draw(tokens, places):
    windows = tokens[places[:, None] + torch.arange(CONTEXT + 1)]
    return windows[:, :-1], windows[:, 1:].flatten()


def train(kind, rate, seed, tokens, letters, steps):
    torch.manual_seed(seed)
    model = build(kind, letters)
    # No weight decay anywhere: with it free weights would differ from orthogonal ones in one thing more.
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    batches = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for group in optimizer.param_groups:  # warm-up over a tenth, then a cosine
            group["lr"] = rate * min(10 * (step + 1) / steps, 0.5 + 0.5 * math.cos(math.pi * step / steps))
        x, y = draw(tokens, torch.randint(len(tokens) - CONTEXT, (BATCH,), generator=batches))
        loss = cross_entropy(model(x).flatten(0, 1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def measure(model, tokens):
    """Loss on a whole part of the text, in windows side by side."""
    places = torch.arange(0, len(tokens) - CONTEXT, CONTEXT)
    model.eval()
    with oni.cached(model):
        batches = (draw(tokens, part) for part in places.split(64))
        losses = [cross_entropy(model(x).flatten(0, 1), y).item() for x, y in batches]
    return statistics.fmean(losses)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps")
    parser.add_argument(
        "--seeds", type=int, default=3, help="number of seeds; one more seed, 0, chooses the learning rate"
    )
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-2, 3e-2, 1e-1], help="learning rates")
    args = parser.parse_args()

    tokens, validation, test, letters = read_text()
    print(f"{len(tokens):,} characters of Python {platform.python_version()} to train on, {len(test):,} to test on\n")
    print(f"{'orthogonal':12}{'rate':>8}{'test loss':>12}  by seed")
    for kind in KINDS:
        chosen = {rate: measure(train(kind, rate, 0, tokens, letters, args.steps), validation) for rate in args.rates}
        rate = min(chosen, key=chosen.__getitem__)
        seeds = range(1, 1 + args.seeds)
        losses = [measure(train(kind, rate, seed, tokens, letters, args.steps), test) for seed in seeds]
        each = ", ".join(f"{loss:.3f}" for loss in losses)
        print(f"{kind:12}{rate:8.0e}{statistics.fmean(losses):12.3f}  {each}", flush=True)


if __name__ == "__main__":
    main()
