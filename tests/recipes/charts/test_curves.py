import pytest

from oni.recipes.charts.curves import error_chart, error_charts, metric_chart, signal_chart, spectrum_chart, sweep_chart
from oni.recipes.experiments.experiment import Run
from oni.recipes.run_files.recorded import TrainingRecord, read_record


def record(train=(), test=(), epochs=None, **watched):
    metrics = {"train_error": list(train), "test_error": list(test), "train_loss": [2 * error for error in train]}
    return TrainingRecord(metrics, len(train) if epochs is None else epochs, watched)


def style(*runs):
    return "#0072B2", runs


def test_one_record_for_runs_and_experiments():
    measured = {
        "status": "finished",
        "train_error": [0.5, 0.25],
        "validation_error": {"0.1": 0.3},  # of the learning rates that were tried: no curve
        "spectrum": {"0": {"1": [1.0]}, "20": {"1": [0.5]}},
    }
    read = read_record(Run({"epochs": 3}, measured))
    assert read.percent("train") == [50, 25, 100]
    assert read.percent("validation") == read.percent("test") == []
    assert read.steps("spectrum")[20] == {"1": [0.5]}
    assert read_record(read) is read


def test_errors_are_means_with_a_band_over_seeds():
    chart = error_chart("Errors", {"oni": style(record([0.4, 0.3]), record([0.3, 0.2]))}, ["train"])
    (line,) = chart.series
    assert (list(line.x), line.y) == ([1, 2], pytest.approx([35, 25]))
    assert (line.low, line.high) == (pytest.approx([30, 20]), pytest.approx([40, 30]))
    assert (chart.y, chart.y_log, chart.y_range, chart.dashes) == ("training error, %", False, (0, 45), {})


def test_epochs_without_a_measurement_are_left_out():
    chart = error_chart("Errors", {"oni": style(record([0.4, 0.3, 0.2], [None, 0.5, None, 0.3], epochs=4))}, ["test"])
    (line,) = chart.series
    assert (list(line.x), list(line.y)) == ([2, 4], pytest.approx([50, 30]))


def test_training_and_test_are_told_apart_in_the_legend():
    chart = error_chart("Errors", {"oni": style(record([0.4], [0.5]))})
    assert [line.dash for line in chart.series] == ["solid", "dash"]
    assert chart.dashes == {"solid": "training", "dash": "test"}
    alone = error_charts("{part} error", {"oni": style(record([0.4], [0.5]))})
    assert [chart.title for chart in alone] == ["training error", "test error"]
    assert [chart.series[0].dash for chart in alone] == ["solid", "solid"]


def test_one_failed_run_does_not_squash_the_others():
    chart = error_chart("Errors", {"plain": style(record([0.9, 0.9])), "oni": style(record([0.1, 0.03]))}, ["train"])
    assert (chart.y_log, chart.y_range) == (True, (2, 100))
    linear = error_chart("Errors", {"plain": style(record([0.9, 0.03]))}, ["train"], log=False)
    assert (linear.y_log, linear.y_range) == (False, (0, 100))


def test_an_axis_has_no_large_empty_part():
    chart = error_chart("Errors", {"oni": style(record([0.21, 0.11])), "olm": style(record([0.2, 0.103]))}, ["train"])
    assert (chart.y_log, chart.y_range) == (False, (10, 25))


def test_zero_is_drawn_at_the_edge_of_a_logarithmic_axis():
    chart = error_chart("Errors", {"oni": style(record([0.9, 0.02, 0.0]))}, ["train"])
    assert chart.y_range == (1, 100)
    assert list(chart.series[0].y) == pytest.approx([90, 2, 1])


def test_a_chart_of_a_sweep():
    points = [(1, [record([0.5], [0.6])]), (2, [record([0.25], [0.5])])]
    chart = sweep_chart("Sweep", "steps", points, "#0072B2")
    assert [(line.name, line.dash, line.y) for line in chart.series] == [
        ("training", "solid", [50, 25]),
        ("test", "dash", pytest.approx([60, 50])),
    ]


def test_a_chart_of_any_metric_leaves_out_epochs_without_it():
    chart = metric_chart("Loss", {"oni": style(TrainingRecord({"loss": [2.0, None, 1.0]}))}, "loss", "loss", log=True)
    (line,) = chart.series
    assert (list(line.x), list(line.y), chart.y_log) == ([1, 3], [2.0, 1.0], True)


def test_the_spectrum_nearest_to_a_step():
    run = record(spectrum={0: {"5": [1.0]}, 190: {"5": [0.9]}, 400: {"5": [0.5]}})
    for step, value in ((200, 0.9), (None, 0.5), (0, 1.0)):
        (line,) = spectrum_chart("Spectrum", {"oni": style(run)}, 5, step).series
        assert line.y == [value]
    assert spectrum_chart("Spectrum", {"oni": style(run)}, 6, None).series == []


def test_the_signal_at_the_start_and_the_end():
    run = record(signal={0: {"input": [1.0, 0.0]}, 9: {"input": [4.0, 1.0]}})
    other = record(signal={0: {"input": [1.0, 0.0]}, 9: {"input": [1.0, 1.0]}})
    chart = signal_chart("Signal", {"oni": style(run, other)}, "input", "mean |x|")
    end, start = chart.series
    assert (end.dash, end.y) == ("solid", pytest.approx([2.0, 1.0]))  # geometric means
    assert (start.dash, start.y) == ("dot", [1.0, None])
    assert chart.dashes == {"solid": "end of training", "dot": "start"}
