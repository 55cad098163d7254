"""Training and evaluating a converted model never waits for the device: no operation needs a value on the host.

On a GPU such an operation stalls the queue of kernels. No GPU is needed to see one: torch tags those whose result, or
its shape, depends on the data, and a new tensor from Python numbers would be copied to the device.
"""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import oni

TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
NAMES = {
    "aten::equal",
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::item",
    "aten::nonzero",
    "aten::lift_fresh",
}


class Watching(TorchDispatchMode):
    """Lists the operations that would wait, and counts all."""

    def __init__(self):
        super().__init__()
        self.waiting, self.count = [], 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += 1
        # Indices from the host are copied to the device.
        listed = function._schema.name == "aten::index" and any(
            index is not None and index.device.type == "cpu" for index in args[1]
        )
        if function._schema.name in NAMES or TAGS & set(function.tags) or listed:
            self.waiting.append(function._schema.name)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "wait",
    [
        lambda x: x.sum().item(),
        lambda x: bool((x > 0).any()),
        lambda x: torch.equal(x, x),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x[[0, 2]],
        lambda x: x + torch.tensor(2.0),
    ],
)
def test_waiting_is_seen(wait):
    with Watching() as watching:
        wait(torch.randn(3, 4))
    assert watching.waiting


class Net(nn.Module):
    """Weights of one shape and of others, grouped and transposed, some used twice, one not at all."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=2, padding=1)
        )
        self.up = nn.ConvTranspose2d(8, 4, 2)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.hidden = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        x = self.features(x) + self.up(self.features(x)).mean()
        x = x.flatten(2).transpose(1, 2)
        x = self.attention(x, x, x)[0].mean(1)
        for layer in self.hidden[:-1]:
            x = layer(x).relu()
        return self.head(x)


OPTIONS = {
    "newton": {"steps": 5, "scale": "relu"},
    "learnt": {"steps": 3, "learn_scale": True, "bound": "tight", "center": True},
    # Beyond 16 steps the work is done in float64.
    "long": {"steps": 20, "bound": "frobenius", "center": False},
    "target": {"sigma_min": 0.9},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("held", [False, True], ids=["", "cached"])
def test_training_and_evaluation_do_not_wait(options, held):
    torch.manual_seed(0)
    model = oni.convert(Net(), **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    x, y = torch.randn(4, 3, 6, 6), torch.tensor([0, 1, 2, 0])

    def work():
        for _ in range(2):
            optimizer.zero_grad()
            for part in (slice(2), slice(2, 4)):
                nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            model(x)
            model(x)
        with torch.inference_mode():
            model(x)
        model.train()

    with Watching() as watching:
        if held:
            with oni.cached(model):
                work()
        else:
            work()
    assert watching.count > 100
    assert watching.waiting == []
