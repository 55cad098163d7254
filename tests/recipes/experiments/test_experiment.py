"""Experiments as data: results, verdicts, tables, and that every experiment is complete."""

import json
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path

import pytest

from oni.recipes import experiments
from oni.recipes.experiments.experiment import (
    Claim,
    Comparison,
    Quantity,
    Results,
    Run,
    as_record,
    read_parameters,
    round_numbers,
)
from oni.recipes.experiments.registry import MODULES, PAPER, load_all, load_experiment, paper_order
from oni.recipes.experiments.runs import Training
from oni.recipes.experiments.table_formats import format_csv, format_latex, format_markdown
from oni.recipes.experiments.verdicts import Kind, Verdict

FOLDER = Path(experiments.__file__).parent


@dataclass(frozen=True)
class Parameters:
    seed: int
    epochs: int = field(default=1)
    overrides: dict = field(default_factory=dict)


# Results.


def test_numbers_are_rounded_and_what_is_not_finite_is_none():
    assert round_numbers((1, True, "x", None, 1 / 3, float("inf"), {2: 1e-300})) == [
        1,
        True,
        "x",
        None,
        0.333333,
        None,
        {"2": 1e-300},
    ]


def test_what_is_not_finite_shows_in_a_mean():
    results = Results([Run(None, {"a": [1.0, None], "b": 1.0}), Run(None, {"a": [3.0, 2.0], "b": 2.0})])
    assert results.mean("a") == [2.0, float("inf")]
    assert results.mean("b") == 1.5
    assert results.deviation("b") == pytest.approx(0.5**0.5)


def test_runs_are_chosen_by_parameters():
    results = Results(Run(Parameters(seed, epochs), {"error": 0.1}) for seed in (0, 1) for epochs in (2, 3))
    assert [run.parameters.epochs for run in results.where(seed=1)] == [2, 3]
    assert results.where(nothing="of this") == ()
    assert (results.size("seeds"), results.size("epochs"), results.size("steps")) == (2, 2, 0)


# Verdicts.


def judge(preset="laptop", held=True, needs=None, epochs=10, seeds=2):
    results = Results(Run(Parameters(seed, epochs), {"error": 0.1}) for seed in range(seeds))
    return Claim(Kind.OURS, "It trains", lambda results: (held, "by numbers"), needs or {}).record(results, preset)


@pytest.mark.parametrize(
    ("arguments", "verdict", "detail"),
    [
        ({}, "held", "by numbers"),
        ({"held": False}, "not held", "by numbers"),
        *(({"held": verdict}, verdict.value, "by numbers") for verdict in Verdict),
        ({"preset": "smoke"}, "not tested", "the preset smoke only shows that everything runs"),
        ({"seeds": 0}, "not tested", "not yet measured"),
        ({"needs": {"epochs": 10, "seeds": 2}}, "held", "by numbers"),
        ({"needs": {"epochs": 11}}, "not tested", "the runs have epochs = 10, and this needs at least 11"),
        ({"needs": {"seeds": 3}}, "not tested", "the runs have seeds = 2, and this needs at least 3"),
    ],
)
def test_verdicts(arguments, verdict, detail):
    assert judge(**arguments) == {"kind": "ours", "text": "It trains", "verdict": verdict, "detail": detail}


def test_a_claim_that_can_t_be_borne_is_not_judged():
    def fail(results):
        raise AssertionError("judged")

    claim = Claim(Kind.PAPER, "", fail, {"epochs": 5})
    assert claim.record(Results([Run(Parameters(0), {"error": 0.1})]), "laptop")["verdict"] == "not tested"


# Parameters in results.json.


def test_parameters_are_read_back():
    class Subject:
        id, parameters = "fig99", (Parameters,)

    for parameters in (Parameters(3, 5), Parameters(3, 5, {"momentum": 0.9})):
        record = json.loads(json.dumps(as_record(Run(parameters, {}))))["parameters"]
        assert ("overrides" in record) == bool(parameters.overrides)
        assert read_parameters(Subject, record) == parameters
    with pytest.raises(ValueError, match="no run of fig99 has the parameters epochs, seed, width"):
        read_parameters(Subject, {"seed": 0, "epochs": 1, "width": 3})


@pytest.mark.parametrize("id", MODULES)
def test_every_run_is_a_frozen_dataclass_that_json_keeps(id):
    experiment = load_experiment(id)
    for preset in experiment.presets:
        for parameters in experiment.planned(preset):
            assert is_dataclass(parameters)
            assert type(parameters).__dataclass_params__.frozen
            assert type(parameters) in (Training, *experiment.parameters)
            record = json.loads(json.dumps(as_record(Run(parameters, {}))["parameters"]))
            assert read_parameters(experiment, record) == parameters
            assert {item.name for item in fields(parameters)} == asdict(parameters).keys()


# The registry.


