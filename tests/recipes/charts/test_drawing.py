import pytest

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.charts.matplotlib import draw_charts
from oni.recipes.charts.plotly import encode_chart
from oni.style import COLOURS, drawing

DISTANCE = Chart(
    "Distance",
    "step",
    "delta",
    [
        Series("ours", [1, 2, 3, 4], [1e3, 10.0, None, 1e-5], COLOURS["oni"], low=[0, 5, None, 1e-6], high=[2e3] * 4),
        Series("other", [1, 2, 3, 4], [1.0, float("nan"), 2.0, 3.0], COLOURS["olm"], "dash"),
        Series("other", [1, 2, 3], [3.0, 4.0, 5.0], COLOURS["olm"], "dot"),
    ],
    y_log=True,
    dashes={"solid": "on time", "dash": "late", "dot": "later"},
)
PLAIN = Chart("Plain", "x", "y", [Series("one", [1, 10, 100], [0, 1, 2], "#000000")], x_log=True, y_range=(-1, 3))
FLAT = Chart("Loss", "epoch", "loss", [Series("one", [1, 2], [2.3026, 2.3021], "#000000")], y_log=True)


def test_what_the_page_draws():
    chart, plain = encode_chart(DISTANCE), encode_chart(PLAIN)
    first, second, _ = chart["lines"]
    assert first["y"] == [1000.0, 10.0, None, 1e-05]
    assert second["y"] == [1.0, None, 2.0, 3.0]
    # Two stretches with a gap between, each there and back; what has no logarithm is at the least of all numbers.
    assert first["band"]["x"] == [1, 2, 2, 1, None, 4, 4, None]
    assert first["band"]["y"] == [2000.0, 2000.0, 5.0, 1e-05, None, 2000.0, 1e-05, None]
    assert "band" not in second
    assert chart["names"] == ["ours", "other"]
    assert [line["name"] for line in chart["lines"]] == [0, 1, 1]
    assert chart["dashes"] == {"solid": "on time", "dash": "late", "dot": "later"}
    assert plain["y"] == {"title": "y", "log": False, "range": [-1, 3], "ticks": None, "labels": None}
    assert plain["lines"][0]["light"] == "#000000"
    assert plain["x"]["labels"] == ["1", "10", "100"]


def test_names_along_the_axis():
    chart = Chart("By name", "", "y", [Series("one", [1, 2], [3.0, 4.0], "#000000")], x_names=["a", "b,\nc"])
    encoded = encode_chart(chart)
    assert encoded["x"] == {
        "title": "",
        "log": False,
        "range": [0.5, 2.5],
        "ticks": [1.0, 2.0],
        "labels": ["a", "b, c"],
    }
    assert encoded["lines"][0]["points"]
    spread = Series("one", [1, 2], [3.0, 4.0], "#000000", low=[2.0, None], high=[5.0, 4.5])
    (line,) = encode_chart(Chart("With seeds", "", "y", [spread], x_names=["a", "b"]))["lines"]
    assert line["spread"] == {"low": [1.0, None], "high": [2.0, 0.5]}
    assert "band" not in line, "there is nothing between them"
    (axes,) = draw(chart).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["a", "b,\nc"]
    assert axes.get_lines()[0].get_linestyle() == "None", "there is nothing between them"


def test_lengths_must_agree():
    with pytest.raises(ValueError, match="'a line' has 2 x and 1 y"):
        encode_chart(Chart("A chart", "x", "y", [Series("a line", [1, 2], [1.0], "#000000")]))


def draw(*charts):
    with drawing():
        figure = draw_charts(charts)
        figure.draw_without_rendering()
    return figure


def test_a_picture_has_every_chart_and_one_legend():
    figure = draw(DISTANCE, PLAIN, FLAT)
    assert [axes.get_title("left") for axes in figure.axes] == ["Distance", "Plain", "Loss"]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ours", "other", "one", "on time", "late", "later"]


def test_a_loss_that_hardly_changes_has_numbers_on_its_axis():
    axes = draw(FLAT).axes[0]
    low, high = axes.get_ylim()
    labels = [
        text.get_text()
        for at, text in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
        if low <= at <= high and text.get_text()
    ]
    assert len(labels) >= 3
    assert len(set(labels)) == len(labels)
    assert [label for label in encode_chart(FLAT)["y"]["labels"] if low <= float(label) <= high] == labels


@pytest.mark.parametrize(
    ("rates", "labels"),
    [
        ([0.03, 0.1, 0.3, 1.0], ["0.03", "0.1", "0.3", "1"]),
        ([0.01, 0.02, 0.05], ["0.01", "0.02", "0.05"]),
        ([0.003, 0.01, 0.03, 0.1, 0.3, 1.0], ["0.003", "0.03", "0.3"]),
        ([1.2345, 10.0, 20.0], ["2", "5", "10", "20"]),  # measured, not chosen
    ],
)
def test_an_axis_of_rates_has_those_that_were_run(rates, labels):
    chart = Chart("Rates", "learning rate", "error", [Series("one", rates, rates, "#000000")], x_log=True)
    assert encode_chart(chart)["x"]["labels"] == labels
    with drawing():
        axis = draw_charts([chart]).axes[0].xaxis
    assert [axis.get_major_formatter()(0, place) for place in range(len(labels))] == labels
