"""Every number that a page takes from results/ is what results/ says."""

import json
import re
import shutil
from pathlib import Path

import pytest

from oni.recipes.experiments.experiment import Results, Run
from oni.recipes.experiments.record import make_record
from oni.recipes.experiments.registry import load_experiment
from website import regions
from website.measured import MEASURED, number
from website.pictures import LAYERS, draw_layers, overview, read_chart

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"


@pytest.mark.parametrize("page", regions.pages(ROOT), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_say_what_the_results_say(page):
    text = page.read_text("utf-8")
    assert regions.fill(text, RESULTS) == text, "run: make docs"
    assert text.count("<!-- results:") == text.count("<!-- end -->"), "a region is not closed"
    # Markdown ends the paragraph before a line that begins with a comment, and shows that line as it stands.
    assert not re.findall(r"^<!-- results: [^\n]*?-->\S.*", text, re.MULTILINE), "begin the line with a word"


def test_an_outdated_number_is_replaced():
    page = 'Of <!-- results: number {"id": "fig1", "row": "5", "column": "smallest"} -->0.999<!-- end -->.'
    assert "-->0.885<!-- end -->." in regions.fill(page, RESULTS)


@pytest.mark.parametrize(
    ("region", "words"),
    [
        ("numbr {}", "unknown region 'numbr'; did you mean 'number'"),
        ('number {"id": "fig1", "row": "99", "column": "delta"}', "no single cell '99'"),
        ('table {"id": "fig1", "rows": ["no*"]}', "no row of fig1"),
        ('claim {"id": "fig1", "claim": "The moon"}', "0 claims that begin with 'The moon'"),
        ('bench-forms {"case": "1x1"}', "no case '1x1'"),
    ],
)
def test_what_is_not_measured_is_an_error(region, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        regions.fill(f"<!-- results: {region} --><!-- end -->", RESULTS)


def test_a_part_of_a_table():
    text = MEASURED["table"](RESULTS, "fig1", rows=["[05]"], columns=["steps", "smallest"], names={"smallest": "least"})
    assert text.splitlines() == ["| steps | least |", "| --- | ---: |", "| 0 | 0.166 |", "| 5 | 0.885 |"]
    assert number(RESULTS, "theorem2", "centred, sqrt 2", "forward: theory") == "0.6817"


def test_the_picture_of_the_layers_shows_every_layer():
    assert (ROOT / "docs" / "assets" / "layers.svg").read_text("utf-8") == draw_layers(), "run: make docs"
    import test_layers

    shown = " ".join(name for name, _, _ in LAYERS).replace("oni.", "").split()
    assert shown == [layer for layer in test_layers.LAYERS if layer != "__main__"]


def copy_results(tmp_path, *ids):
    for id in ids:
        shutil.copytree(RESULTS / id, tmp_path / id)
    return tmp_path


def test_the_picture_shows_common_practice_until_certificates_are_measured(tmp_path):
    results = copy_results(tmp_path, "practice")
    lines = {series.name: dict(zip(series.x, series.y, strict=True)) for series in read_chart(results).series}
    runs = json.loads((RESULTS / "practice" / "results.json").read_text())["runs"]
    errors = [
        run["measured"]["test_error"][-1]
        for run in runs
        if run["parameters"].get("row") == "20 layers, ONI" and run["parameters"]["group"] == "learning rate 0.1"
    ]
    assert len(errors) == 3
    assert lines["ONI"][0.1] == pytest.approx(100 * sum(errors) / len(errors))
    assert "test error" in overview(results, "oni.png")


def test_the_picture_shows_the_fronts_of_certified_networks(tmp_path):
    experiment = load_experiment("certified")
    chosen = [run for run in experiment.planned("full") if getattr(run, "row", "") in ("sn", "oni-5", "oni-0")]
    measured = {
        "status": "finished",
        "learning_rate": 0.001,
        "test_error": [0.125],
        "certified": {"bound": 1.0, "radius": [0.0, 0.5, 0.1412], "share": [0.875, 0.25, 0.5]},
        "cost": {"steps": 585, "seconds": 60.0, "threads": 1, "precision": "32-true"},
    }
    results = Results(Run(run, measured) for run in chosen)
    record = make_record(experiment, results, preset="full", seed=0, seeds=None, overrides={}, planned=chosen)
    results = copy_results(tmp_path, "practice")
    (results / "certified").mkdir()
    (results / "certified" / "results.json").write_text(json.dumps(record))
    chart = read_chart(results)
    # T = 0 has one temperature, which is no front.
    assert [series.name for series in chart.series] == ["spectral norm", "ONI, T = 5"]
    assert {(*series.x, *series.y) for series in chart.series} == {(87.5, 87.5, 87.5, 87.5, 25.0, 25.0, 25.0, 25.0)}
    assert "certified accuracy over accuracy" in overview(results, "oni.png")
