"""The charts of runs: every metric that they recorded, spectra, and the size of signals."""

from __future__ import annotations

from collections.abc import Sequence

from oni.recipes.charts.chart import Chart
from oni.recipes.charts.curves import (
    PARTS,
    Styles,
    error_charts,
    metric_chart,
    signal_chart,
    spectrum_chart,
)
from oni.recipes.report.labels import run_colours, run_labels
from oni.recipes.report.sources import RecordedRun

__all__ = ["metric_names", "run_charts"]

NOT_METRICS = {"epoch", "epochs", "steps", "seconds", "learning_rate"}
"""Columns of a run's table of epochs that say where it is, not how well it does."""
SIGNALS = {"input": "activation", "gradient": "gradient"}
DIVERGED = "A run that diverged counts as 100 % from there on."
LAST_STEP = "Of the weight, before any scale, at the last recorded step. All 1: orthogonal."
LEVEL = "A level line: the signal is kept through the layers."


def run_charts(runs: Sequence[RecordedRun]) -> list[Chart]:
    """All charts that have something to show."""
    records = [run.record for run in runs]
    styles: Styles = {
        label: (colour, [record])
        for label, colour, record in zip(run_labels(runs), run_colours(runs), records, strict=True)
    }
    caption = DIVERGED if any(run.status == "diverged" for run in runs) else ""
    charts = error_charts("{Part} error by epoch", styles, list(PARTS), caption=caption)
    for metric in metric_names(runs):
        part, _, kind = metric.rpartition("_")
        if kind == "error":
            continue
        words = f"{PARTS.get(part, part)} {kind}".strip().replace("_", " ")
        charts.append(
            metric_chart(f"{words[0].upper()}{words[1:]} by epoch", styles, metric, words, log=kind == "loss")
        )
    layers = [layer for record in records for step in record.steps("spectrum").values() for layer in step]
    for layer in dict.fromkeys(layers):
        charts.append(spectrum_chart(f"Singular values of layer {layer}", styles, layer, None, LAST_STEP))
    for quantity, word in SIGNALS.items():
        charts.append(signal_chart(f"Size of {word}s by layer", styles, quantity, f"mean absolute {word}", LEVEL))
    return [chart for chart in charts if chart.series]


def metric_names(runs: Sequence[RecordedRun]) -> list[str]:
    """Every metric that some run recorded, in the order of its table."""
    rows = [row for run in runs for row in [*run.rows, run.metrics]]
    names = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    return [name for name in names if name not in NOT_METRICS]
