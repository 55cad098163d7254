"""``oni bench forms``: who runs on which shape."""

import pytest

import oni
from oni.bench.forms.cases import FORM_CASES, list_contenders
from oni.bench.inputs import draw_inputs


@pytest.mark.parametrize("case", FORM_CASES, ids=lambda case: case.name)
def test_who_runs(case):
    contenders = list_contenders(case, draw_inputs(case.shape)[0])
    rows = {contender.name: contender for contender in contenders}
    assert len(rows) == len(contenders)
    tall, batch = case.shape[-2] > case.shape[-1], len(case.shape) > 2
    assert ("literal T=2" in rows, "literal T=5" in rows) == (not tall, True)
    assert ("36 single calls T=5" in rows) == batch
    wide = case.name in ("256x784", "256x2304", "512x4608")
    assert ("oni tight T=3" in rows) == wide
    assert any(name.startswith("oni minimax") for name in rows) == wide
    before = []
    for name, contender in rows.items():
        # A contender is compared with one that has been tried before it.
        assert contender.against in ("", *before)
        before.append(name)


def test_the_schedules_certify_the_same():
    case = FORM_CASES[1]
    start = oni.spectrum(oni.orthogonalize(draw_inputs(case.shape)[0], 0))
    interval = (float(start.min()), float(start.max()))
    rows = {contender.name: contender for contender in list_contenders(case, draw_inputs(case.shape)[0])}
    (minimax,) = (contender for name, contender in rows.items() if "minimax" in name)
    newton = rows[minimax.against]
    for contender, schedule in ((newton, "newton"), (minimax, "minimax")):
        steps = contender.steps
        assert oni.certified_range(interval, steps, schedule=schedule)[0] >= 0.9
        assert oni.certified_range(interval, steps - 1, schedule=schedule)[0] < 0.9
    assert minimax.steps < newton.steps
