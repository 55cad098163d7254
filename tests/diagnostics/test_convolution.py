"""Convolutions as operators, against their matrices written out in float64."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from rounding import rounding
from torch import nn

import oni
from oni import diagnostics
from oni.diagnostics import convolution
from oni.diagnostics.convolution import reshaped_bound
from oni.diagnostics.operator import operator_of

CIRCULAR = [
    (nn.Conv1d(3, 4, 3, padding=1, padding_mode="circular"), 6),
    (nn.Conv1d(3, 4, 5, padding=4, dilation=2, padding_mode="circular"), 9),
    (nn.Conv1d(4, 6, 3, padding=1, groups=2, padding_mode="circular"), 7),
    (nn.Conv1d(2, 5, 3, padding=1, stride=2, padding_mode="circular"), 8),
    (nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (4, 5)),
    (nn.Conv2d(2, 3, (3, 1), padding=(1, 0), padding_mode="circular"), (5, 4)),
    (nn.Conv2d(3, 2, 3, padding=1, stride=2, padding_mode="circular"), (6, 4)),
    (nn.Conv2d(2, 2, 1), (3, 2)),
    (nn.Conv3d(2, 2, 3, padding=1, padding_mode="circular"), (2, 3, 4)),
]


def exact(layer, size):
    return torch.linalg.svdvals(operator_of(layer, size).matrix())


@pytest.mark.parametrize(("layer", "size"), CIRCULAR, ids=str)
def test_circular_convolutions_by_fourier_transform(layer, size):
    found, expected = diagnostics.convolution_spectrum(layer, size), exact(layer, size)
    # Two ways to the same numbers of order 1, in float64.
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    by_weight = diagnostics.convolution_spectrum(
        layer.weight, size, stride=layer.stride, dilation=layer.dilation, groups=layer.groups
    )
    assert torch.equal(found, by_weight)


def test_a_kernel_longer_than_the_input_wraps_around():
    W = torch.randn(2, 3, 5, dtype=torch.float64)
    wrapped = torch.stack([W[..., 0] + W[..., 3], W[..., 1] + W[..., 4], W[..., 2]], -1)
    torch.testing.assert_close(
        diagnostics.convolution_spectrum(W, 3), diagnostics.convolution_spectrum(wrapped, 3), atol=1e-12, rtol=0
    )


def test_a_transposed_convolution_has_the_values_of_its_transpose():
    transposed = nn.ConvTranspose2d(3, 2, 3, stride=2)
    convolution = nn.Conv2d(2, 3, 3, stride=2)
    convolution.weight = transposed.weight
    torch.testing.assert_close(
        diagnostics.convolution_spectrum(transposed, 3), diagnostics.convolution_spectrum(convolution, 6)
    )


@given(st.data())
def test_norms_against_the_matrix(data):
    def draw(*values):
        return data.draw(st.sampled_from(values))

    torch.manual_seed(draw(0, 1, 2))
    k, s, d, p, g, size = draw(1, 2, 3, 4, 5), draw(1, 2, 3), draw(1, 2), draw(0, 1, 2, 3), draw(1, 2), draw(5, 6, 8, 9)
    if draw(True, False, False):
        layer = nn.ConvTranspose1d(
            4,
            6,
            k,
            stride=s,
            dilation=d,
            padding=min(p, (k - 1) * d // 2),
            groups=g,
            output_padding=min(1, max(s, d) - 1),
        )
    else:
        assume((k - 1) * d + 1 <= size + 2 * p)
        mode = draw("zeros", "zeros", "circular", "reflect", "replicate")
        layer = nn.Conv1d(4, 6, k, stride=s, dilation=d, padding=p, groups=g, padding_mode=mode)
    norm = float(exact(layer, size)[0])
    found = diagnostics.operator_norm(layer, size, tolerance=1e-9)
    assert found.converged
    # A relative residual of 1e-9 in sigma^2 is at most as much in sigma.
    assert found.value == pytest.approx(norm, rel=1e-9)
    assert diagnostics.norm_bound(layer, size) == pytest.approx(norm, rel=2e-12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convolution, "DENSE", 0)
        # From above whatever the padding; rounding is paid for by ROUNDING.
        assert norm <= diagnostics.norm_bound(layer, size)
        if layer.padding_mode == "zeros":
            # Both have been rounded up.
            assert diagnostics.norm_bound(layer, size) <= reshaped_bound(layer) * (1 + 1e-11)
            assert norm <= reshaped_bound(layer)


@pytest.mark.parametrize("samples", [3, 4, 16])
def test_the_bound_from_few_frequencies(samples, monkeypatch):
    layer = nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular")
    norm = float(diagnostics.convolution_spectrum(layer, (40, 40))[0])
    monkeypatch.setattr(convolution, "SAMPLES", samples)
    bound = diagnostics.norm_bound(layer, (40, 40))
    assert norm <= bound <= norm / math.cos(math.pi / samples) ** 2 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("layer", "patches"),
    [
        (nn.Conv2d(1, 1, 3, padding=1), 9),
        (nn.Conv2d(1, 1, 4, stride=2, padding=1), 4),
        (nn.Conv2d(1, 1, 2, stride=2), 1),
        (nn.Conv2d(1, 1, 3, dilation=2, stride=2, padding=2), 9),
        (nn.Conv2d(1, 1, 1), 1),
    ],
    ids=str,
)
def test_a_reshaped_norm_of_1_is_not_a_norm_of_1(layer, patches):
    nn.init.constant_(layer.weight, layer.weight.numel() ** -0.5)
    # Equal float32 numbers round alike, by half an epsilon; the rest is done in float64.
    eps = torch.finfo(torch.float32).eps
    assert float(oni.spectrum(layer.weight.flatten(1))[0]) == pytest.approx(1, rel=eps)
    assert reshaped_bound(layer) == pytest.approx(patches**0.5, rel=eps)
    norm = diagnostics.operator_norm(layer, 40).value
    # An averaging kernel comes as close to its bound as the border lets it.
    assert 0.98 * patches**0.5 <= norm <= patches**0.5 * (1 + eps)


def test_layers_of_every_kind():
    linear = nn.Linear(5, 3)
    assert diagnostics.operator_norm(linear).value == pytest.approx(float(oni.spectrum(linear.weight)[0]), rel=1e-4)
    assert diagnostics.norm_bound(linear) == pytest.approx(float(oni.spectrum(linear.weight)[0]), rel=1e-11)
    orthogonal = oni.nn.Conv2d(4, 4, 3, padding=1, steps=12, center=False)
    assert (
        1
        < diagnostics.operator_norm(orthogonal, 8).value
        <= diagnostics.norm_bound(orthogonal, 8)
        <= 3 + rounding(30, 36)["atol"]
    )
    volume = nn.ConvTranspose3d(2, 3, 3, stride=2)
    assert diagnostics.operator_norm(volume, (2, 3, 2)).value == pytest.approx(
        float(exact(volume, (2, 3, 2))[0]), rel=1e-4
    )
    same = nn.Conv2d(2, 3, 4, padding="same", dilation=2).bfloat16()
    assert diagnostics.operator_norm(same, 7).value == pytest.approx(float(exact(same, 7)[0]), rel=1e-4)


def test_edges():
    layer = nn.Conv2d(2, 2, 3, padding=1)
    few = diagnostics.operator_norm(layer, 8, max_iterations=2)
    assert (few.iterations, few.converged) == (2, False)
    assert few.value <= float(exact(layer, 8)[0])
    before = torch.random.get_rng_state()
    with torch.no_grad():
        assert diagnostics.operator_norm(layer, 8).converged
    assert torch.equal(torch.random.get_rng_state(), before)
    nn.init.zeros_(layer.weight)
    assert diagnostics.operator_norm(layer, 8).value == diagnostics.norm_bound(layer, 80) == 0
    nn.init.constant_(layer.weight, float("nan"))
    assert math.isnan(diagnostics.operator_norm(layer, 8).value)
    assert math.isnan(diagnostics.norm_bound(layer, 80))
    assert diagnostics.convolution_spectrum(layer, 4).isnan().all()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: diagnostics.operator_norm(nn.ReLU(), 3), TypeError, r"got ReLU; oni.diagnostics.lipschitz_bound"),
        (
            lambda: diagnostics.operator_norm(nn.Conv2d(1, 1, 1)),
            ValueError,
            r"input_size must be \(height, width\).*got None",
        ),
        (
            lambda: diagnostics.operator_norm(nn.Conv2d(1, 1, 1), (1, 4, 4)),
            ValueError,
            "without batch and channels",
        ),
        (lambda: diagnostics.operator_norm(nn.Conv1d(1, 1, 1), -1), ValueError, r"\(length\)"),
        (lambda: diagnostics.convolution_spectrum(torch.ones(2, 2), 3), ValueError, "kernel"),
        (
            lambda: diagnostics.convolution_spectrum(torch.ones(2, 2, 1), 3, groups=3),
            ValueError,
            "groups must divide the 2",
        ),
        (
            lambda: diagnostics.convolution_spectrum(torch.ones(2, 2, 1), 3, stride=2),
            ValueError,
            "stride must divide",
        ),
        (lambda: diagnostics.convolution_spectrum(nn.Linear(2, 2), 3), TypeError, "got Linear"),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
