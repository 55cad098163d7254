"""The one rule of judging: it is the same for both sides, as sure as it says, and one seed decides nothing."""

import itertools
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oni.recipes.experiments.intervals import find_interval, t_quantile
from oni.recipes.experiments.verdicts import (
    Verdict,
    all_hold,
    as_verdict,
    is_below_limit,
    is_equal,
    is_lower,
    is_no_worse,
    join_judgements,
    judge_as_good_as_best,
    judge_equal,
    judge_lower,
    judge_no_worse,
    judge_trains,
    judge_worse_than_best,
    mirror,
)

HELD, NOT_HELD, UNDECIDED, NOT_TESTED = Verdict
OPPOSITE = {HELD: NOT_HELD, NOT_HELD: HELD, UNDECIDED: UNDECIDED, NOT_TESTED: NOT_TESTED}
PERCENT = st.floats(0, 100)
SEEDS = st.lists(PERCENT, min_size=1, max_size=5)
# Of a run that diverged there may be no finite number.
DIVERGING = st.lists(PERCENT | st.just(math.inf) | st.just(math.nan), min_size=1, max_size=5)
IMAGES = st.sampled_from([None, 1, 500, 10_000])


@st.composite
def near(draw, sizes=(2, 5)):
    """Seeds with a small spread around any mean, so that all verdicts are met."""
    middle, spread = draw(st.floats(2, 98)), draw(st.sampled_from([0.0, 0.01, 1.0]))
    count = draw(st.integers(*sizes))
    return [middle + spread * draw(st.floats(-1, 1)) for _ in range(count)]


ROWS = SEEDS | DIVERGING | near()


# Intervals.


@pytest.mark.parametrize(
    ("degrees", "quantile"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)],
)
def test_quantiles_are_those_of_printed_tables(degrees, quantile):
    # Half a unit of the last digit that tables print.
    assert t_quantile(degrees) == pytest.approx(quantile, abs=5e-4)


def test_quantiles_fall_to_those_of_the_normal_distribution():
    quantiles = [t_quantile(degrees) for degrees in range(1, 60)]
    assert quantiles == sorted(quantiles, reverse=True)
    # z (z^2 + 1) / (4 degrees), the next term of the expansion, is 2.4e-4.
    assert t_quantile(10_000) == pytest.approx(1.959964, abs=3e-4)


def test_an_interval_by_hand():
    """Means 2 and 12, of variances 2 / 2 and 4 / 3: 7 / 3 on 49 / 17 degrees of freedom, so t = 3.257208."""
    own, other = [1.0, 3.0], [10.0, 12.0, 14.0]
    interval = find_interval(own, other)
    # t sqrt(7 / 3), with t from the density, by the midpoint rule. The numbers here have seven digits.
    assert (interval.low, interval.high) == pytest.approx((-14.975468, -5.024532), abs=2e-6)
    # 1.96^2 (2 * 98 + 12 * 88) / 10,000 = 0.480968, under the root with 4.975468^2.
    interval = find_interval(own, other, images=10_000)
    assert (interval.low, interval.high) == pytest.approx((-15.023568, -4.976432), abs=2e-6)
    assert str(find_interval([1.0, 1.0], [0.5, 0.5])) == "+0.50 (+0.50 to +0.50)"


def test_the_error_of_sampling_is_not_less_with_more_seeds():
    few, many = (find_interval(seeds * [40.0], seeds * [40.0], images=10_000).high for seeds in (2, 8))
    # 1.959964 sqrt(2 * 40 * 60 / 10,000).
    assert few == many == pytest.approx(1.357903, abs=1e-6)


def decide_equals(count, draw):
    """The verdicts on two sides that ``draw`` gives, of which neither is lower."""
    generator = random.Random(0)
    found = [draw(generator) for _ in range(count)]
    return {verdict: found.count(verdict) / count for verdict in Verdict}


def tolerance(probability, count):
    """Four standard deviations of a share of independent draws."""
    return 4 * math.sqrt(probability * (1 - probability) / count)


