"""The pictures of the study of certificates: fronts, certified accuracy over the radius, and over time."""

from __future__ import annotations

import statistics

from oni.recipes.charts.chart import Chart, Series
from oni.recipes.charts.curves import mean_and_band
from oni.recipes.experiments.experiment import Results
from oni.recipes.experiments.studies.family import (
    COLOURS,
    ROWS,
    TEMPERATURE,
    USUAL,
    certified_at,
    clean_accuracy,
    find_runs,
    parts_of,
    rows_at,
    step_milliseconds,
    temperatures_of,
)

__all__ = ["chart_front", "make_charts"]

LABELS = {36 / 255: "36/255"}


def make_charts(results: Results) -> list[Chart]:
    """Three for each data set."""
    makers = (chart_front, chart_radii, chart_time)
    charts = [make_chart(results, name) for name in parts_of(results) for make_chart in makers]
    return [chart for chart in charts if chart.series]


def chart_front(results: Results, name: str) -> Chart:
    """Certified accuracy over clean accuracy, a point for each temperature, of the rows that have several."""
    series = []
    for row in ROWS:
        points = []
        for temperature in temperatures_of(results, name):
            if runs := find_runs(results, row, name, temperature):
                accuracy = statistics.fmean(map(clean_accuracy, runs))
                points.append((accuracy, statistics.fmean(certified_at(run, USUAL[name]) for run in runs)))
        if points:
            clean, certified = map(list, zip(*points, strict=True))
            series.append(Series(row.title, clean, certified, COLOURS[row.name]))
    label = LABELS.get(USUAL[name], f"{USUAL[name]:g}")
    caption = "Further up and to the right is better; along a line the temperature of the loss grows."
    return Chart(f"{name}: a front per method", "accuracy, %", f"certified at {label}, %", series, caption=caption)


def chart_radii(results: Results, name: str) -> Chart:
    """Certified accuracy over the radius, at the temperature that every row has."""
    series = []
    for row, runs in rows_at(results, name, TEMPERATURE[name]):
        curves = [run.measured["certified"] for run in runs if "certified" in run.measured]
        if curves:
            radii = curves[0]["radius"]
            columns = [[100 * share for share in at] for at in zip(*(curve["share"] for curve in curves), strict=True)]
            shown = [index for index, radius in enumerate(radii) if radius <= 4 * USUAL[name]]
            series.append(
                mean_and_band(row.title, [radii[at] for at in shown], [columns[at] for at in shown], COLOURS[row.name])
            )
    title = f"{name}: temperature {TEMPERATURE[name]:g}"
    return Chart(title, "radius, pixels from 0 to 1", "certified, %", series)


def chart_time(results: Results, name: str) -> Chart:
    """Certified accuracy over the time of training, at the same temperature; empty until steps are timed."""
    series = []
    for row, runs in rows_at(results, name, TEMPERATURE[name]):
        milliseconds = step_milliseconds(results, row, name)
        if milliseconds is not None:
            minutes = milliseconds * runs[0].parameters.steps / 6e4
            certified = statistics.fmean(certified_at(run, USUAL[name]) for run in runs)
            series.append(Series(row.title, [minutes], [certified], COLOURS[row.name]))
    label = LABELS.get(USUAL[name], f"{USUAL[name]:g}")
    title = f"{name}: temperature {TEMPERATURE[name]:g}, by time"
    caption = "The steps of a run, times the median time of a step on one thread, all methods in turns."
    return Chart(title, "minutes of training", f"certified at {label}, %", series, x_log=True, caption=caption)
