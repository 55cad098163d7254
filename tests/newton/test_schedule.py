"""Every schedule keeps the same contract; steps_for and certified_range say what it guarantees."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rounding import rounding

import oni
from oni.newton.iteration import stages
from oni.newton.reference import oracle
from oni.newton.schedule import SCHEDULES, phi, stretches

ends = st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)).map(lambda pair: tuple(sorted(pair)))


@pytest.mark.parametrize("schedule", SCHEDULES)
class TestContract:
    def test_every_stretch_is_allowed(self, schedule):
        # 1 <= stretch <= sqrt 3 is what certifies sigma_max <= 1.
        assert all(1 - 1e-12 <= a <= 3**0.5 for a in stretches(schedule, 50))

    def test_a_longer_schedule_continues_a_shorter_one(self, schedule):
        assert stretches(schedule, 20)[:7] == stretches(schedule, 7)

    @given(interval=ends, steps=st.integers(0, 12))
    def test_the_certified_range_is_the_image(self, schedule, interval, steps):
        low, high = oni.certified_range(interval, steps, schedule=schedule)
        s = torch.linspace(*interval, 1001, dtype=torch.float64)
        for stretch in stretches(schedule, steps):
            s = phi(stretch * s)
        # Rounding of at most 12 steps of slope 2.6.
        assert low - 1e-10 <= s.min()
        assert s.max() <= high + 1e-10
        assert high <= 1
        # Not only a bound but attained, up to the grid: its spacing of 1e-3 grows by 2.6 a step, to .05 after four.
        if steps <= 4:
            assert s.max() >= high - 0.05

    @pytest.mark.parametrize("bound", ["frobenius", "compact", "tight"])
    @pytest.mark.parametrize("shape", [(6, 10), (10, 6), (7, 7)])
    def test_the_matrix_function_is_the_scalar_map(self, schedule, bound, shape):
        Z = torch.randn(shape, dtype=torch.float64)
        for steps in range(12):
            options = {"center": False, "bound": bound, "schedule": schedule}
            W = oni.orthogonalize(Z, steps, **options)
            torch.testing.assert_close(W, oracle(Z, steps, **options), atol=1e-11, rtol=0)
            assert oni.spectrum(W)[0] <= 1 + 1e-13

    @pytest.mark.parametrize("scale", [1e-3, 1.0])
    def test_sigma_max_in_float32_at_every_length(self, schedule, scale):
        # A spectrum that reaches from tiny to the bound itself, where overshooting would show.
        sigma = torch.logspace(-4, 0, 16) * scale
        Z = torch.linalg.qr(torch.randn(16, 16)).Q @ torch.diag(sigma) @ torch.linalg.qr(torch.randn(24, 16)).Q.T
        for steps in range(20):
            W = oni.orthogonalize(Z, steps, center=False, bound="tight", schedule=schedule)
            # Beyond 8 steps the Gram matrix is formed anew, so no more than 8 steps of 2.5 products follow each other.
            assert oni.spectrum(W)[0] <= 1 + rounding(20, 24)["rtol"]

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
    minimax = oni.steps_for((low, 1.0), target, schedule="minimax")
    assert minimax < newton
    # A step costs the same: both are made of the same stages.
    kinds = [bool(stage.l) for stage in stages(stretches("minimax", minimax))]
    assert kinds == [bool(stage.l) for stage in stages(stretches("newton", minimax))]


def test_the_documented_numbers():
    assert oni.steps_for((0.1, 1.0), 1 - 1e-6, schedule="minimax") == 6
    assert oni.steps_for((0.1, 1.0), 1 - 1e-6) == 10


@pytest.mark.parametrize("pair", [(1.0, 1.0), (1.7, 1.2), (1.0, 1.5)])
def test_two_steps_are_one_quartic(pair):
    (stage,) = stages(pair)
    for p in (0.0, 0.1, 0.5, 1.0):
        inner = p * p - stage.h * p + stage.k
        quartic = stage.l * inner**2 + stage.e * p + stage.g
        s = p**0.5 if p else 1e-9
        two_steps = phi(pair[1] * phi(pair[0] * s)) / s
        assert quartic == pytest.approx(two_steps, rel=1e-12)


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
    ],
)
def test_bad_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        oni.steps_for(**arguments)
