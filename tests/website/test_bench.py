"""The tables of weights at equal orthogonality, from a record as `oni bench matrices` writes it."""

import json
from pathlib import Path

import pytest

from oni.bench.choices import CHOICE_CASES, CHOICE_TARGETS, ChoiceResult, record_choices
from oni.bench.contender import Contender, Gives, Reached
from oni.bench.matrices.result import MatrixResult
from oni.bench.matrices.table import record_matrix
from oni.bench.record import record_run
from oni.bench.settings import Settings
from oni.bench.shape_result import ContenderTimes
from oni.bench.targets import MATRIX_TARGETS, judge_targets
from oni.newton.product_count import count_products
from oni.newton.target import Choice
from website.bench import BENCH, NOT_MEASURED
from website.headlines import HEADLINES

RESULTS = Path(__file__).resolve().parents[2] / "results"


def make_result(name, shape):
    rows = {
        "oni 0.9": (0.002, 0.08, Gives(True, True, False)),
        "oni 0.99": (0.005, 0.008, Gives(True, True, False)),
        "oni exact": (0.006, 6e-6, Gives(True, True, False)),
        "oni T=5": (0.007, 0.2, Gives(True, True, False)),
        "cholesky": (0.004, 1e-6, Gives(False, False, True)),
    }
    entries = {
        contender: ContenderTimes(
            Contender(contender, None, gives=gives),
            dict.fromkeys(range(5), seconds),
            orthogonality=Reached(1 - off_by, 1.0, 10 * off_by),
        )
        for contender, (seconds, off_by, gives) in rows.items()
    }
    entries["svd"] = ContenderTimes(Contender("svd", None, gives=Gives(True, False, True)), word="skipped: slow")
    return MatrixResult(name, shape, entries, spectrum=name.partition("/")[2], about="known times")


@pytest.fixture
def results(tmp_path):
    measured = [make_result("256x2304/gaussian", (256, 2304)), make_result("512x512/trained", (512, 512))]
    verdicts = judge_targets(measured, MATRIX_TARGETS)
    record = record_run(measured, verdicts, Settings(), complete=True, record_case=record_matrix)
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "matrices.json").write_text(json.dumps(record))
    (folder / "models.json").write_text((RESULTS / "bench" / "models.json").read_text())
    return tmp_path


def cells(text):
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines()[2:]]


def test_by_what_is_asked(results):
    wide, square = cells(BENCH["bench-asked"](results, "0.9"))
    assert wide == [
        "256x2304/gaussian", "2", "4", "cholesky", "0.5", "0.5 - 0.5", "reached", "7 (delta 2: not reached)",
    ]  # fmt: skip
    assert square[0] == "512x512/trained"
    (only,) = cells(BENCH["bench-asked"](results, "0.99", spectrum="trained"))
    assert only[4:7] == ["1.25", "1.25 - 1.25", "**not reached**"]
    assert "asked: at most 1.3" in BENCH["bench-asked"](results, "exact")


def test_everyone_on_one_weight(results):
    rows = {row[0]: row[1:] for row in cells(BENCH["bench-matrices"](results, "256x2304/gaussian"))}
    assert rows["oni 0.9"] == ["2", "x 1", "not reached", "not reached", "0.920", "0.8", "polar, partial"]
    assert rows["cholesky"][1:] == ["x 2", "x 1", "x 1", "1 - 1e-06", "1e-05", "not polar, needs full rank"]
    assert rows["svd"][-1] == "skipped: slow"


def test_the_tables_of_the_readme(results):
    wide, square, network = cells(HEADLINES["speed"](results))
    assert wide[1:] == ["2 / 4 ms (cholesky)", "5 / 4 ms (cholesky)", "6 / 4 ms (cholesky)"]
    assert square[0] == "one weight, 512 x 512, spectrum as after training"
    assert network[0].startswith("a training step of a 20-layer")
    peers = {row[0]: row[3] for row in cells(HEADLINES["peers"](results))}
    assert (peers["oni"], peers["Cholesky"], peers["geotorch"]) == ("6 ms", "4 ms", "not measured")


def test_an_interrupted_run_says_so(results):
    path = results / "bench" / "matrices.json"
    assert "interrupted" not in BENCH["bench-machine"](results, "matrices")
    path.write_text(json.dumps({**json.loads(path.read_text()), "complete": False}))
    assert BENCH["bench-machine"](results, "matrices").endswith("It was interrupted before all cases were measured.")


