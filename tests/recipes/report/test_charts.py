import pytest

from oni.recipes.report.charts import metric_names, run_charts
from oni.recipes.report.sources import RecordedRun, read_sources


def test_charts_of_runs(write_run, tmp_path):
    folders = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", method="plain"),
        write_run(tmp_path / "c", "diverged", epochs=0, method="olm"),
        write_run(tmp_path / "d", "unfinished", epochs=2, method="lecun"),
    ]
    _, runs = read_sources(folders)
    train, test, loss, first, fifth, activations, gradients = run_charts(runs)
    assert [train.title, test.title, loss.title] == [
        "Training error by epoch",
        "Test error by epoch",
        "Training loss by epoch",
    ]
    assert [(line.name, line.dash) for line in train.series] == [(name, "solid") for name in ("oni", "plain", "lecun")]
    assert train.series[0].y == pytest.approx([10, 5, 10 / 3])
    assert list(train.series[-1].x) == [1, 2]
    assert "diverged counts as 100 %" in train.caption
    assert [line.name for line in loss.series] == ["oni", "plain", "lecun"]
    assert loss.y_log
    assert "layer 1" in first.title
    assert [list(line.y) for line in fifth.series] == [[1.1, 0.9]] * 3
    assert activations.y_log
    assert gradients.dashes == {"solid": "end of training", "dot": "start"}
    solid, dotted = gradients.series[:2]
    assert (solid.dash, solid.y[1]) == ("solid", None)
    assert (dotted.dash, list(dotted.y)) == ("dot", pytest.approx([1e-3, 1.0]))
    assert run_charts([]) == []


def test_a_run_that_diverged_counts_as_wrong_until_its_last_epoch():
    rows = [{"train_error": 0.5}, {"train_error": None}]
    diverged = RecordedRun("a", {"method": "oni", "epochs": 4}, "diverged", rows)
    unfinished = RecordedRun("b", {"method": "plain", "epochs": 4}, "unfinished", rows[:1])
    (chart,) = run_charts([diverged, unfinished])
    assert [list(line.y) for line in chart.series] == [[50, 100, 100, 100], [50]]


def test_any_metric_has_a_chart():
    run = RecordedRun("a", {"method": "oni"}, "finished", [{"epoch": 1, "fid": 30.0, "seconds": 1.0, "none": None}])
    assert metric_names([run]) == ["fid"]
    (chart,) = run_charts([run])
    assert (chart.title, list(chart.series[0].y)) == ("Fid by epoch", [30.0])
