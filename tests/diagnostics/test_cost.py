import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import oni
from oni import diagnostics
from oni.diagnostics.cost import own_cost, paper_cost

STEPS = (1, 3, 5, 7)
# Kernel, channels, batch: what the paper's formula gives at 32 x 32, to five digits after the point.
RATIOS = {
    (3, 256, 256): (0.00228, 0.00293, 0.00358, 0.00423),
    (3, 256, 32): (0.01823, 0.02344, 0.02865, 0.03385),
    (3, 1024, 32): (0.07292, 0.09375, 0.11458, 0.13542),
    (1, 256, 256): (0.00488, 0.01074, 0.01660, 0.02246),
    (1, 256, 32): (0.03906, 0.08594, 0.13281, 0.17969),
    (1, 1024, 32): (0.15625, 0.34375, 0.53125, 0.71875),
}


@pytest.mark.parametrize(("kernel", "n", "m"), RATIOS)
def test_the_ratios_of_the_formula(kernel, n, m):
    p = n * kernel**2
    for steps, ratio in zip(STEPS, RATIOS[kernel, n, m], strict=True):
        # Half a unit of the fifth decimal.
        assert paper_cost(n, p, steps) / (m * 32 * 32 * n * p) == pytest.approx(ratio, abs=5.01e-6)
        assert 2 * n / (m * 1024) + 3 * steps * n**2 / (m * n * 1024 * kernel**2) == pytest.approx(ratio, abs=5.01e-6)
        assert sum(own_cost(n, p, steps)[:1]) < paper_cost(n, p, steps)


def test_layers_of_a_model():
    layer = nn.Conv2d(8, 16, 3, padding=1, bias=False)
    (row,) = diagnostics.cost(layer, (8, 6, 5), batch_size=4, steps=5)
    assert (row.matrix, row.groups, row.layer_itself) == ((16, 72), 1, 4 * 6 * 5 * 16 * 72)
    assert row.paper_ratio == pytest.approx(2 * 16 / (4 * 30) + 3 * 5 * 16**2 / (4 * 8 * 30 * 9))
    assert (row.oni, row.oni_backward) == (10 * 16**3 + 2 * 16 * 16 * 72, 14 * 16**3 + 3 * 16 * 16 * 72)
    assert row.ratio == row.oni / row.layer_itself


@pytest.mark.parametrize(
    ("layer", "size", "matrix"),
    [
        (nn.Linear(7, 5, bias=False), (7,), (5, 7)),
        (nn.Linear(7, 5, bias=False), (3, 7), (5, 7)),
        (nn.Conv2d(4, 6, 3, stride=2, groups=2, bias=False), (4, 9, 9), (3, 18)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, bias=False), (4, 5, 5), (3, 18)),
        (nn.Conv1d(4, 6, 3, bias=False), (4, 9), (6, 12)),
    ],
    ids=str,
)
def test_the_layer_itself_as_torch_counts_it(layer, size, matrix):
    (row,) = diagnostics.cost(layer, size, batch_size=3)
    assert row.matrix == matrix
    with FlopCounterMode(display=False) as counter:
        layer(torch.zeros(3, *size))
    assert counter.get_total_flops() == 2 * row.layer_itself


def test_a_layer_that_runs_twice_is_orthogonalised_once():
    layer = oni.nn.Linear(4, 4)
    (row,) = diagnostics.cost(nn.Sequential(layer, nn.ReLU(), layer), 4, batch_size=1)
    assert (row.layer_itself, row.oni) == (32, own_cost(4, 4, 5)[0])


def test_bad_input():
    with pytest.raises(ValueError, match="batch_size"):
        diagnostics.cost(nn.Linear(2, 2), 2, batch_size=0)
    with pytest.raises(ValueError, match="steps"):
        diagnostics.cost(nn.Linear(2, 2), 2, batch_size=1, steps=-1)
    with pytest.raises(ValueError, match="input_size"):
        diagnostics.cost(nn.Linear(2, 2), (), batch_size=1)


def test_a_model_without_memory():
    with torch.device("meta"):
        large = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2), nn.BatchNorm2d(64), nn.Flatten(), nn.LazyLinear(4096))
        large(torch.zeros(1, 3, 224, 224))
    first, last = diagnostics.cost(large, (3, 224, 224), batch_size=256)
    assert first.layer_itself == 256 * 109 * 109 * 64 * 3 * 7 * 7
    assert last.matrix == (4096, 64 * 109 * 109)
