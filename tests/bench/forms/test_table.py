import io

import pytest
from rich.console import Console

from oni.bench.contender import Contender, Reached
from oni.bench.forms.cases import FORM_CASES
from oni.bench.forms.result import FormResult
from oni.bench.forms.table import faster_than_oni, show_forms
from oni.bench.limit import Products
from oni.bench.settings import Settings
from oni.bench.shape_result import ContenderTimes
from oni.bench.targets import FORM_TARGETS, BenchTarget, judge_targets


def make_entry(name, seconds, *, peak=None, delta=None, word="", at_least=None, **about):
    times = dict(enumerate(seconds))
    orthogonality = None if delta is None else Reached(0.5, 1.0, delta)
    return ContenderTimes(Contender(name, None, **about), times, word, at_least, peak, orthogonality)


@pytest.fixture
def result():
    """Two rounds of known times; the second is ten times slower throughout."""
    entries = [
        make_entry("oni T=2", [0.001, 0.01], peak=3 * 2**20, delta=12.5, steps=2, products=Products(2, 2, 2, 3)),
        make_entry("literal T=2", [0.002, 0.02], peak=4 * 2**20, delta=12.5, steps=2, against="oni T=2"),
        make_entry("oni T=5", [0.004, 0.04], peak=2**20, delta=0.5, steps=5, products=Products(10, 14, 2, 3)),
        make_entry("literal T=5", [0.01, 0.1], peak=2**21, delta=0.5, steps=5, against="oni T=5"),
        make_entry(
            "oni tight T=3", [0.003, 0.03], delta=0.25, steps=3, against="oni T=5", products=Products(6, 9, 2, 3)
        ),
        make_entry("torch cayley", [0.002, 0.02], peak=2**20, delta=1e-6, against="oni T=5"),
        make_entry("torch matrix_exp", [], against="oni T=5", word="skipped: one call took 12 s", at_least=12.0),
        make_entry("torch householder", [], against="oni T=5", word="failed: [red]no[/red]"),
    ]
    products = {"short": {0: 0.0004, 1: 0.004}, "long": {0: 0.0005, 1: 0.005}}
    return FormResult("256x784", (256, 784), {entry.contender.name: entry for entry in entries}, products)


def test_ratios(result):
    assert result.time_ratio("literal T=2", "oni T=2") == pytest.approx((2, 2, 2))
    assert result.time_ratio("torch matrix_exp", "oni T=5") is None
    assert result.time_ratio("torch cayley", "nobody") is None
    assert result.memory_ratio("oni T=2", "literal T=2") == 0.75
    assert result.memory_beside_literal("oni T=2") == 0.75
    assert result.memory_beside_literal("torch cayley") == 0.5
    assert result.delta_ratio("oni tight T=3", "oni T=5") == 0.5
    # 12 s over the median of 4 and 40 ms.
    assert result.least_time_ratio("torch matrix_exp", "oni T=5") == pytest.approx(12 / 0.022)


def nearness(result, name):
    entry = result.entries[name]
    return result.nearness_to_limit(entry.contender.products, entry.times)


def test_limit(result):
    # Products of 0.1 ms each: 4 + 5 of them in 1 ms, 24 + 5 in 4 ms.
    assert nearness(result, "oni T=2") == pytest.approx((0.9, 0.9, 0.9))
    assert nearness(result, "oni T=5") == pytest.approx((0.725, 0.725, 0.725))
    assert nearness(result, "literal T=2") is None
    assert result.product_rate("long").high == pytest.approx(2 * 256 * 256 * 784 / 1e-4, rel=0.3)


