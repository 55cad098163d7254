"""The rules by which a claim is judged: one for all families, the same for both sides of a comparison.

A claim is *held*, *not held*, *undecided* or *not tested*. "A is lower than B" is held if A is surely lower, not held
if B is surely lower, and undecided otherwise. Surely means: the 95 % interval of the difference of their means over
seeds excludes zero. Its half-width is

    sqrt( t^2 (s_A^2 / n_A + s_B^2 / n_B)  +  1.96^2 (v_A + v_B) ),

with s the standard deviation over seeds, t the quantile of Student's distribution with Welch's degrees of freedom (one
row may spread a hundred times as much as the other; with a pooled spread, equal rows would then look different in up to
a quarter of all cases), and v = p (100 - p) / images the sampling variance of an error of p percent on that many test
images. All seeds are tested on the same images, so v does not shrink with their number; that both sides are tested on
the same ones would make it smaller, and is not counted. One seed decides nothing. A run that diverged has an infinite
error in percent, which counts as 100.

A claim about k pairs is held if all of them are, and not held if one surely is the other way round. Chance has k
occasions to turn one round, so that interval has 100 - 5 / k percent instead of 95.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from enum import Enum

from oni.recipes.experiments.intervals import CONFIDENCE, Values, find_interval, t_quantile

__all__ = [
    "Judgement",
    "Kind",
    "Verdict",
    "all_hold",
    "as_verdict",
    "format_rows",
    "is_below_limit",
    "is_equal",
    "is_lower",
    "is_no_worse",
    "join_judgements",
    "judge_as_good_as_best",
    "judge_equal",
    "judge_lower",
    "judge_no_worse",
    "judge_trains",
    "judge_worse_than_best",
    "mirror",
]


class Verdict(str, Enum):
    """What the numbers say of a claim."""

    HELD = "held"
    NOT_HELD = "not held"
    UNDECIDED = "undecided"
    NOT_TESTED = "not tested"

    __str__ = str.__str__


class Kind(str, Enum):
    """Whose claim it is, and of what."""

    PAPER = "paper"
    """What the paper reports of trained networks, of their cost, or of generated images."""
    MATHEMATICS = "mathematics"
    """Formulas, theorems and numerics of the paper, its errata among them."""
    OURS = "ours"
    """A question that the paper does not ask."""

    __str__ = str.__str__


Judgement = tuple[Verdict | bool, str]
"""The verdict, and the numbers that say so. ``True`` or ``False`` where there is nothing random about them."""
HELD, NOT_HELD, UNDECIDED, NOT_TESTED = Verdict


# From intervals to verdicts.


def is_lower(own: Values, other: Values, *, images: int | None = None, pairs: int = 1) -> Verdict:
    """Whether the one is surely lower than the other; not held if it surely is higher, as one of so many ``pairs``.

    >>> is_lower([1.0, 1.1], [3.0, 3.1]).value, is_lower([3.0, 3.1], [1.0, 1.1]).value, is_lower([1.0], [3.0]).value
    ('held', 'not held', 'undecided')
    >>> is_lower([3.0, 3.1], [2.5, 2.6]).value, is_lower([3.0, 3.1], [2.5, 2.6], pairs=10).value
    ('not held', 'undecided')
    """
    if find_interval(own, other, images=images).high < 0:
        return HELD
    wider = find_interval(own, other, images=images, confidence=confidence_of(pairs))
    return NOT_HELD if wider.low > 0 else UNDECIDED


def is_equal(own: Values, other: Values, within: float, *, images: int | None = None, pairs: int = 1) -> Verdict:
    """Whether the two surely differ by less than ``within``; not held if they surely differ by more.

    ``pairs``: see `is_lower`.

    >>> is_equal([1.0, 1.1], [1.0, 1.2], 1.0).value, is_equal([1.0, 1.1], [3.0, 3.1], 1.0).value
    ('held', 'not held')
    """
    interval = find_interval(own, other, images=images)
    if -within < interval.low and interval.high < within:
        return HELD
    wider = find_interval(own, other, images=images, confidence=confidence_of(pairs))
    return NOT_HELD if wider.low > within or wider.high < -within else UNDECIDED


def is_no_worse(own: Values, other: Values, within: float, *, images: int | None = None, pairs: int = 1) -> Verdict:
    """Whether the one is surely not higher than the other by ``within`` or more; not held if it surely is.

    ``pairs``: see `is_lower`.
    """
    if find_interval(own, other, images=images).high < within:
        return HELD
    wider = find_interval(own, other, images=images, confidence=confidence_of(pairs))
    return NOT_HELD if wider.low > within else UNDECIDED


def confidence_of(pairs: int) -> float:
    """With which one of so many pairs must be the other way round, so that chance seldom turns one of them."""
    return 1 - (1 - CONFIDENCE) / pairs


def is_below_limit(values: Values, limit: float) -> Verdict:
    """Whether the mean over seeds is surely below a fixed limit; not held if it surely is above.

    >>> is_below_limit([30.0, 31.0], 80.0).value, is_below_limit([30.0], 80.0).value
    ('held', 'undecided')
    """
    finite = [math.isfinite(value) for value in values]
    if len(values) < 2 or not all(finite):
        # As of two sides: that all runs diverged is sure, that some did is not.
        return NOT_HELD if len(values) > 1 and not any(finite) else UNDECIDED
    half = t_quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return HELD if mean + half < limit else NOT_HELD if mean - half > limit else UNDECIDED


def mirror(verdict: Verdict) -> Verdict:
    """The verdict on the opposite claim."""
    return {HELD: NOT_HELD, NOT_HELD: HELD}.get(verdict, verdict)


def all_hold(verdicts: Iterable[Verdict]) -> Verdict:
    """Whether all hold: not if one does not; not tested, or else undecided, if one is.

    >>> all_hold([Verdict.HELD, Verdict.UNDECIDED]).value, all_hold([Verdict.NOT_HELD, Verdict.UNDECIDED]).value
    ('undecided', 'not held')
    """
    found = set(verdicts)
    return next((verdict for verdict in (NOT_HELD, NOT_TESTED, UNDECIDED) if verdict in found), HELD)


# Judgements: a verdict and the numbers in words.


def join_judgements(judgements: Mapping[str, Judgement]) -> Judgement:
    """One judgement of several, by name: held if all are.

    >>> verdict, text = join_judgements({"a": (Verdict.HELD, "1 < 2"), "b": (Verdict.NOT_HELD, "3 > 2")})
    >>> print(verdict, text, sep="; ")
    not held; a: 1 < 2. b: 3 > 2
    """
    text = ". ".join(f"{name}: {text}" for name, (_, text) in judgements.items())
    return all_hold(as_verdict(verdict) for verdict, _ in judgements.values()), text


def as_verdict(verdict: Verdict | bool) -> Verdict:
    """A fact as a verdict; a verdict as it is."""
    return verdict if isinstance(verdict, Verdict) else HELD if verdict else NOT_HELD


def judge_lower(
    own: Mapping[str, Values],
    others: Mapping[str, Values],
    *,
    images: int | None = None,
    unit: str = " %",
    digits: int = 2,
) -> Judgement:
    """Held if each of our own is surely lower than each of the others; not held if one is surely higher than one.

    Every own row with every other one is a pair; see `is_lower`.

    >>> verdict, text = judge_lower({"ONI": [1.0, 2.0]}, {"plain": [30.0, 31.0]})
    >>> print(verdict, text, sep="; ")
    held; ONI 1.00 % and 2.00 %; plain 30.00 % and 31.00 %
    """
    every = {**own, **others}
    if reason := find_missing(every):
        return NOT_TESTED, reason
    verdicts = {
        (name, other): is_lower(capped(ours, unit), capped(theirs, unit), images=images, pairs=len(own) * len(others))
        for name, ours in own.items()
        for other, theirs in others.items()
    }
    return all_hold(verdicts.values()), f"{describe_doubts(verdicts, every)}{format_rows(every, unit, digits)}"


def judge_equal(
    pairs: Mapping[str, tuple[Values, Values]],
    within: float,
    *,
    trains: float,
    images: int | None = None,
    unit: str = " %",
) -> Judgement:
    """Held if both of every pair surely differ by less than ``within``, not held if one surely differs by more.

    Not tested where neither of a pair trains, to an error below ``trains``.
    """
    if missing := [name for name, pair in pairs.items() if not all(pair)]:
        return NOT_TESTED, f"not yet measured: {', '.join(missing)}"
    judgements: dict[str, Judgement] = {}
    for name, (first, second) in pairs.items():
        text = f"{format_values(first, unit)}; {format_values(second, unit)}"
        first, second = capped(first), capped(second)
        if neither_trains(first, second, trains):
            judgements[name] = NOT_TESTED, f"{text}; neither ends below {trains:g}{unit}"
            continue
        interval = find_interval(first, second, images=images)
        alone = min(len(first), len(second)) < 2
        shown = "one seed decides nothing" if alone else f"difference {interval}"
        judgements[name] = is_equal(first, second, within, images=images, pairs=len(pairs)), f"{text}; {shown}"
    return join_judgements(judgements)


def judge_no_worse(
    own: Mapping[str, Values], other: Mapping[str, Values], within: float, *, trains: float, images: int | None = None
) -> Judgement:
    """Held if the one row is surely not higher than the other by ``within`` or more; not tested if neither trains.

    Each is given with its name.
    """
    every = {**own, **other}
    if reason := find_missing(every):
        return NOT_TESTED, reason
    (ours, theirs), text = map(capped, every.values()), format_rows(every)
    if neither_trains(ours, theirs, trains):
        return NOT_TESTED, f"neither ends below {trains:g} %: {text}"
    return is_no_worse(ours, theirs, within, images=images), text


def capped(errors: Values, unit: str = " %") -> Values:
    """Errors in percent with 100, the most there is, for runs that diverged; other numbers as they are."""
    return [min(error, 100.0) for error in errors] if unit == " %" else errors


def neither_trains(first: Values, second: Values, limit: float) -> bool:
    """Whether both surely end above a limit, so that their equality says nothing."""
    return all(is_below_limit(values, limit) is NOT_HELD for values in (first, second))


def judge_trains(
    values: Mapping[str, Values], control: Mapping[str, Values], limit: float, *, trains: bool = True
) -> Judgement:
    """Whether all of ``values``, training errors in percent, end surely below a limit, or surely not below it.

    Not tested unless a control, which is known to train, does so under the same conditions.
    """
    every = {**values, **control}
    if reason := find_missing(every):
        return NOT_TESTED, reason
    text = f"training error {format_rows(every)}"
    if not control:
        return NOT_TESTED, f"there is no control: {text}"
    if all_hold(is_below_limit(capped(errors), limit) for errors in control.values()) is not HELD:
        return NOT_TESTED, f"the control, {' and '.join(control)}, does not end surely below {limit:g} %: {text}"
    verdicts = [is_below_limit(capped(errors), limit) for errors in values.values()]
    return all_hold(verdicts if trains else map(mirror, verdicts)), text


def judge_worse_than_best(errors: Mapping[int, Values], steps: int, images: int | None) -> Judgement:
    """Whether so many steps have a surely larger test error than the best other number of steps.

    >>> errors = {1: [20.0, 20.5], 2: [10.0, 10.2], 3: [10.5, 10.4]}
    >>> [judge_worse_than_best(errors, steps, images=10_000)[0].value for steps in (1, 3)]
    ['held', 'undecided']
    """
    if reason := find_missing_steps(errors):
        return NOT_TESTED, reason
    best = find_best_other(errors, steps)
    verdict = is_lower(capped(errors[best]), capped(errors[steps]), images=images)
    return verdict, describe_steps(errors)


def judge_as_good_as_best(
    errors: Mapping[int, Values], steps: int, within: float, *, trains: float, images: int | None
) -> Judgement:
    """Whether so many steps are surely not worse than the best other number of steps by ``within`` or more."""
    if reason := find_missing_steps(errors):
        return NOT_TESTED, reason
    own, best = ({f"T = {number}": errors[number]} for number in (steps, find_best_other(errors, steps)))
    verdict, text = judge_no_worse(own, best, within, trains=trains, images=images)
    return verdict, text if verdict is NOT_TESTED else describe_steps(errors)


def find_missing_steps(errors: Mapping[int, Values]) -> str:
    return find_missing({f"{number} steps": values for number, values in errors.items()})


def find_best_other(errors: Mapping[int, Values], steps: int) -> int:
    """The number of steps, other than this one, with the least mean error."""
    return min((number for number in errors if number != steps), key=lambda number: statistics.fmean(errors[number]))


# Words.


def find_missing(rows: Mapping[str, Values]) -> str:
    """What lacks measurements, in words; empty if nothing does."""
    missing = [name for name, values in rows.items() if not values]
    return f"not yet measured: {', '.join(missing)}" if missing else ""


def describe_doubts(verdicts: Mapping[tuple[str, str], Verdict], rows: Mapping[str, Values]) -> str:
    """Which pairs decide against a claim, or leave it open."""
    failed = [f"{other} is lower than {name}" for (name, other), verdict in verdicts.items() if verdict is NOT_HELD]
    open_pairs = [pair for pair, verdict in verdicts.items() if verdict is UNDECIDED]
    if failed:
        return f"{', '.join(failed)}: "
    if not open_pairs:
        return ""
    if any(len(rows[name]) < 2 for pair in open_pairs for name in pair):
        return "one seed decides nothing: "
    return (
        f"not sure of {', '.join(f'{name} and {other}' for name, other in open_pairs)}: " if len(verdicts) > 1 else ""
    )


def describe_steps(errors: Mapping[int, Values]) -> str:
    best = min(errors, key=lambda number: statistics.fmean(errors[number]))
    listed = ", ".join(f"T = {number} {format_values(values)}" for number, values in errors.items())
    return f"best with {best} steps; {listed}"


def format_rows(rows: Mapping[str, Values], unit: str = " %", digits: int = 2) -> str:
    """The numbers of all seeds, by row."""
    return "; ".join(f"{name} {format_values(values, unit, digits)}" for name, values in rows.items())


def format_values(values: Values, unit: str = " %", digits: int = 2) -> str:
    """The numbers of all seeds.

    >>> format_values([1.0, 2.5]), format_values([3.0], unit="", digits=1)
    ('1.00 % and 2.50 %', '3.0')
    >>> format_values([math.inf, 2.5]), format_values([math.inf, math.inf])
    ('diverged and 2.50 %', 'diverged in all seeds')
    """
    if len(values) > 1 and not any(map(math.isfinite, values)):
        return "diverged in all seeds"
    return " and ".join(f"{value:.{digits}f}{unit}" if math.isfinite(value) else "diverged" for value in values)
