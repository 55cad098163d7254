"""A training step of the copy task, by torch's fused layer and by a loop over cells: python benchmarks/recurrent.py.

Sequences of 60 positions, batches of 64, 64 hidden units: forward, backward, a step of Adam, in float32. All start
orthogonal, gate by gate. ``oni`` has sigma_min=0.9; geotorch, where it is installed, is exact, by Cayley's map.
"""

import argparse
import importlib.util
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import oni
from oni.machine import cpu_model
from oni.timing import Times, interleaved, median_ratio, quartiles

POSITIONS, BATCH, INPUTS, HIDDEN = 60, 64, 10, 64
LAYERS = {"rnn": (nn.RNN, nn.RNNCell), "gru": (nn.GRU, nn.GRUCell), "lstm": (nn.LSTM, nn.LSTMCell)}


class Cells(nn.Module):
    """A loop over a cell."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, inputs: Tensor) -> tuple[Tensor, None]:
        state, states = None, []
        for x in inputs:
            state = self.cell(x, state)
            states.append(state[0] if isinstance(state, tuple) else state)  # an LSTM's state is (hidden, cell)
        return torch.stack(states), None


class GeotorchGates(nn.Module):
    """geotorch's orthogonal matrices, one for each gate."""

    def __init__(self, weight: Tensor) -> None:
        import geotorch

        super().__init__()
        gates = weight.detach().unflatten(0, (-1, HIDDEN))
        self.map = geotorch.SO(gates.shape, triv="cayley")
        self.map.right_inverse(gates)

    def forward(self, Z: Tensor) -> Tensor:
        return self.map(Z.unflatten(0, (-1, HIDDEN))).flatten(0, 1)


def build(layer: str, *, cells: bool) -> tuple[nn.Module, nn.Module, str]:
    """What to call, the module with the recurrent weight, and the name of that weight."""
    fused, cell = LAYERS[layer]
    torch.manual_seed(0)
    owner = (cell if cells else fused)(INPUTS, HIDDEN)
    name = "weight_hh" if cells else "weight_hh_l0"
    for gate in getattr(owner, name).detach().split(HIDDEN):
        nn.init.orthogonal_(gate)
    return (Cells(owner) if cells else owner), owner, name


def make_step(layer: str, method: str, *, cells: bool) -> Callable[[], object]:
    model, owner, name = build(layer, cells=cells)
    scope: Callable[[], AbstractContextManager[object]] = nullcontext
    if method == "oni":
        oni.orthogonal(owner, name, sigma_min=0.9)
        # A cell computes its weight at each position, unless it is told that all are one pass.
        scope = partial(oni.cached, owner) if cells else nullcontext
    elif method == "geotorch":
        parametrize.register_parametrization(owner, name, GeotorchGates(getattr(owner, name)), unsafe=True)
        with torch.no_grad():
            owner.parametrizations[name].original.zero_()  # where Cayley's map gives the start
        # torch's own cache: it computes the weight several times for one pass, of the fused layer too.
        scope = parametrize.cached
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-6)
    inputs = torch.randn(POSITIONS, BATCH, INPUTS)

    def step() -> None:
        optimizer.zero_grad()
        with scope():
            model(inputs)[0].square().mean().backward()
        optimizer.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--layer", choices=LAYERS, default="gru")
    parser.add_argument("--seconds", type=float, default=60.0, help="time for all")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)

    methods = ["plain", "oni", *(["geotorch"] if importlib.util.find_spec("geotorch") else [])]
    steps = {
        f"{method}, {'cells' if cells else 'fused'}": make_step(args.layer, method, cells=cells)
        for method in methods
        for cells in (False, True)
    }
    for step in steps.values():
        step()
    times: dict[str, Times] = {name: {} for name in steps}
    for _ in interleaved(steps, times, seconds=args.seconds, least_rounds=10):
        pass
    print(f"{args.layer}, torch {torch.__version__}, {args.threads} threads, {cpu_model()}\n")
    print(f"{'':18}{'ms':>8}{'x plain, fused':>24}")
    for name, own in times.items():
        ratio = median_ratio(own, times["plain, fused"])
        assert ratio is not None
        around = f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        print(f"{name:18}{1e3 * quartiles(list(own.values())).median:8.1f}{around:>24}")


if __name__ == "__main__":
    main()
