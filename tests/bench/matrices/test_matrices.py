"""``oni bench matrices``: equal orthogonality, who reaches what, who is fastest, and what is asked of oni."""

import io
import json

import pytest
import torch
from rich.console import Console

import oni
from oni.bench import turns
from oni.bench.contender import Contender, Gives, Reached, make_job, measure_orthogonality
from oni.bench.inputs import SPECTRA, draw_inputs
from oni.bench.limit import Products
from oni.bench.matrices import cases
from oni.bench.matrices.result import ASKED, FASTEST_OTHER, MatrixResult
from oni.bench.matrices.table import record_matrix, show_matrices
from oni.bench.settings import Settings
from oni.bench.shape_result import ContenderTimes
from oni.bench.targets import MATRIX_TARGETS, judge_targets
from oni.cli import main

POLAR = Gives(polar=True, partial=True, full_rank=False)


def make_entry(name, seconds, off_by=None, *, delta=0.5, word="", products=None, largest=1.0):
    orthogonality = None if off_by is None else Reached(1 - off_by, largest, delta)
    contender = Contender(name, None, products=products, gives=POLAR, remark="2 steps" if products else "")
    return ContenderTimes(contender, dict(enumerate(seconds)), word, None, 2**20, orthogonality)


@pytest.fixture
def result():
    """Two rounds of known times; the second is ten times slower throughout."""
    products = Products(2, 2, 2, 3)
    entries = [
        make_entry("oni 0.9", [0.001, 0.01], 0.09, products=products),
        make_entry("oni 0.99", [0.003, 0.03], 0.009, products=products),
        make_entry("oni exact", [0.005, 0.05], 6e-6, products=products, delta=3e-5),
        make_entry("oni T=5", [0.004, 0.04], 0.2, products=products, delta=1.34),
        make_entry("cholesky", [0.002, 0.02], 1e-6, delta=1e-6),
        make_entry("eigh", [0.004, 0.04], 1e-6, delta=1e-6),
        make_entry("quick but too long", [0.0005, 0.005], 0.05, largest=1.2),
        make_entry("svd", [], word="skipped: one call took 12 s"),
    ]
    return MatrixResult(
        "256x784/trained",
        (256, 784),
        {entry.contender.name: entry for entry in entries},
        spectrum="trained",
        about="it",
    )


def test_who_reaches_what(result):
    assert {name: result.reaches(name) for name in result.entries} == {
        "oni 0.9": ["0.9"],
        "oni 0.99": ["0.9", "0.99"],
        "oni exact": ["0.9", "0.99", "exact"],
        "oni T=5": [],
        "cholesky": ["0.9", "0.99", "exact"],
        "eigh": ["0.9", "0.99", "exact"],
        # A singular value of 1.2 is as far from 1 as one of 0.8.
        "quick but too long": [],
        "svd": [],
    }


def test_the_fastest_is_one_who_reaches_it(result):
    assert [result.fastest(asked) for asked in ASKED] == ["oni 0.9", "cholesky", "cholesky"]
    assert [result.fastest(asked, but_oni=True) for asked in ASKED] == ["cholesky"] * 3
    assert result.times_fastest("cholesky", "0.9") == pytest.approx((2, 2, 2))
    assert result.times_fastest("oni T=5", "0.9") is None
    assert result.times_fastest("svd", "0.9") is None
    assert MatrixResult("256x784/trained", (256, 784)).fastest("0.9") is None


