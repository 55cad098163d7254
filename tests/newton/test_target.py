"""steps_for on matrices: what it says is what orthogonalize needs, and no less would do."""

import math
from fractions import Fraction

import pytest
import torch

import oni
from oni.newton.orthogonalize import orthogonalize
from oni.newton.product_count import count_products
from oni.newton.target import Target, check_target, choose, list_choices, works_in_double


def lowest(Z, steps, groups=1, **options):
    W = oni.orthogonalize(Z, steps, groups=groups, **options)
    return float(oni.spectrum(W.unflatten(-2, (groups, -1))).min())


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((16, 40), {}),
        ((40, 16), {"bound": "tight"}),
        ((12, 30), {"center": False, "bound": "frobenius"}),
        ((12, 30), {"groups": 3}),
        ((3, 8, 20), {"schedule": "minimax"}),
        ((2, 2, 6, 9), {"groups": 2, "bound": "tight", "schedule": "minimax:0.2"}),
    ],
    ids=str,
)
def test_a_matrix_needs_exactly_so_many_steps(shape, options):
    Z = torch.randn(shape, dtype=torch.float64)
    steps = oni.steps_for(Z, 0.9, **options)
    assert lowest(Z, steps, **options) >= 0.9
    if "schedule" not in options:
        # Newton's map rises, so the lowest start decides; a minimax map may do better on a spectrum than on its range.
        assert lowest(Z, steps - 1, **options) < 0.9


def test_a_batch_needs_what_its_worst_matrix_needs():
    Z = torch.randn(4, 6, 9)
    assert oni.steps_for(Z, 0.9) == max(oni.steps_for(matrix, 0.9) for matrix in Z)


def test_a_pair_in_a_tensor_is_still_an_interval():
    assert oni.steps_for(torch.tensor([0.1, 1.0], dtype=torch.float64), 0.9) == 7


@pytest.mark.parametrize("factor", [1e-30, 1e30])
def test_scale_does_not_matter(factor):
    Z = torch.randn(6, 9)
    assert oni.steps_for(Z * factor, 0.9) == oni.steps_for(Z, 0.9)


@pytest.mark.parametrize(
    ("Z", "options", "error", "words"),
    [
        (torch.zeros(3, 5), {"center": False}, ValueError, "sigma_min=0.9: it is zero"),
        (torch.ones(3, 5), {}, ValueError, "rows are constant, so centring makes them zero; .*center=False"),
        (torch.randn(5, 5), {"center": True}, ValueError, 'a centred 5 x 5 matrix .*pass center="auto" or False'),
        (torch.randn(3, 8).repeat(2, 1), {}, ValueError, "6 x 8 matrix of rank 3 .*initialise it again"),
        (torch.tensor([[1.0, 2.0], [float("nan"), 1.0]]), {}, ValueError, "NaN or infinity"),
        (torch.randn(3, 5, device="meta"), {}, ValueError, "no values yet"),
        (torch.randn(0, 5), {}, ValueError, "no entries"),
        (torch.ones(3, 5, dtype=torch.int64), {}, TypeError, "got torch.int64"),
        (torch.randn(3, 5), {"bound": "spectral"}, ValueError, "bound must be one of"),
        (torch.randn(3, 5), {"groups": 2}, ValueError, "groups must divide the 3 rows"),
        (torch.randn(3), {}, TypeError, "interval must be a pair"),
    ],
)
def test_bad_matrices(Z, options, error, words):
    with pytest.raises(error, match=words):
        oni.steps_for(Z, 0.9, **options)


def test_choices_come_cheapest_first_and_all_reach_the_target():
    Z = torch.randn(48, 200)
    choices = list_choices(Z, Target(0.9))
    assert choose(Z, Target(0.9)) == choices[0]
    prices = [sum(count_products(c.steps, bound=c.bound, schedule=c.schedule).multiply_adds(48, 200)) for c in choices]
    # But for those that work in float64, which counts twice: none does with so few steps.
    assert prices == sorted(prices)
    assert {choice.bound for choice in choices} == {"trace", "trace2", "tight"}
    for bound, schedule, steps in choices:
        assert lowest(Z, steps, bound=bound, schedule=schedule) >= 0.9


@pytest.mark.parametrize("shape", [(64, 64), (96, 48), (48, 200)])
@pytest.mark.parametrize("sigma_min", [0.9, 0.99, 0.9999])
def test_a_badly_conditioned_weight_needs_no_float64(shape, sigma_min):
    """A schedule made for its start, below 0.01, would; one for a slightly higher start takes as many products."""
    m = min(shape)
    U, V = (torch.linalg.qr(torch.randn(size, m, dtype=torch.float64)).Q for size in shape)
    Z = ((U * torch.logspace(0, -2, m, dtype=torch.float64)) @ V.mT).float()
    choice = choose(Z, Target(sigma_min), center=False)
    assert not works_in_double(choice), choice
    W = orthogonalize(Z, choice.steps, bound=choice.bound, schedule=choice.schedule, center=False)
    assert torch.linalg.svdvals(W.double()).min() >= sigma_min


@pytest.mark.parametrize("number", [Fraction(1, 10**400), Fraction(10**30 - 1, 10**30), 10**400, math.nan, True])
def test_numbers_that_are_none_between_0_and_1_as_floats(number):
    with pytest.raises(ValueError, match=r"sigma_min must be a number in \(0, 1\), got "):
        check_target(number)
    assert check_target(Fraction(9, 10)) == 0.9


def test_float64_weights_get_the_fewest_products():
    """They are computed in float64 anyway, so a schedule that needs it costs no more."""
    U, V = (torch.linalg.qr(torch.randn(64, 64, dtype=torch.float64)).Q for _ in range(2))
    Z = (U * torch.logspace(0, -2, 64, dtype=torch.float64)) @ V.mT
    double, single = (list_choices(matrix, Target(0.9), center=False) for matrix in (Z, Z.float()))
    prices = [sum(count_products(c.steps, bound=c.bound, schedule=c.schedule).multiply_adds(64, 64)) for c in double]
    assert prices == sorted(prices)
    assert works_in_double(double[0]), "or this shows nothing"
    assert not works_in_double(single[0])
