"""Every schedule keeps the same contract; steps_for and certified_range say what it guarantees."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rounding import rounding

import oni
from oni.newton.product_count import count_products
from oni.newton.reference import oracle, polynomials
from oni.newton.schedule import SCHEDULES, get_schedule, phi
from oni.newton.stage import NEWTON_PAIR

ends = st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)).map(lambda pair: tuple(sorted(pair)))


def scalar_map(schedule, steps, s):
    """Where singular values go, in float64, by the plain polynomials."""
    for polynomial in polynomials(schedule, steps):
        s = s * sum(c * s ** (2 * i) for i, c in enumerate(polynomial))
    return s


@pytest.mark.parametrize("schedule", [*SCHEDULES, "minimax:0.004", "minimax:0.6"])
class TestContract:
    def test_two_more_steps_continue(self, schedule):
        stages = get_schedule(schedule).stages
        for steps in (0, 1, 6, 7):
            assert stages(steps + 2)[: len(stages(steps))] == stages(steps)

    @given(interval=ends, steps=st.integers(0, 12))
    def test_the_certified_range_is_the_image(self, schedule, interval, steps):
        low, high = oni.certified_range(interval, steps, schedule=schedule)
        s = scalar_map(schedule, steps, torch.linspace(*interval, 1001, dtype=torch.float64))
        # Rounding of at most 6 stages, whose terms are below 150 and whose slopes together are below 1e4.
        assert low - 1e-10 <= s.min()
        assert s.max() <= high + 1e-10
        assert high <= 1
        # Not only a bound but attained, up to the grid: between its points, 1e-3 apart, a cubic of slope 2.6 moves by
        # .003, a pair of slope up to 41 by .04.
        if steps <= 2:
            assert s.max() >= high - 0.05
            assert s.min() <= low + 0.05

    @pytest.mark.parametrize("bound", ["frobenius", "compact", "trace", "trace2", "tight"])
    @pytest.mark.parametrize("shape", [(6, 10), (10, 6), (7, 7)])
    def test_the_matrix_function_is_the_scalar_map(self, schedule, bound, shape):
        Z = torch.randn(shape, dtype=torch.float64)
        for steps in range(12):
            options = {"center": False, "bound": bound, "schedule": schedule}
            W = oni.orthogonalize(Z, steps, **options)
            torch.testing.assert_close(W, oracle(Z, steps, **options), atol=1e-10, rtol=0)
            assert oni.spectrum(W)[0] <= 1 + 1e-13

    @pytest.mark.parametrize("scale", [1e-3, 1.0])
    def test_sigma_max_in_float32_at_every_length(self, schedule, scale):
        # Spectra that reach the bound itself, where overshooting would show: from tiny to it, with two or all on it.
        spread = torch.logspace(-4, 0, 16)
        ties = torch.cat([torch.full((14,), 1e-3), torch.tensor([1 - 1e-7, 1.0])])
        bases = torch.linalg.qr(torch.randn(16, 16)).Q, torch.linalg.qr(torch.randn(24, 16)).Q.T
        for sigma in (spread, ties, torch.ones(16)):
            Z = bases[0] @ torch.diag(sigma * scale) @ bases[1]
            for steps in range(20):
                W = oni.orthogonalize(Z, steps, center=False, bound="tight", schedule=schedule)
                # Beyond 8 steps the Gram matrix is formed anew, so no more than 8 of 2.5 products follow each other.
                assert oni.spectrum(W)[0] <= 1 + rounding(20, 24)["rtol"]

    def test_a_start_of_one_in_float32(self, schedule):
        # The bound is exact for rank 1, so rounding alone decides on which side of 1 it starts.
        Z = torch.outer(torch.rand(48) + 0.5, torch.rand(80) + 0.5)
        for steps in range(12):
            W = oni.orthogonalize(Z, steps, center=False, schedule=schedule)
            assert oni.spectrum(W)[0] <= 1 + rounding(20, 80)["rtol"]

    @given(low=st.floats(1e-6, 1.0), target=st.floats(0.0, 0.999999))
    def test_steps_for_is_the_fewest(self, schedule, low, target):
        steps = oni.steps_for((low, 1.0), target, schedule=schedule)
        assert oni.certified_range((low, 1.0), steps, schedule=schedule)[0] >= target
        for fewer in range(steps):
            assert oni.certified_range((low, 1.0), fewer, schedule=schedule)[0] < target

    def test_steps_for_holds_for_a_real_matrix(self, schedule):
        Z = torch.randn(32, 100, dtype=torch.float64)
        start = oni.spectrum(oni.orthogonalize(Z, 0))
        steps = oni.steps_for((float(start[-1]), 1.0), 0.99, schedule=schedule)
        assert oni.spectrum(oni.orthogonalize(Z, steps, schedule=schedule))[-1] >= 0.99


@pytest.mark.parametrize("low", [0.001, 0.01, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("target", [0.5, 0.9, 0.999])
def test_minimax_needs_fewer_steps_and_no_more_products_a_step(low, target):
    newton = oni.steps_for((low, 1.0), target)
    minimax = oni.steps_for((low, 1.0), target, schedule=f"minimax:{low}")
    assert minimax < newton
    assert oni.steps_for((low, 1.0), target, schedule="minimax") < newton
    # A pair costs the same: both are made of the same kinds of stages.
    assert [len(p) for p in kinds(f"minimax:{low}", minimax)] == [len(p) for p in kinds("newton", minimax)]


def kinds(schedule, steps):
    return [stage.coefficients() for stage in get_schedule(schedule).stages(steps)]


def test_a_pair_costs_two_squarings():
    assert count_products(2, schedule="minimax") == count_products(2) == (2, 2, 2, 3)
    assert count_products(3, schedule="minimax") == count_products(3)
    assert count_products(4, schedule="minimax") == count_products(4)


class TestBestPolynomial:
    @pytest.mark.parametrize(
        ("low", "lifted"),
        # The best of degree 9, by a linear program on 1,500 points; two best cubics give .303 .531 .800 .919 .989.
        [(0.05, 0.3396), (0.1, 0.5862), (0.2, 0.8517), (0.3, 0.9507), (0.5, 0.9958), (0.7, 0.9998)],
    )
    def test_lifts(self, low, lifted):
        found = oni.certified_range((low, 1.0), 2, schedule=f"minimax:{low}")[0]
        # The interval reaches to 1.0001, which costs up to 6e-5; the table has four digits.
        assert lifted - 1.2e-4 <= found <= lifted + 0.5e-4

    @given(low=st.floats(1e-9, 1 - 1e-9))
    @settings(max_examples=20)
    def test_proven_to_stay_below_one_and_above_the_lift(self, low):
        (stage,) = get_schedule(f"minimax:{low!r}").stages(2)
        low_image, high_image = oni.certified_range((low, 1.0), 2, schedule=f"minimax:{low!r}")
        s = torch.linspace(0, 1.0001, 4001, dtype=torch.float64)
        values = s * sum(c * s ** (2 * i) for i, c in enumerate(stage.coefficients()))
        # Terms of up to 150 round by 1e-13 here; the certificate itself allows nothing above 1.
        assert values.max() <= 1 + 1e-13
        assert values[s >= low].min() >= low_image - 1e-13
        assert high_image <= 1
        # The best there is lifts at least as high as two best cubics, which are one of the candidates.
        lower = low
        for _ in range(2):
            lower = phi((3 / (1 + lower + lower**2)) ** 0.5 * lower)
        # It covers [low, 1.0001], they [low, 1]; near 1 both are 1 up to rounding.
        assert low_image >= lower * (1 - 2e-4) if low < 0.5 else low_image >= lower - 1e-9

    @given(low=st.floats(1e-3, 0.99), s=st.floats(0.0, 1.0), steps=st.sampled_from([1, 2]))
    @settings(max_examples=20)
    def test_the_certificate_holds_in_exact_arithmetic(self, low, s, steps):
        schedule = f"minimax:{low!r}"
        (stage,) = get_schedule(schedule).stages(steps)
        l, h, k, e, g = map(Fraction, stage)  # noqa: E741
        x = Fraction(s) ** 2
        exact = Fraction(s) * (l * (x * x - h * x + k) ** 2 + e * x + g)
        bottom, top = oni.certified_range((s, s), steps, schedule=schedule)
        assert bottom <= exact <= top <= 1
        # As tight as double precision makes it: terms of up to 150.
        assert top - bottom <= 1e-12

    def test_values_alternate(self):
        # Chebyshev's criterion of the best: low, 1, low, 1, low, 1 at six points of [0.1, 1.0001].
        (stage,) = get_schedule("minimax").stages(2)
        low, _ = oni.certified_range((0.1, 1.0), 2, schedule="minimax")
        s = torch.linspace(0.1, 1.0001, 200_001, dtype=torch.float64)
        values = s * sum(c * s ** (2 * i) for i, c in enumerate(stage.coefficients()))
        turns = ((values[1:-1] - values[:-2]) * (values[2:] - values[1:-1]) < 0).nonzero()[:, 0] + 1
        extremes = torch.cat([values[:1], values[turns], values[-1:]])
        expected = torch.tensor([low, 1, low, 1, low, 1], dtype=torch.float64)
        # The grid misses a turning point by up to 2.3e-6, where the curve bends by less than 1e3.
        torch.testing.assert_close(extremes, expected, atol=1e-8, rtol=0)


def test_the_documented_numbers():
    for schedule, counts in (("newton", (7, 8, 10)), ("minimax", (3, 4, 5))):
        for sigma_min, steps in zip((0.9, 0.998, 1 - 1e-6), counts, strict=True):
            assert oni.steps_for((0.1, 1.0), sigma_min, schedule=schedule) == steps


def test_two_newton_steps_are_one_quartic():
    for p in (0.0, 0.1, 0.5, 1.0):
        inner = p * p - NEWTON_PAIR.h * p + NEWTON_PAIR.k
        quartic = NEWTON_PAIR.l * inner**2 + NEWTON_PAIR.e * p + NEWTON_PAIR.g
        s = p**0.5 if p else 1e-9
        assert quartic == pytest.approx(phi(s, steps=2) / s, rel=1e-12)


def test_a_zero_singular_value_stays():
    assert oni.certified_range((0.0, 0.5), 9)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"interval": (0.0, 1.0), "sigma_min": 0.5}, ValueError, "zero singular value stays zero"),
        ({"interval": (0.5, 0.1), "sigma_min": 0.5}, ValueError, r"interval .*\(0.5, 0.1\)"),
        ({"interval": (0.1, 1.5), "sigma_min": 0.5}, ValueError, r"interval .*1.5"),
        ({"interval": (float("nan"), 1.0), "sigma_min": 0.5}, ValueError, "interval .*nan"),
        ({"interval": 0.1, "sigma_min": 0.5}, TypeError, "interval must be a pair"),
        ({"interval": (0.1, 0.2, 0.3), "sigma_min": 0.5}, TypeError, "interval must be a pair"),
        ({"interval": (0.1, 1.0), "sigma_min": 1.0}, ValueError, r"sigma_min .*1.0"),
        ({"interval": (0.1, 1.0), "sigma_min": -0.1}, ValueError, r"sigma_min .*-0.1"),
        ({"interval": (0.1, 1.0), "sigma_min": "0.5"}, ValueError, "sigma_min .*'0.5'"),
        (
            {"interval": (0.1, 1.0), "sigma_min": 0.5, "schedule": "polar"},
            ValueError,
            "'newton', 'minimax', got 'polar'",
        ),
        (
            {"interval": (0.1, 1.0), "sigma_min": 0.5, "schedule": "minimax:1"},
            ValueError,
            "got 'minimax:1'; .*from 1e-09 to below 1",
        ),
        (
            {"interval": (0.1, 1.0), "sigma_min": 0.5, "schedule": "minimax:nan"},
            ValueError,
            "got 'minimax:nan'",
        ),
        (
            {"interval": (0.1, 1.0), "sigma_min": 1 - 1e-16, "schedule": "minimax"},
            ValueError,
            "closer to 1 than this schedule can certify",
        ),
    ],
)
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        oni.steps_for(**arguments)