def test_verdicts_follow_from_the_interval(result):
    def judged():
        verdicts = judge_targets([result], MATRIX_TARGETS)
        return {v.target.contender: v for v in verdicts if v.target.case == result.name}

    verdicts = judged()
    assert {name: verdict.measured.value for name, verdict in verdicts.items()} == {
        "oni 0.9": pytest.approx(0.5),
        "oni 0.99": pytest.approx(1.5),
        "oni exact": pytest.approx(2.5),
    }
    assert {name: verdict.reached for name, verdict in verdicts.items()} == {
        "oni 0.9": True,
        "oni 0.99": False,
        "oni exact": False,
    }
    # Half of the rounds are faster, half slower: the interval holds 1, and decides nothing.
    result.entries["oni 0.9"].times.update({2: 0.001, 3: 0.003, 4: 0.001, 5: 0.003})
    result.entries["cholesky"].times.update({2: 0.002, 3: 0.002, 4: 0.002, 5: 0.0021})
    result.entries["oni 0.9"].times[1] = 0.03
    verdict = judged()["oni 0.9"]
    assert verdict.measured.low < 1 < verdict.measured.high
    assert verdict.reached is None
    del result.entries["oni 0.9"]
    assert judged()["oni 0.9"].measured is None


def test_every_case_but_the_gaussian_square_has_its_targets():
    names = {case.name for case in cases.MATRIX_CASES}
    assert len(names) == len(cases.MATRIX_CASES) == len(cases.SHAPES) * len(SPECTRA)
    square = {f"{'x'.join(map(str, shape))}/gaussian" for shape in cases.SHAPES if shape[-1] == shape[-2]}
    for asked, limit, left_out in (("0.9", 1, square), ("0.99", 1, square), ("exact", 1.3, set())):
        targets = [target for target in MATRIX_TARGETS if target.contender == f"oni {asked}"]
        assert [target.at_most for target in targets] == [limit] * len(targets)
        assert {target.over for target in targets} == {FASTEST_OTHER + asked}
        assert sorted(target.case for target in targets) == sorted(names - left_out)


def test_quick_cases_are_there():
    assert {case.name for case in cases.MATRIX_CASES if case.quick} == {*cases.QUICK}


def shown(results, *, plain=False):
    written = io.StringIO()
    terminal = Console(file=written, width=120, highlight=False, markup=False)
    show_matrices(results, judge_targets(results, MATRIX_TARGETS), Settings(plain=plain), terminal)
    return written.getvalue()


def test_the_tables_hold_the_numbers(result):
    text = shown([result], plain=True)
    tables = text.partition("256x784/trained: it")[2]
    rows = {line.split("  ")[0].rstrip(): line.split() for line in reversed(tables.splitlines())}
    assert rows["cholesky"][1:8] == ["11.0", "6.50-15.5", "2.00", "1.00", "1.00", "1-1e-06", "1e-06"]
    assert rows["oni 0.9"][2:7] == ["5.50", "3.25-7.75", "1.00", "-", "-"]
    assert rows["oni T=5"][4:9] == ["-", "-", "-", "0.800", "1.34"]
    assert "skipped: one call took 12 s" in text
    asked = [line for line in text.splitlines() if line.startswith("256x784/trained ")]
    assert [line.split()[1:5] for line in asked] == [
        ["5.50", "cholesky", "11.0", "0.500"],
        ["16.5", "cholesky", "11.0", "1.50"],
        ["27.5", "cholesky", "11.0", "2.50"],
    ]
    assert ["not reached" in line.partition("22.0 ms")[0] for line in asked] == [False, True, True]
    assert all("22.0 ms, not reached: delta 1.34" in line for line in asked)
    assert f"Left out: {len(MATRIX_TARGETS) - 3} targets" in text


def test_output_fits_and_is_as_plain_as_asked(result):
    for plain in (False, True):
        text = shown([result, MatrixResult("256x256/gaussian", (256, 256))], plain=plain)
        assert max(map(len, text.splitlines())) <= 120
        assert text.isascii() == plain


