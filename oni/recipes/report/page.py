"""The page of a report: one HTML file with all that it shows inside it. It asks no network for anything."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from oni.recipes.charts.chart import Chart
from oni.recipes.charts.plotly import encode_chart
from oni.recipes.report.charts import run_charts
from oni.recipes.report.labels import format_value, run_labels
from oni.recipes.report.provenance import describe_overrides, describe_provenance, describe_sessions
from oni.recipes.report.sources import RecordedExperiment, RecordedRun
from oni.recipes.report.tables import make_table, overview_table, run_table, split_parameters
from oni.recipes.report.verdicts import KINDS, count_by_kind, show_verdict
from oni.terminal import printable

__all__ = ["render_page"]

FOLDER = Path(__file__).parent
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
TONES = {"held": "good", "not held": "bad"}
"""Of verdicts; the others are neutral."""
PICTURE_TYPES = {"svg": "image/svg+xml", "png": "image/png"}


def render_page(experiments: Sequence[RecordedExperiment], runs: Sequence[RecordedRun]) -> str:
    """The whole file."""
    anchors = number_repeats([experiment.subject.id for experiment in experiments])
    sections = [experiment_section(experiment, anchor) for experiment, anchor in zip(experiments, anchors, strict=True)]
    run_part = run_section(runs) if runs else None
    has_charts = any(section["charts"] for section in [*sections, *([run_part] if run_part else [])])
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            policy=POLICY,
            title="Experiments, measured" if experiments else "Training runs",
            facts=count_facts(experiments, runs),
            counts=count_by_kind([claim for experiment in experiments for claim in experiment.claims]),
            overview=overview_table(experiments, anchors) if len(experiments) > 1 else None,
            experiments=sections,
            runs=run_part,
            has_charts=has_charts,
            css=Markup((FOLDER / "report.css").read_text(encoding="utf-8")),
            script=inline_script((FOLDER / "report.js").read_text(encoding="utf-8")),
            plotly=inline_script(get_plotlyjs()) if has_charts else "",
        )
    )


def environment() -> Environment:
    """Jinja2 with every string escaped, and control characters shown instead of sent."""
    jinja = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=show_controls,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    jinja.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return jinja


def show_controls(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def inline_script(code: str) -> Markup:
    """Code in which nothing ends its element."""
    return Markup(code.replace("</script", "<\\/script").replace("<!--", "<\\!--"))


def number_repeats(ids: Sequence[str]) -> list[str]:
    """Names for anchors, also where an experiment comes twice.

    >>> number_repeats(["fig2", "fig3", "fig2"])
    ['fig2', 'fig3', 'fig2-2']
    """
    counts = [ids[: index + 1].count(id) for index, id in enumerate(ids)]
    return [id if count == 1 else f"{id}-{count}" for id, count in zip(ids, counts, strict=True)]


def count_facts(experiments: Sequence[RecordedExperiment], runs: Sequence[RecordedRun]) -> list[tuple[int, str]]:
    """The numbers at the top of the page."""

    def count(number: int, word: str) -> tuple[int, str]:
        return number, word if number == 1 else f"{word}s"

    numbers = {"experiment": len(experiments), "run": len(runs)}
    return [count(number, word) for word, number in numbers.items() if number]


def experiment_section(experiment: RecordedExperiment, anchor: str) -> dict[str, Any]:
    """What the template shows of an experiment."""
    subject, record, comparison = experiment.subject, experiment.record, experiment.comparison
    same, varied = split_parameters([run["parameters"] for run in record["runs"]])
    provenance = {name: record[name] for name in ("date", "code") if record.get(name)}
    return {
        "anchor": anchor,
        "id": subject.id,
        "title": subject.title,
        "source": "The paper" if experiment.of_paper else "The question",
        "shows": subject.shows,
        "preset": record["preset"],
        "overrides": describe_overrides(record.get("overrides")),
        "provenance": describe_provenance(record),
        "claims": [
            {
                **claim,
                "shown": show_verdict(claim["verdict"]),
                "tone": TONES.get(claim["verdict"], "neutral"),
                "whose": KINDS[claim["kind"]],
            }
            for claim in experiment.claims
        ],
        "charts": [chart_context(chart) for chart in experiment.charts],
        "picture": embed_picture(experiment),
        "photographs": subject.photographs,
        "images": [
            {"caption": caption, "source": embed(content, "image/png")}
            for caption, content in experiment.images.items()
        ],
        "table": make_table(comparison.columns, comparison.rows),
        "note": comparison.note,
        "found": subject.findings,
        "choices": subject.choices,
        "run_count": len(record["runs"]),
        "command": record["command"],
        "machine": format_values({**provenance, **record["machine"], **record["versions"]}),
        "same": same,
        "varied": varied,
    }


def run_section(runs: Sequence[RecordedRun]) -> dict[str, Any]:
    """What the template shows of runs."""
    anchors = [f"run-{index}" for index in range(1, len(runs) + 1)]
    table, note = run_table(runs, anchors)
    return {
        "table": table,
        "note": note,
        "provenance": describe_sessions([session for run in runs for session in run.sessions]),
        "charts": [chart_context(chart) for chart in run_charts(runs)],
        "sheets": [
            {"label": label, "source": embed(run.sheet, "image/png")}
            for run, label in zip(runs, run_labels(runs), strict=True)
            if run.sheet
        ],
        "details": [
            {
                "anchor": anchor,
                "label": label,
                "name": run.name,
                "config": format_values(run.config),
                "sessions": [flatten_session(session) for session in run.sessions],
            }
            for run, label, anchor in zip(runs, run_labels(runs), anchors, strict=True)
        ],
    }


def flatten_session(session: Mapping[str, Any]) -> dict[str, str]:
    """What a session recorded, in one list of names and values."""
    flat: dict[str, Any] = {}
    for key, value in session.items():
        flat |= value if isinstance(value, dict) else {key.replace("_", " "): value}
    return format_values(flat)


def format_values(values: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): format_value(value) for key, value in values.items()}


def chart_context(chart: Chart) -> dict[str, Any]:
    """A chart: its data, and its legend of one entry for each name and one for each kind of line."""
    data = encode_chart(chart)
    first = {line["name"]: line for line in reversed(data["lines"])}
    names = [
        {
            "text": name,
            "dash": "solid" if chart.dashes else first[index]["dash"],
            "light": first[index]["light"],
            "dark": first[index]["dark"],
        }
        for index, name in enumerate(data["names"])
    ]
    return {
        "title": chart.title,
        "x": chart.x,
        "y": chart.y,
        "caption": chart.caption,
        "names": names,
        "dashes": dict(chart.dashes),
        "data": data,
    }


def embed_picture(experiment: RecordedExperiment) -> str:
    """The picture in the experiment's folder as a data URI; empty if there is none."""
    for suffix, media_type in PICTURE_TYPES.items():
        path = experiment.folder / f"{experiment.subject.file_name}.{suffix}"
        if path.is_file():
            return embed(path.read_bytes(), media_type)
    return ""


def embed(content: bytes, media_type: str) -> str:
    """A file as a data URI."""
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"