@pytest.mark.parametrize("seeds", [(2, 2), (2, 3), (5, 5)])
def test_equal_sides_are_undecided_in_95_of_100_cases(seeds):
    def draw(generator):
        own, other = ([generator.gauss(20, 0.5) for _ in range(number)] for number in seeds)
        return is_lower(own, other)

    shares = decide_equals(2000, draw)
    # With two or three seeds more often: Welch's degrees of freedom are then fewer than the rows', if these are alike.
    assert shares[UNDECIDED] > 0.95 - tolerance(0.95, 2000)
    assert shares[UNDECIDED] < (0.95 if seeds == (5, 5) else 0.975) + tolerance(0.95, 2000)
    assert shares[HELD] == pytest.approx(shares[NOT_HELD], abs=2 * tolerance(0.025, 2000))


@pytest.mark.parametrize("spread", [0.0, 0.1])
@pytest.mark.parametrize("seeds", [(2, 2), (3, 3), (2, 3), (3, 2)])
def test_a_steady_row_does_not_make_an_unsteady_one_look_sure(seeds, spread):
    """With one spread for both, up to 27 % of equal sides were decided."""

    def draw(generator):
        own, other = (
            [generator.gauss(20, each) for _ in range(number)] for number, each in zip(seeds, (spread, 1), strict=True)
        )
        return is_lower(own, other)

    # Welch's degrees of freedom are an approximation: at worst, three seeds of the steady row, 8 % are decided.
    assert decide_equals(2000, draw)[UNDECIDED] > 0.92 - tolerance(0.92, 2000)


def test_networks_tested_on_a_few_images_are_undecided_at_least_as_often():
    """Test images that are easy for a side are so in all its seeds; here they make most of what differs."""
    images, error, count = 400, 0.3, 1000

    def draw(generator):
        sides = []
        for _ in range(2):
            luck = 100 * sum(generator.random() < error for _ in range(images)) / images
            sides.append([luck + generator.gauss(0, 0.2) for _ in range(3)])
        return is_lower(*sides, images=images)

    shares = decide_equals(count, draw)
    # The sum of the two squares is a little more than 95 % need. Were the second divided by the seeds, it were 74 %.
    assert 0.95 - tolerance(0.95, count) < shares[UNDECIDED] < 0.98


# Both sides alike.


@given(ROWS, ROWS, IMAGES)
def test_swapping_the_sides_mirrors_the_verdict(own, other, images):
    verdict = is_lower(own, other, images=images)
    assert is_lower(other, own, images=images) is OPPOSITE[verdict]
    assert mirror(verdict) is OPPOSITE[verdict]


@given(ROWS, ROWS, st.floats(0, 50), IMAGES)
def test_swapping_the_sides_leaves_equality_as_it_is(own, other, within, images):
    assert is_equal(own, other, within, images=images) is is_equal(other, own, within, images=images)


@given(near(), near(), IMAGES)
def test_swapping_the_sides_mirrors_a_judgement(own, other, images):
    ours, theirs = {"ours": own}, {"theirs": other}
    assert judge_lower(theirs, ours, images=images)[0] is OPPOSITE[judge_lower(ours, theirs, images=images)[0]]


@given(st.lists(near(), min_size=1, max_size=3), st.lists(near(), min_size=1, max_size=3), IMAGES)
def test_what_is_held_of_several_is_not_held_of_their_opposite(own, others, images):
    ours = {f"ours {index}": row for index, row in enumerate(own)}
    theirs = {f"theirs {index}": row for index, row in enumerate(others)}
    if judge_lower(ours, theirs, images=images)[0] is HELD:
        assert judge_lower(theirs, ours, images=images)[0] is NOT_HELD


def test_the_rules_meet_every_verdict():
    """So that the properties above are not about one verdict alone."""
    low, high, wide = [10.0, 10.1], [12.0, 12.1], [5.0, 20.0]
    assert [is_lower(low, high), is_lower(high, low), is_lower(low, wide)] == [HELD, NOT_HELD, UNDECIDED]
    assert [is_equal(low, high, 5), is_equal(low, high, 1), is_equal(low, wide, 1)] == [HELD, NOT_HELD, UNDECIDED]
    assert [is_no_worse(low, high, 1), is_no_worse(high, low, 1), is_no_worse(low, wide, 1)] == [
        HELD,
        NOT_HELD,
        UNDECIDED,
    ]
    # Too few images to tell.
    assert [is_lower(low, high, images=images) for images in (10_000, 1000)] == [HELD, UNDECIDED]