def test_the_record_says_what_was_asked_and_reached(result):
    record = json.loads(json.dumps(record_matrix(result)))
    rows = {row["name"]: row for row in record["contenders"]}
    assert len({tuple(row) for row in rows.values()}) == 1
    assert rows["cholesky"]["reaches"] == ["0.9", "0.99", "exact"]
    assert rows["cholesky"]["times_fastest"]["0.9"]["median"] == pytest.approx(2)
    assert rows["cholesky"]["gives"] == {"polar": True, "partial": True, "full_rank": False}
    assert rows["svd"]["smallest"] is rows["svd"]["delta"] is rows["svd"]["milliseconds"] is None
    assert record["asked"]["exact"] == {
        "sigma_min": 1 - 1e-5,
        "fastest": "cholesky",
        "fastest_other": "cholesky",
        "oni_over_fastest_other": {name: pytest.approx(2.5) for name in ("low", "value", "high")},
    }


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("shape", [(16, 24), (24, 16), (2, 16, 16)], ids=str)
def test_oni_reaches_what_it_is_asked_for(shape, spectrum):
    Z, G = draw_inputs(shape, spectrum)
    *asked, five = cases.list_oni(Z)
    assert [contender.name for contender in asked] == [f"oni {word}" for word in ASKED]
    for contender, sigma_min in zip(asked, ASKED.values(), strict=True):
        (W,), _ = contender.prepare(Z, G).run()
        assert measure_orthogonality(W.detach()).off_by <= 1 - sigma_min
    torch.testing.assert_close(five.prepare(Z, G).run()[0][0], oni.orthogonalize(Z))


@pytest.fixture
def run(capsys, monkeypatch):
    small = cases.MatrixCase((8, 12), "trained", "a small one", quick=True)
    monkeypatch.setattr(cases, "MATRIX_CASES", (small, cases.MatrixCase((2, 6, 6), "gaussian", "two")))

    def run(*arguments):
        code = main(["bench", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_the_command(run, tmp_path):
    path = tmp_path / "bench.json"
    code, out, err = run("--quick", "--cases", "*", "--json", path, "--plain", "--threads", 1)
    assert code == 0
    assert err == "8x12/trained (1 of 2)\n2x6x6/gaussian (2 of 2)\n"
    assert "Level 0.99:" in out
    record = json.loads(path.read_text())
    assert record["command"].startswith("oni bench matrices --quick '--cases=*'")
    for case in record["cases"]:
        rows = {row["name"]: row for row in case["contenders"]}
        assert {f"oni {asked}" for asked in ASKED} | {"oni T=5", "cholesky", "eigh", "svd"} <= rows.keys()
        for asked in ASKED:
            ours = rows[f"oni {asked}"]
            assert asked in ours["reaches"]
            assert ours["rounds"] >= 3
            assert ours["choice"]
        assert all(bool(row["note"]) != bool(row["milliseconds"]) for row in rows.values())


def test_who_can_not_reach_it_says_why(run, monkeypatch):
    """A matrix without full rank has singular values that nothing lifts."""
    monkeypatch.setattr(cases, "draw_inputs", lambda shape, **_: (torch.zeros(shape), torch.ones(shape)))
    monkeypatch.setattr(cases, "list_peers", lambda **_: [])
    code, out, _ = run("--quick", "--plain", "--threads", 1)
    assert code == 0
    assert out.count("failed: ") == len(ASKED)


def test_a_promise_that_is_not_kept_is_not_timed(run, monkeypatch):
    monkeypatch.setattr(cases, "choose", lambda Z, target: cases.Choice("compact", "newton", 1))
    monkeypatch.setattr(cases, "list_peers", lambda **_: [])
    code, out, _ = run("--quick", "--plain", "--threads", 1)
    assert code == 1
    assert out.count("not timed: does not reach") == len(ASKED)


def test_inputs_are_drawn_once():
    drawn = []

    def draw(shape):
        drawn.append(shape)
        return draw_inputs(shape)

    contenders = [Contender(name, lambda Z, G: make_job(lambda Z: 2 * Z, Z, G)) for name in "abc"]
    result = MatrixResult("4x6/gaussian", (4, 6))
    turns.measure_contenders(contenders, result, draw, Settings(quick=True), lambda *_: None, check=lambda *_: "")
    assert drawn == [(4, 6)]
    assert [len(entry.times) >= 3 for entry in result.entries.values()] == [True] * 3