@pytest.mark.parametrize(
    ("target", "measured", "reached"),
    [
        (BenchTarget("256x784", "time", "literal T=2", "oni T=2", at_least=1.9), 2.0, True),
        (BenchTarget("256x784", "time", "literal T=2", "oni T=2", at_least=2.1), 2.0, False),
        (BenchTarget("256x784", "time", "oni tight T=3", "oni T=5", at_most=0.7), 0.75, False),
        (BenchTarget("256x784", "time", "torch cayley", "oni T=5", at_least=10), 0.5, False),
        (BenchTarget("256x784", "delta", "oni tight T=3", "oni T=5", at_most=1), 0.5, True),
        (BenchTarget("256x784", "memory", "oni T=5", "literal T=5", at_most=1), 0.5, True),
        (BenchTarget("256x784", "memory", "torch matrix_exp", "literal T=5", at_most=1), None, None),
        (BenchTarget("256x256", "time", "literal T=2", "oni T=2", at_least=1), None, None),
        (BenchTarget("256x784", "time", "torch householder", "oni T=5", at_least=1), None, None),
        # Skipped: enough to show that it is 500 times slower, not that it is not a million times.
        (BenchTarget("256x784", "time", "torch matrix_exp", "oni T=5", at_least=500), 12 / 0.022, True),
        (BenchTarget("256x784", "time", "torch matrix_exp", "oni T=5", at_least=1e6), 12 / 0.022, None),
    ],
)
def test_verdicts(result, target, measured, reached):
    (verdict,) = judge_targets([result], [target])
    assert (verdict.measured and verdict.measured.value) == (None if measured is None else pytest.approx(measured))
    assert verdict.reached is reached


def test_every_target_is_about_someone_who_runs():
    cases = {case.name: case for case in FORM_CASES}
    assert {target.case for target in FORM_TARGETS} == cases.keys()
    asked = {(target.case, target.contender, target.at_least or target.at_most) for target in FORM_TARGETS}
    assert ("256x256", "literal T=2", 2.0) in asked
    assert ("36x16x144", "authors T=2", 1) in asked
    assert ("2048x512", "literal T=5", 10) in asked
    assert ("36x16x144", "36 single calls T=5", 4) in asked
    for target in FORM_TARGETS:
        assert (target.at_least is None) != (target.at_most is None)
        for name in (target.contender, target.over):
            if name.startswith("literal"):
                assert int(name[-1]) in cases[target.case].literal_steps


def test_the_faster_are_named(result):
    (line,) = faster_than_oni([result])
    assert line == "256x784: torch cayley is 2.00 times as fast as oni T=5: delta 1e-06 against 0.50"
    result.entries["torch cayley"].times[1] = 0.055
    (line,) = faster_than_oni([result])
    assert "(within the spread)" in line
    result.entries["torch cayley"].times[0] = 0.005
    assert faster_than_oni([result]) == []


def shown(results, *, plain=False):
    written = io.StringIO()
    terminal = Console(file=written, width=100, highlight=False, markup=False)
    show_forms(results, judge_targets(results, FORM_TARGETS), Settings(plain=plain), terminal)
    return written.getvalue()


def test_the_tables_hold_the_numbers(result):
    text = shown([result])
    rows = {line.split("  ")[0].rstrip(): line.split() for line in text.splitlines()}
    assert rows["literal T=2"][2:] == ["11.0", "6.50-15.5", "2.00", "2.00-2.00", "4.00", "1.00", "delta", "12.50"]
    assert rows["oni T=2"][-2:] == ["limit", "90%"]
    assert "skipped: one call took 12 s" in text
    assert "[red]no[/red]" in text
    assert "short (256 x 256 x 256)" in text
    judged = [line for line in text.splitlines() if line.startswith("256x784") and " / " in line]
    assert [line.split()[-1] for line in judged] == ["reached"] * 4
    assert "0.750  reached" in judged[0]
    assert f"Left out: {len(FORM_TARGETS) - 4} targets" in text


def test_output_fits_and_is_as_plain_as_asked(result):
    for plain in (False, True):
        text = shown([result, FormResult("256x256", (256, 256))], plain=plain)
        assert max(map(len, text.splitlines())) <= 100
        assert text.isascii() == plain


def test_nothing_measured():
    assert "Left out" in shown([])
