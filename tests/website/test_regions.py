"""Every number that a page takes from results/ is what results/ says."""

import json
import re
from pathlib import Path

import pytest

from website import regions
from website.measured import MEASURED, number
from website.pictures import LAYERS, draw_layers, read_chart

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


def test_the_picture_shows_what_was_measured():
    chart = read_chart(RESULTS)
    lines = {series.name: dict(zip(series.x, series.y, strict=True)) for series in chart.series}
    runs = json.loads((RESULTS / "practice" / "results.json").read_text())["runs"]
    errors = [
        run["measured"]["test_error"][-1]
        for run in runs
        if run["parameters"].get("row") == "20 layers, ONI" and run["parameters"]["group"] == "learning rate 0.1"
    ]
    assert len(errors) == 3
    assert lines["ONI"][0.1] == pytest.approx(100 * sum(errors) / len(errors))
    assert lines["ONI"][1.0] < min(line[1.0] for name, line in lines.items() if name not in ("ONI", "batch norm"))
