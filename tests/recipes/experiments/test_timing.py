"""Table A1: convolutions that compute the same are timed, and overlapping intervals decide nothing."""

import re

import pytest
import torch
from torch import nn

from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.timing import tableA1
from oni.timing import Interval


def test_timed_convolutions_compute_the_same():
    torch.manual_seed(0)
    modules = tableA1.make_contenders(3, 8)
    assert next(iter(modules)) == "plain"
    assert len(modules) == 1 + 2 * len(tableA1.STEPS) + 1
    Z = 100 * torch.randn(8, 8, 3, 3)  # large, so that the 1e-5 of the authors' form is small
    for steps in tableA1.STEPS:
        weights = []
        for name in ("oni", "authors"):
            module = modules[f"{name} T={steps}"]
            with torch.no_grad():
                module.get_parameter("parametrizations.weight.original").copy_(Z)
            assert isinstance(module, nn.Conv2d)
            weights.append(module.weight)
        torch.testing.assert_close(*weights, atol=1e-4, rtol=0)
    assert all(module(torch.zeros(1, 8, 4, 4)).shape == (1, 8, 4, 4) for module in modules.values())


def test_printed_times():
    # In the text: 1.48 times in the worst case.
    assert round(tableA1.printed_ratio(tableA1.WORST, 5), 2) == 1.48
    assert round(tableA1.printed_ratio(tableA1.ROOMY, 7), 2) == 1.06


def make_results(added=lambda case, name: (9.0, 10.0, 11.0), plain=(99.0, 100.0, 101.0)):
    """What the preset laptop gives, if it measures what a function of case and contender says."""
    names = [f"{kind} T={steps}" for kind in ("oni", "authors") for steps in tableA1.STEPS] + ["spectral norm"]
    return Results(
        Run(
            parameters,
            {
                "added": {name: list(added(parameters.case, name)) for name in names},
                "plain_at_full_batch": list(plain),
            },
        )
        for parameters in tableA1.EXPERIMENT.planned("laptop")
    )


def judge(results):
    return {claim["text"]: claim for claim in tableA1.EXPERIMENT.judge(results, "laptop")}


def test_overlapping_intervals_are_undecided():
    claims = judge(make_results())
    for text in ("The worst case is k1 n1024 m32", "A smaller kernel is less efficient"):
        assert claims[text]["verdict"] == "undecided"
        assert claims[text]["detail"].startswith("the intervals overlap; ")
    for text in ("More steps take longer", "This library adds less time than the authors' form"):
        assert claims[text]["verdict"] == "undecided"
        assert re.match(r"(\d+) of \1 pairs of intervals overlap; ", claims[text]["detail"])


def test_an_interval_around_the_limit_is_undecided():
    text = "T=5 costs at most the printed 1.48 times in the worst case"
    verdicts = {
        added: judge(make_results(lambda case, name, added=added: (added - 5, added, added + 5)))[text]["verdict"]
        for added in (30.0, 48.0, 70.0)
    }
    assert verdicts == {30.0: "held", 48.0: "undecided", 70.0: "not held"}


def test_a_disturbed_measurement_decides_nothing():
    def added(case, name):
        return (-300.0, -278.0, -250.0) if case == "k1 n256 m256" else (9.0, 10.0, 11.0)

    claims = judge(make_results(added)).values()
    assert {claim["verdict"] for claim in claims} == {"not tested"}
    assert {"took less time than the bare convolution in k1 n256 m256" in claim["detail"] for claim in claims} == {True}


def test_clear_differences_are_judged():
    def added(case, name):
        steps = int(name.partition("=")[2] or 1)
        value = steps * (10 if "n1024" in case else 5 if "k1" in case and "m32" in case else 1)
        value *= 1.0 if name.startswith("authors") else 0.5
        return 0.99 * value, value, 1.01 * value

    results = make_results(added, plain=(100.0, 100.0, 100.0))
    verdicts = {text: claim["verdict"] for text, claim in judge(results).items()}
    # k3 n1024 costs as much here as the worst case is said to.
    assert verdicts.pop("The worst case is k1 n1024 m32") == "undecided"
    assert set(verdicts.values()) == {"held"}


def test_the_other_way_round_claims_are_not_held():
    def added(case, name):
        steps = int(name.partition("=")[2] or 1)
        value = (8 - steps) * (100 if "k3" in case or "m256" in case else 20 if "n256" in case else 10)
        value *= 0.5 if name.startswith("authors") else 1.0
        return 0.99 * value, value, 1.01 * value

    claims = judge(make_results(added, plain=(10.0, 10.0, 10.0)))
    assert {claim["verdict"] for claim in claims.values()} == {"not held"}
    assert {claim["kind"] for claim in claims.values()} == {"ours"}, "a CPU can't show what a GPU takes"


def test_the_ratio_s_interval_has_both_uncertainties():
    results = make_results(lambda case, name: (8.0, 10.0, 12.0), plain=(80.0, 100.0, 120.0))
    ratio = tableA1.ratio_interval(results, tableA1.WORST, "oni T=5")
    # 8/120, 10/100, 12/80
    assert ratio == pytest.approx((1 + 1 / 15, 1.1, 1.15))


def test_differences_are_taken_within_rounds():
    base = {0: 1.0, 1: 10.0, 2: 1.0}
    assert tableA1.interval_of_difference({0: 1.5, 1: 10.5, 2: 1.5}, base) == pytest.approx((0.5, 0.5, 0.5))
    assert isinstance(tableA1.interval_of_difference(base, base), Interval)


def test_every_case_is_timed_with_enough_rounds():
    for preset in ("laptop", "paper"):
        planned = tableA1.EXPERIMENT.planned(preset)
        assert [run.case for run in planned] == list(tableA1.CASES)
        assert min(run.rounds for run in planned) >= 5
    # The time budgets of the preset laptop, without the plain convolution at the paper's batch.
    assert sum(run.seconds for run in tableA1.EXPERIMENT.planned("laptop")) <= 240