def test_cases_of_another_run_are_added(results):
    path = results / "bench" / "matrices.json"
    whole = json.loads(path.read_text())
    tables = [BENCH[name](results, **options) for name, options in (
        ("bench-asked", {"asked": "0.9"}), ("bench-targets", {"kind": "matrices"}),
    )]  # fmt: skip
    wide, square = whole["cases"]
    # An interrupted run has the targets of what it left out, too.
    left_out = [
        {**target, "measured": None, "reached": None} if target["case"] == square["name"] else target
        for target in whole["targets"]
    ]
    path.write_text(json.dumps({**whole, "cases": [wide], "targets": left_out, "complete": False}))
    more = path.with_name("matrices_more.json")
    more.write_text(json.dumps({**whole, "command": "oni bench again"}))
    assert BENCH["bench-asked"](results, "0.9") == tables[0]
    assert sorted(cells(BENCH["bench-targets"](results, "matrices"))) == sorted(cells(tables[1]))
    assert "` and `oni bench again`" in BENCH["bench-machine"](results, "matrices")
    more.write_text(json.dumps({**whole, "machine": {**whole["machine"], "cpu": "another"}}))
    with pytest.raises(ValueError, match="cases of two runs can't stand in one table: machine"):
        BENCH["bench-asked"](results, "0.9")


def test_a_contender_without_times_is_not_measured(results):
    path = results / "bench" / "matrices.json"
    record = json.loads(path.read_text())
    record["cases"][0]["contenders"][0] |= {"milliseconds": None, "note": None}
    path.write_text(json.dumps(record))
    assert cells(BENCH["bench-asked"](results, "0.9"))[0][1] == "not measured"


def test_what_is_not_measured_yet_says_so(results):
    (results / "bench" / "matrices.json").unlink()
    assert BENCH["bench-asked"](results, "0.9") == BENCH["bench-matrices"](results, "x") == NOT_MEASURED
    assert HEADLINES["speed"](results) == NOT_MEASURED
    assert BENCH["bench-machine"](results, "matrices").endswith("not been run yet.")
    assert BENCH["bench-number"](results, "matrices", "x", "y", "delta") == "(not yet measured)"
    assert {row[3] for row in cells(HEADLINES["peers"](results))} == {"not measured"}


def test_without_results_every_region_says_so(tmp_path):
    """Of whatever has not been measured: nothing at all, or a case that is new."""
    arguments = {
        "bench-matrices": {"case": "256x2304/gaussian"},
        "bench-asked": {"asked": "0.9"},
        "bench-forms": {"case": "256x256"},
        "bench-against": {"contender": "oni*"},
        "bench-targets": {"kind": "models"},
    }
    for name, write in BENCH.items():
        if name not in ("bench-number", "bench-machine"):
            assert write(tmp_path, **arguments.get(name, {})) == NOT_MEASURED, name
    assert HEADLINES["speed"](tmp_path) == HEADLINES["peers"](tmp_path) == NOT_MEASURED
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "models.json").write_text('{"cases": [], "targets": []}')
    number = {"kind": "models", "contender": "oni T=2", "field": "times_plain"}
    assert BENCH["bench-number"](tmp_path, case="dcgan-b64", **number) == "(not yet measured)"
    with pytest.raises(ValueError, match="no case 'dcgan' was measured"):
        BENCH["bench-number"](tmp_path, case="dcgan", **number)


def test_choices(tmp_path):
    case = CHOICE_CASES[0]
    entries = {
        str(choice): ContenderTimes(
            Contender(str(choice), None, products=count_products(choice.steps, bound=choice.bound)),
            dict.fromkeys(range(5), seconds),
        )
        for choice, seconds in ((Choice("trace", "newton", 2), 0.002), (Choice("tight", "newton", 2), 0.003))
    }
    result = ChoiceResult(case.name, case.shape, entries, spectrum=case.spectrum, sigma_min=case.sigma_min)
    verdicts = judge_targets([result], CHOICE_TARGETS)
    record = record_run([result], verdicts, Settings("choices"), complete=True, record_case=record_choices)
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "choices.json").write_text(json.dumps(record))
    (row,) = cells(BENCH["bench-choices"](tmp_path))
    assert row == [
        "256x256/trained/0.9", "2 steps, trace, newton", "2", "2 steps, tight, newton", "3",
        "0.667 (0.667 - 0.667)", "reached",
    ]  # fmt: skip
    # 4 short and 5 long products, of one size here; tight takes three more.
    assert [one["products"] for one in record["cases"][0]["contenders"]] == [1, 12 / 9]


def test_processes_whose_share_is_unknown(tmp_path):
    """Noise can make a network without sharing seem free, and a process can fail."""

    def contender(name, added, note=None):
        added = added and dict.fromkeys(("low", "median", "high"), added)
        return {"name": name, "note": note, "added_milliseconds": added, "share_of_addition": None}

    contenders = [contender("oni T=2", -1.0), contender("oni T=2 shared", 3.0)]
    contenders += [contender(f"oni T=5{suffix}", None, "failed in process 1: x") for suffix in ("", " shared")]
    case = {"about": "a network", "processes": {"2": {"contenders": contenders}}}
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "processes.json").write_text(json.dumps({"cases": [case]}))
    assert [row[2:] for row in cells(BENCH["bench-sharing"](tmp_path))] == [
        ["2", "-1 ms", "3 ms", "", ""],
        ["5", "failed in process 1: x", "failed in process 1: x", "", ""],
    ]