@given(near(), near(), st.floats(0, 50), IMAGES)
def test_equality_is_no_less_and_no_more(own, other, within, images):
    """Held if neither is worse by so much; not held if one surely is."""
    both = [is_no_worse(a, b, within, images=images) for a, b in ((own, other), (other, own))]
    assert is_equal(own, other, within, images=images) is all_hold(both)


# One seed, and numbers that are not finite.


@given(PERCENT, ROWS, IMAGES)
def test_one_seed_decides_nothing(one, other, images):
    for sides in (([one], other), (other, [one])):
        assert is_lower(*sides, images=images) is UNDECIDED
        assert is_equal(*sides, 10.0, images=images) is UNDECIDED
        assert is_no_worse(*sides, 10.0, images=images) is UNDECIDED
    assert is_below_limit([one], 50.0) is UNDECIDED


def test_one_seed_is_named_as_the_reason():
    assert judge_lower({"a": [1.0]}, {"b": [30.0, 31.0]}) == (
        UNDECIDED,
        "one seed decides nothing: a 1.00 %; b 30.00 % and 31.00 %",
    )
    verdict, text = judge_equal({"a and b": ([1.0], [1.0, 1.1])}, 5.0, trains=50.0)
    assert (verdict, text) == (UNDECIDED, "a and b: 1.00 %; 1.00 % and 1.10 %; one seed decides nothing")


@pytest.mark.parametrize("lost", [math.inf, math.nan])
def test_a_side_that_diverged_in_all_seeds_is_surely_higher(lost):
    diverged, finite = [lost, lost], [10.0, 90.0]
    assert is_lower(finite, diverged) is HELD
    assert is_lower(diverged, finite, images=100) is NOT_HELD
    assert is_equal(finite, diverged, 1e6) is NOT_HELD
    assert is_no_worse(finite, diverged, 0.0) is HELD
    assert is_no_worse(diverged, finite, 1e6) is NOT_HELD
    # Both, or in some seeds only.
    for own, other in ((diverged, diverged), ([10.0, lost], [90.0, 91.0]), ([10.0, lost], diverged)):
        assert is_lower(own, other) is is_lower(other, own) is is_equal(own, other, 5.0) is UNDECIDED


@pytest.mark.parametrize("lost", [math.inf, math.nan])
def test_rows_that_diverged_leave_the_others_alone(lost):
    rows = {"a": [10.0, 10.1], "b": [12.0, 12.1], "c": [14.0, lost], "d": [lost, lost]}
    assert judge_lower({"a": rows["a"]}, {"b": rows["b"], "d": rows["d"]})[0] is HELD
    assert judge_lower({"a": rows["a"]}, {"b": rows["b"], "c": rows["c"]})[0] is UNDECIDED
    assert judge_lower({"d": rows["d"]}, {"b": rows["b"], "c": rows["c"]})[0] is NOT_HELD


@pytest.mark.parametrize("lost", [math.inf, math.nan])
def test_what_diverged_is_not_below_a_limit(lost):
    assert is_below_limit([lost, lost], 50.0) is NOT_HELD
    assert is_below_limit([10.0, lost], 50.0) is UNDECIDED


# Limits, and controls.


@given(near(), st.floats(0, 100))
def test_a_limit_has_two_sides_too(values, limit):
    assert is_below_limit([-value for value in values], -limit) is OPPOSITE[is_below_limit(values, limit)]


def test_a_limit_by_hand():
    # Mean 11, s^2 = 2 on one degree, t = 12.706: the half-width is 12.706.
    assert [is_below_limit([10.0, 12.0], limit) for limit in (23.8, 23.6, -1.8)] == [HELD, UNDECIDED, NOT_HELD]


TRAINED, STUCK, UNSURE = [20.0, 20.1], [89.0, 89.1], [10.0, 89.0]


@pytest.mark.parametrize(("errors", "expected"), [(TRAINED, HELD), (STUCK, NOT_HELD)])
def test_training_and_not_training_are_opposites(errors, expected):
    control = {"control": TRAINED}
    assert judge_trains({"own": errors}, control, 80.0)[0] is expected
    assert judge_trains({"own": errors}, control, 80.0, trains=False)[0] is OPPOSITE[expected]