def test_every_experiment_in_a_file_is_registered():
    files = {path for path in FOLDER.glob("*/*.py") if "\nEXPERIMENT = " in path.read_text()}
    assert {FOLDER / f"{module.replace('.', '/')}.py" for module in MODULES.values()} == files


def test_ids_are_in_order():
    assert sorted(["tableA2", "fig2", "demo", "theorem1", "figA1"], key=paper_order) == [
        "demo",
        "fig2",
        "theorem1",
        "figA1",
        "tableA2",
    ]
    assert list(load_all()) == list(MODULES)


def test_every_experiment_is_complete():
    for id, experiment in load_all().items():
        assert experiment.id == id
        expected = ["smoke", "laptop", *(["full"] if experiment.trains else []), *(["paper"] if id in PAPER else [])]
        assert list(experiment.presets) == (expected if id != "demo" else ["smoke", "laptop"])
        for text in (experiment.title, experiment.shows, experiment.choices, *(c.text for c in experiment.claims)):
            assert text.isascii(), text
            assert text
        assert json.loads(json.dumps(experiment.paper)) == experiment.paper
        for preset in experiment.presets:
            labels = [experiment.describe(run) for run in experiment.planned(preset)]
            assert len(set(labels)) == len(labels), "two runs with one description"
            seeds = {run.seed for run in experiment.planned(preset)}
            assert preset == "smoke" or id == "tableA1" or len(seeds) >= (1 if experiment.trains else 5)


def test_claims_are_of_the_kind_that_their_experiment_is():
    for id, experiment in load_all().items():
        kinds = {claim.kind for claim in experiment.claims}
        family = MODULES[id].partition(".")[0]
        if id not in PAPER:
            assert kinds == {Kind.OURS}, id
        elif family in ("synthetic", "theorems"):
            assert kinds == {Kind.MATHEMATICS}, id
        else:
            assert Kind.MATHEMATICS not in kinds, id
        texts = [(claim.kind, claim.text) for claim in experiment.claims]
        assert len({text for _, text in texts}) == len(texts), id
        # What is judged on shorter runs than the paper's claim needs is another claim, and not the paper's.
        for kind, text in texts:
            if "in short training" in text or text.startswith("Early in training"):
                assert kind is Kind.OURS, (id, text)


def test_no_claim_is_decided_before_all_runs_are_measured():
    experiment = load_experiment("fig2")
    planned = experiment.planned("laptop", seeds=3)
    records = experiment.judge(Results(), "laptop", planned)
    assert {record["verdict"] for record in records} == {"not tested"}
    assert {record["detail"] for record in records} == {
        f"{len(planned)} runs are not yet measured; so far: not yet measured",
    }


def test_seeds_and_sizes_replace_the_preset_s():
    experiment = load_experiment("fig2")
    assert {run.seed for run in experiment.planned("smoke", seed=4, seeds=3)} == {4, 5, 6}
    assert {run.epochs for run in load_experiment("fig5").planned("smoke", epochs=7)} == {7}
    for arguments, message in (
        ({"seeds": 0}, "seeds must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            experiment.planned("smoke", **arguments)
    with pytest.raises(ValueError, match="--seeds has no effect: tableA1 uses one seed"):
        load_experiment("tableA1").planned("smoke", seeds=2)


# Tables.

TABLE = Comparison(
    ["a & b", "|x|", "none"],
    [["50 %", Quantity(1 / 3, 0.125), Quantity(None)], ["y", Quantity(2.0), Quantity(float("inf"))]],
    "A note.",
)


def test_a_table_has_texts_and_numbers():
    assert TABLE.rows == [["50 %", "0.33 ± 0.12", "-"], ["y", "2.00", "inf"]]
    assert TABLE.as_json() == {
        "columns": ["a & b", "|x|", "none"],
        "rows": [["50 %", {"value": 0.333333, "spread": 0.125}, None], ["y", 2.0, None]],
        "note": "A note.",
    }
    json.dumps(TABLE.as_json(), allow_nan=False)


def test_table_formats():
    assert format_markdown(TABLE).splitlines() == [
        "| a & b | \\|x\\| | none |",
        "| --- | ---: | ---: |",
        "| 50 % | 0.33 ± 0.12 | - |",
        "| y | 2.00 | inf |",
        "",
        "A note.",
    ]
    assert format_csv(TABLE).splitlines() == [
        "a & b,|x|,|x| ±,none",
        "50 %,0.3333333333333333,0.125,",
        "y,2.0,,inf",
    ]
    assert format_latex(TABLE).splitlines() == [
        "% A note.",
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"a \& b & $|$x$|$ & none \\",
        r"\midrule",
        r"50 \% & 0.33 $\pm$ 0.12 & - \\",
        r"y & 2.00 & inf \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_a_table_without_a_note():
    plain = Comparison(["a", "b"], [["1", "2"]])
    assert format_markdown(plain) == "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert format_latex(plain).startswith(r"\begin{tabular}")
