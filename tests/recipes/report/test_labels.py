from itertools import combinations

import pytest

from oni.recipes.charts.colours import distance
from oni.recipes.methods import METHODS
from oni.recipes.report.labels import run_colours, run_labels
from oni.recipes.report.sources import RecordedRun
from oni.style import COLOURS


def make_run(**config):
    return RecordedRun("a-run", {"method": "oni", **config}, "finished", [])


@pytest.mark.parametrize(
    ("configs", "labels"),
    [
        ([{}], ["oni"]),
        ([{}, {"method": "plain"}], ["oni", "plain"]),
        (
            [{"learning_rate": 0.5, "seed": 0}, {"learning_rate": 0.1, "seed": 1}],
            ["oni, lr 0.5, seed 0", "oni, lr 0.1, seed 1"],
        ),
        ([{"network_options.depth": 6}, {"network_options.depth": 20}], ["oni, depth 6", "oni, depth 20"]),
        ([{"method_options.center": True}, {"method_options.center": False}], ["oni, center", "oni, not center"]),
        # An option that only one method has tells nothing apart; neither does a setting, once all are told apart.
        ([{"method_options.steps": 5, "epochs": 1}, {"method": "plain", "epochs": 2}], ["oni", "plain"]),
        ([{"epochs": 1, "drops": []}, {"epochs": 2, "drops": [1]}], ["oni, epochs 1", "oni, epochs 2"]),
        ([{}, {}], ["oni (a-run)", "oni (a-run)"]),
    ],
)
def test_labels_name_what_differs(configs, labels):
    assert run_labels([make_run(**config) for config in configs]) == labels


def test_methods_share_no_colour():
    methods = [*METHODS, *(f"new {number}" for number in range(20))]
    colours = run_colours([make_run(method=method) for method in methods for _ in range(2)])
    by_method = {method: set(colours[2 * index : 2 * index + 2]) for index, method in enumerate(methods)}
    assert all(len(shades) == 2 for shades in by_method.values())
    assert all(by_method[first].isdisjoint(by_method[second]) for first, second in combinations(methods, 2))


def test_a_method_has_its_own_colour():
    assert run_colours([make_run(), make_run(method="olm")]) == [COLOURS["oni"].lower(), COLOURS["olm"].lower()]


def test_runs_of_one_method_can_be_told_apart():
    colours = run_colours([make_run(seed=seed) for seed in range(7)])
    # 0.02 is just noticeable between two patches side by side; lines are thin and apart.
    assert min(distance(first, second) for first, second in combinations(colours, 2)) > 0.06
