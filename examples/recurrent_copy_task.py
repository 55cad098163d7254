"""A recurrent network that remembers: the copy task, with and without an orthogonal recurrent weight.

The network reads a few symbols, then blanks, then must recite the symbols. A state multiplied by the same matrix at
every blank fades or explodes unless the matrix is near orthogonal. The same loop runs four times, with the same seed,
learning rate and batches:

    plain        torch's own start, free
    start        an orthogonal start (of each gate), free
    steps=8      torch's own start, kept near orthogonal by oni.orthogonal with 8 steps
    sigma_min    the orthogonal start, kept near orthogonal by oni.orthogonal with sigma_min=0.9

    python examples/recurrent_copy_task.py
    python examples/recurrent_copy_task.py --delay 20
    python examples/recurrent_copy_task.py --layer gru --delay 20
"""

import argparse
import math

import torch
from torch import nn
from torch.nn.functional import cross_entropy, one_hot

import oni

SYMBOLS, LENGTH, BATCH, HIDDEN = 8, 5, 64, 64
BLANK, GO = SYMBOLS, SYMBOLS + 1
KINDS = ("plain", "start", "steps=8", "sigma_min")
LAYERS = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}


def draw(delay):
    symbols = torch.randint(SYMBOLS, (BATCH, LENGTH))
    sequence = torch.full((BATCH, LENGTH + delay + LENGTH), BLANK)
    sequence[:, :LENGTH] = symbols
    sequence[:, LENGTH + delay - 1] = GO
    return one_hot(sequence, SYMBOLS + 2).float(), symbols


class Reciter(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.memory = LAYERS[layer](SYMBOLS + 2, HIDDEN, batch_first=True)
        self.head = nn.Linear(HIDDEN, SYMBOLS)

    def forward(self, inputs):
        states, _ = self.memory(inputs)
        return self.head(states[:, -LENGTH:])


def build(kind, layer):
    model = Reciter(layer)
    if kind in ("start", "sigma_min"):
        # The weight of a layer with gates is one matrix per gate, stacked.
        for gate in model.memory.weight_hh_l0.split(HIDDEN):
            nn.init.orthogonal_(gate)
    if kind == "steps=8":
        oni.orthogonal(model.memory, "weight_hh_l0", steps=8)
    if kind == "sigma_min":
        oni.orthogonal(model.memory, "weight_hh_l0", sigma_min=0.9)
    return model


def train(kind, args):
    torch.manual_seed(args.seed)
    model = build(kind, args.layer)
    torch.manual_seed(args.seed)  # nn.init.orthogonal_ drew numbers; the batches should not differ for it
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    for _ in range(args.steps):
        inputs, symbols = draw(args.delay)
        loss = cross_entropy(model(inputs).flatten(0, 1), symbols.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--layer", choices=LAYERS, default="rnn")
    parser.add_argument("--steps", type=int, default=400, help="optimizer steps")
    parser.add_argument("--delay", type=int, default=50, help="how long to remember, in positions")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate, the same for all")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    curves = {kind: train(kind, args) for kind in KINDS}

    memoryless = math.log(SYMBOLS)
    print(f"{args.layer}, loss at recall after {args.delay} positions; without a memory it is {memoryless:.3f}\n")
    print("steps      " + "".join(f"{kind:>12}" for kind in curves))
    for rows in torch.arange(args.steps).chunk(8):
        means = "".join(f"{losses[rows].mean():12.3f}" for losses in curves.values())
        print(f"{rows[0] + 1:4} - {rows[-1] + 1:4}{means}")


if __name__ == "__main__":
    main()