@given(near(), near(), st.floats(0, 100))
def test_training_mirrors(errors, control, limit):
    positive, negative = (
        judge_trains({"own": errors}, {"control": control}, limit, trains=trains)[0] for trains in (True, False)
    )
    assert negative is OPPOSITE[positive]


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize("control", [STUCK, UNSURE, [20.0]])
def test_without_a_control_that_trains_nothing_is_tested(trains, control):
    verdict, text = judge_trains({"own": STUCK}, {"batch norm": control}, 80.0, trains=trains)
    assert verdict is NOT_TESTED
    assert text.startswith("the control, batch norm, does not end surely below 80 %: training error own 89.00 %")
    assert judge_trains({"own": STUCK}, {"one": TRAINED, "other": control}, 80.0, trains=trains)[0] is NOT_TESTED
    assert judge_trains({"own": TRAINED}, {}, 80.0, trains=trains)[0] is NOT_TESTED, "there is no control"
    assert judge_trains({"own": []}, {"batch norm": TRAINED}, 80.0, trains=trains) == (
        NOT_TESTED,
        "not yet measured: own",
    )


def test_several_train_if_each_does():
    control = {"control": TRAINED}
    rows = {"one": TRAINED, "other": STUCK}
    for trains in (True, False):
        assert judge_trains(rows, control, 80.0, trains=trains)[0] is NOT_HELD
    assert judge_trains({"one": TRAINED, "other": [79.0, 81.0]}, control, 80.0)[0] is UNDECIDED


# The best number of steps.


def test_the_best_other_number_of_steps():
    errors = {1: [20.0, 20.2], 2: [10.0, 10.2], 3: [10.1, 10.3], 4: [15.0, 15.2]}
    worse = {steps: judge_worse_than_best(errors, steps, None)[0] for steps in errors}
    assert worse == {1: HELD, 2: UNDECIDED, 3: UNDECIDED, 4: HELD}
    good = {steps: judge_as_good_as_best(errors, steps, 1.0, trains=50.0, images=None)[0] for steps in errors}
    assert good == {1: NOT_HELD, 2: HELD, 3: HELD, 4: NOT_HELD}
    # The best of all is surely not worse than the second best, where that is far behind.
    assert judge_worse_than_best({1: [20.0, 20.2], 2: [10.0, 10.2]}, 2, None)[0] is NOT_HELD
    assert judge_as_good_as_best(two := {1: [20.0, 20.2], 2: [10.0, 10.2]}, 2, 1.0, trains=50.0, images=None)[0] is HELD
    assert judge_as_good_as_best(two, 2, 1.0, trains=5.0, images=None)[0] is NOT_TESTED, "where nothing trains"
    _, text = judge_worse_than_best({1: [20.0], 2: [10.0]}, 1, None)
    assert text == "best with 2 steps; T = 1 20.00 %, T = 2 10.00 %"
    missing = (NOT_TESTED, "not yet measured: 1 steps")
    assert judge_worse_than_best({1: [], 2: [1.0]}, 1, None) == missing
    assert judge_as_good_as_best({1: []}, 1, 1.0, trains=50.0, images=None) == missing


def test_equality_of_what_does_not_train_says_nothing():
    def judge(first, second):
        return judge_equal({"a and b": (first, second)}, 1.0, trains=80.0, images=10_000)[0]

    chance, diverged, trained = [90.0, 90.0], [math.inf, math.inf], [10.0, 10.1]
    assert judge(chance, chance) is judge(diverged, diverged) is judge(chance, diverged) is NOT_TESTED
    assert judge(chance, trained) is judge(trained, chance) is NOT_HELD
    assert judge(diverged, trained) is NOT_HELD
    assert judge([10.0, math.inf], trained) is UNDECIDED
    # For what is lower, a run that diverged has as many errors as there are.
    assert judge_lower({"a": trained}, {"b": [89.0, math.inf]}, images=10_000)[0] is HELD
    assert judge_lower({"a": [89.0, math.inf]}, {"b": trained}, images=10_000)[0] is NOT_HELD
    assert judge_lower({"a": diverged}, {"b": diverged}, images=10_000)[0] is UNDECIDED
    _, text = judge_equal({"a and b": (diverged, diverged)}, 1.0, trains=80.0)
    assert text == "a and b: diverged in all seeds; diverged in all seeds; neither ends below 80 %"
    no_worse = {
        first: judge_no_worse({"a": errors}, {"b": chance}, 1.0, trains=80.0)[0]
        for first, errors in (("chance", chance), ("trained", trained))
    }
    assert no_worse == {"chance": NOT_TESTED, "trained": HELD}
    assert judge_no_worse({"a": []}, {"b": chance}, 1.0, trains=80.0) == (NOT_TESTED, "not yet measured: a")


# Several claims in one.


def test_many_equal_pairs_are_rarely_called_different():
    """With ten pairs of equal rows, chance alone turns one round in more than 5 of 100 cases if each has 5."""
    generator = random.Random(0)
    found = []
    for _ in range(400):
        rows = [[generator.gauss(30.0, 0.2) for _ in range(3)] for _ in range(7)]
        own = {f"own {index}": row for index, row in enumerate(rows[:2])}
        others = {f"other {index}": row for index, row in enumerate(rows[2:])}
        found.append(judge_lower(own, others)[0])
    # At most 2.5 of 100 by the union bound, 10 of 400; six more are two standard deviations.
    assert found.count(NOT_HELD) <= 16
    assert found.count(HELD) == 0


def test_one_that_fails_outweighs_what_is_not_known():
    order = [NOT_HELD, NOT_TESTED, UNDECIDED, HELD]
    for size in (1, 2, 3, 4):
        for verdicts in itertools.product(Verdict, repeat=size):
            assert all_hold(verdicts) is min(verdicts, key=order.index)
    assert all_hold([]) is HELD


def test_judgements_are_joined():
    verdict, text = join_judgements({"a": (True, "1 < 2"), "b": (UNDECIDED, "1 or 2"), "c": (HELD, "1 < 3")})
    assert (verdict, text) == (UNDECIDED, "a: 1 < 2. b: 1 or 2. c: 1 < 3")
    assert join_judgements({"a": (UNDECIDED, ""), "b": (NOT_TESTED, "")})[0] is NOT_TESTED
    assert join_judgements({"a": (NOT_TESTED, ""), "b": (False, "")})[0] is NOT_HELD
    assert [as_verdict(verdict) for verdict in (True, False, *Verdict)] == [HELD, NOT_HELD, *Verdict]


def test_other_rows_do_not_change_the_verdict_on_a_pair():
    """Neither steady ones, which would make it look sure, nor an unsteady one, which would hide what is sure."""
    wide, other, steady, unsteady = [10.0, 11.0], [13.0, 14.0], [13.0, 13.0], [5.0, 90.0]
    assert judge_lower({"a": wide}, {"b": other})[0] is UNDECIDED
    assert judge_lower({"a": wide}, {"b": other, "c": steady, "d": steady})[0] is UNDECIDED
    assert judge_worse_than_best({1: other, 2: wide, 3: steady, 4: steady}, 1, None)[0] is UNDECIDED
    # 10.5 and 20 differ by more than 4.303 s = 3.04.
    assert judge_worse_than_best({1: [19.5, 20.5], 2: wide, 3: unsteady}, 1, None)[0] is HELD
    assert judge_trains({"own": [60.0, 60.0]}, {"control": [60.0, 70.0]}, 80.0)[0] is NOT_TESTED
    assert judge_trains({"own": [60.0, 60.0]}, {"control": [60.0, 61.0]}, 80.0)[0] is HELD


def test_doubts_are_named():
    rows = {"a": [10.0, 10.1], "b": [12.0, 12.1], "c": [10.0, 10.1]}
    others = {"b": rows["b"], "c": rows["c"]}
    assert judge_lower({"a": rows["a"]}, others)[1].startswith("not sure of a and c: a 10.00 % and 10.10 %; b ")
    assert judge_lower({"b": rows["b"]}, {"c": rows["c"]})[1].startswith("c is lower than b: b 12.00 %")
    assert judge_lower({"a": rows["a"]}, {"c": []}) == (NOT_TESTED, "not yet measured: c")
    assert judge_equal({"a and c": (rows["a"], []), "a and b": (rows["a"], rows["b"])}, 1.0, trains=50.0) == (
        NOT_TESTED,
        "not yet measured: a and c",
    )
