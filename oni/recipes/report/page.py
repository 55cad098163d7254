"""The page of a report: one HTML file with all that it shows inside it. It asks no network for anything."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from oni.recipes.charts.chart import Chart
from oni.recipes.charts.plotly import drawable
from oni.recipes.experiments.experiment import Comparison
from oni.recipes.report.charts import run_charts, run_labels, worded
from oni.recipes.report.markup import Markup, element
from oni.recipes.report.sources import RecordedExperiment, RecordedRun

__all__ = ["page"]

STATIC = Path(__file__).parent
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
ABOUT = (
    "Made by oni report from what was recorded, and from nothing else. A claim is a statement of the paper, or one "
    "that mends or adds to it, decided by a function of the measured numbers; one that does not hold stays here."
)
ABOUT_RUNS = "Made by oni report from what was recorded while training, and from nothing else."
NUMERIC = re.compile(r"[-+±\d.,%e/ ]*|inf|nan|–")
DASHES = {"solid": "none", "dash": "7 4", "dot": "2 3"}


def page(experiments: Sequence[RecordedExperiment], runs: Sequence[RecordedRun]) -> str:
    """The whole file."""
    anchors = unique([one.subject.id for one in experiments])
    charts_of_runs = run_charts(runs)
    body = [header(experiments, runs)]
    if len(experiments) > 1:
        body.append(overview(experiments, anchors))
    body += [experiment_section(one, anchor) for one, anchor in zip(experiments, anchors, strict=True)]
    if runs:
        body.append(run_section(runs, charts_of_runs))
    drawn = charts_of_runs or any(one.charts for one in experiments)
    if drawn:
        body.append(element("footer", "Charts: plotly.js, copyright Plotly, Inc., MIT licence."))
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", heading(experiments)),
        element("style", static("report.css")),
    )
    scripts = [script(get_plotlyjs())] if drawn else []
    whole = element("body", *body, *scripts, script(static("report.js")))
    return f"<!doctype html>\n{element('html', head, whole, lang='en')}\n"


def static(name: str) -> Markup:
    return Markup((STATIC / name).read_text(encoding="utf-8"))


def script(code: str) -> Markup:
    """Code, in which nothing ends the element."""
    return element("script", Markup(code.replace("</script", "<\\/script").replace("<!--", "<\\!--")))


def data(value: Any) -> Markup:
    """JSON as an element of its own, in which no character means anything to HTML."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return element("script", Markup(text), type="application/json")


def unique(ids: Sequence[str]) -> list[str]:
    """Names for anchors: the same id comes twice if an experiment does.

    >>> unique(["fig2", "fig3", "fig2"])
    ['fig2', 'fig3', 'fig2-2']
    """
    counts = [ids[: index + 1].count(id) for index, id in enumerate(ids)]
    return [id if count == 1 else f"{id}-{count}" for id, count in zip(ids, counts, strict=True)]


def heading(experiments: Sequence[RecordedExperiment]) -> str:
    if [one.subject.id for one in experiments] == ["demo"]:
        return "Deep networks that learn, and some that do not"
    return "The paper's experiments, measured" if experiments else "Training runs"


def header(experiments: Sequence[RecordedExperiment], runs: Sequence[RecordedRun]) -> Markup:
    facts = []
    if experiments:
        held, claims = sum(one.held for one in experiments), sum(len(one.record["claims"]) for one in experiments)
        facts = [counted(len(experiments), "experiment"), fact(f"{held} of {claims}", "claims held")]
    if runs:
        facts.append(counted(len(runs), "run"))
    return element(
        "header",
        element("button", "Dark", id="theme", type="button", aria_label="Switch between light and dark"),
        element("p", "oni: orthogonal weights by Newton's iteration", class_="kicker"),
        element("h1", heading(experiments)),
        element("p", ABOUT if experiments else ABOUT_RUNS, class_="lead"),
        element("p", *facts, class_="facts"),
    )


def fact(number: str, of: str) -> Markup:
    return element("span", element("b", number), " ", of)


def counted(count: int, what: str) -> Markup:
    return fact(str(count), what if count == 1 else f"{what}s")


def overview(experiments: Sequence[RecordedExperiment], anchors: Sequence[str]) -> Markup:
    """Every experiment in one line."""
    rows = []
    for one, anchor in zip(experiments, anchors, strict=True):
        claims = len(one.record["claims"])
        rows.append(
            [
                element("a", one.subject.id, href=f"#{anchor}"),
                one.subject.title,
                one.record["preset"],
                badge(f"{one.held} of {claims}", "good" if one.held == claims else "mixed"),
            ]
        )
    return element(
        "section",
        element("h2", "Summary"),
        table(["experiment", "title", "preset", "claims held"], rows, class_="summary"),
        id="summary",
    )


def experiment_section(one: RecordedExperiment, anchor: str) -> Markup:
    subject, record = one.subject, one.record
    parts = [
        element("h2", element("span", subject.id, class_="id"), " ", subject.title),
        element("p", element("b", "The paper:"), " ", subject.shows, class_="said"),
        claims(record["claims"]),
        charts(one.charts) if one.charts else picture(one),
        compared(one.comparison),
        *([element("p", element("b", "Found:"), " ", subject.found, class_="chosen")] if subject.found else []),
        element("p", element("b", "Chosen here:"), " ", subject.choices, class_="chosen"),
        element(
            "details",
            element("summary", f"How it was measured: {len(record['runs'])} runs, preset {record['preset']}"),
            element("p", element("code", record["command"])),
            pairs({**record["machine"], **record["versions"]}),
            parameters([run["parameters"] for run in record["runs"]]),
        ),
    ]
    return element("section", *parts, id=anchor)


def claims(of: Sequence[dict[str, Any]]) -> Markup:
    """Every claim with its verdict, in colour and in words."""
    items = [
        element(
            "li",
            badge("held", "good")
            if claim["verdict"] == "held"
            else badge(claim["verdict"], "mixed" if claim["verdict"] == "not tested" else "bad"),
            element("div", element("p", claim["text"]), element("p", claim["detail"], class_="detail")),
        )
        for claim in of
    ]
    return element("ul", *items, class_="claims")


def badge(text: str, kind: str) -> Markup:
    return element("span", text, class_=f"badge {kind}")


def compared(comparison: Comparison) -> Markup:
    note = [element("p", comparison.note, class_="note")] if comparison.note else []
    return element("div", table(comparison.columns, comparison.rows), *note, class_="compared")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], class_: str = "", numeric: str = "") -> Markup:
    """A table in a box of its own; columns of numbers, and the one that is said to be, are aligned at their end."""

    def is_number(cell: str) -> bool:
        return not isinstance(cell, Markup) and NUMERIC.fullmatch(cell) is not None

    classes = [
        "number" if name == numeric or all(is_number(row[index]) for row in rows) else "text"
        for index, name in enumerate(columns)
    ]

    def line(kind: str, cells: Sequence[str]) -> Markup:
        return element("tr", *(element(kind, cell, class_=of) for cell, of in zip(cells, classes, strict=True)))

    body = element("tbody", *(line("td", row) for row in rows))
    whole = element("table", element("thead", line("th", columns)), body)
    return element("div", whole, class_=f"scroll {class_}".strip(), tabindex="0")


def pairs(of: Mapping[str, Any]) -> Markup:
    """Names and values."""
    return element(
        "dl",
        *(element("div", element("dt", key), element("dd", worded(value))) for key, value in of.items()),
        class_="pairs",
    )


def parameters(of: Sequence[dict[str, Any]]) -> Markup:
    """Of every run: first what is the same in all, then a table of the rest."""
    keys = list(dict.fromkeys(key for one in of for key in one))
    words = {key: [worded(one[key]) if key in one else "" for one in of] for key in keys}
    same = {key: found[0] for key, found in words.items() if len(of) > 1 and len(set(found)) == 1}
    varied = [key for key in keys if key not in same]
    rows = [[str(index + 1), *(words[key][index] for key in varied)] for index in range(len(of))]
    return element(
        "div",
        *([element("h4", "The same in every run"), pairs(same)] if same else []),
        *([element("h4", "Parameters of every run"), table(["run", *varied], rows, class_="long")] if varied else []),
    )


def picture(one: RecordedExperiment) -> Markup:
    """The picture in the experiment's folder, if there is one."""
    for suffix, kind in {"svg": "image/svg+xml", "png": "image/png"}.items():
        path = one.folder / f"{one.subject.id}.{suffix}"
        if path.is_file():
            content = base64.b64encode(path.read_bytes()).decode()
            shown = element("img", src=f"data:{kind};base64,{content}", alt=one.subject.title)
            return element("div", shown, class_="scroll picture", tabindex="0")
    return Markup()


def charts(of: Sequence[Chart]) -> Markup:
    return element("div", *map(chart, of), class_="charts")


def chart(of: Chart) -> Markup:
    """A chart: its data, the place where it is drawn, and a legend of buttons."""
    drawn = drawable(of)
    first = {line["name"]: line for line in reversed(drawn["lines"])}
    legend = [legend_item(name, first[index]) for index, name in enumerate(drawn["names"])]
    caption = [element("p", of.caption, class_="note")] if of.caption else []
    return element(
        "figure",
        element("h3", of.title),
        element("div", class_="plot", role="img", aria_label=f"{of.title}: {of.y} by {of.x}"),
        element("div", *legend, class_="legend", role="group", aria_label="Lines"),
        element("figcaption", *caption),
        data(drawn),
        class_="chart",
    )


def legend_item(name: str, line: Mapping[str, Any]) -> Markup:
    stroke = element("path", d="M1 5H25", stroke_dasharray=DASHES.get(line["dash"], "none"))
    style = f"--light:{line['light']};--dark:{line['dark']}"
    swatch = element("svg", stroke, viewBox="0 0 26 10", style=style, aria_hidden="true")
    return element("button", swatch, element("span", name), type="button", aria_pressed="true")


def run_section(runs: Sequence[RecordedRun], drawn: Sequence[Chart]) -> Markup:
    labels = run_labels(runs)
    anchors = unique([f"run-{index}" for index in range(1, len(runs) + 1)])
    return element(
        "section",
        element("h2", "Runs"),
        run_table(runs, anchors),
        charts(drawn),
        element("h3", "Every run"),
        *(run_details(*each) for each in zip(runs, labels, anchors, strict=True)),
        id="runs",
    )


def run_table(runs: Sequence[RecordedRun], anchors: Sequence[str]) -> Markup:
    """Every run in one line, the least test error of those that finished marked."""
    errors = [final(run, "test_error") for run in runs]
    ended = [error for run, error in zip(runs, errors, strict=True) if run.status == "finished" and error is not None]
    best = min(ended) if len(ended) > 1 else None
    rows = []
    for run, anchor, error in zip(runs, anchors, errors, strict=True):
        kind = {"finished": "good", "diverged": "bad"}.get(run.status, "mixed")
        marked = error is not None and error == best and run.status == "finished"
        seconds = run.metrics.get("seconds", sum(row.get("seconds") or 0.0 for row in run.epochs))
        rows.append(
            [
                element("a", run.name, href=f"#{anchor}"),
                badge(run.status, kind),
                *(
                    worded(run.config.get(key, ""))
                    for key in ("method", "network_options.depth", "learning_rate", "seed")
                ),
                f"{len(run.epochs)} / {worded(run.config.get('epochs', '?'))}",
                percent(final(run, "train_error")),
                element("strong", badge("best", "good"), " ", percent(error)) if marked else percent(error),
                "" if seconds is None else f"{seconds:.1f}",
            ]
        )
    columns = ["run", "status", "method", "depth", "lr", "seed", "epochs", "train error %", "test error %", "seconds"]
    return table(columns, rows, class_="runs", numeric="test error %")


def final(run: RecordedRun, key: str) -> float | None:
    """A number at the end of the run, or so far."""
    if run.status == "unfinished":
        return run.epochs[-1].get(key) if run.epochs else None
    return run.metrics.get(key)


def percent(error: float | None) -> str:
    return "–" if error is None else f"{100 * error:.2f}"


def run_details(run: RecordedRun, label: str, anchor: str) -> Markup:
    sessions = []
    for index, session in enumerate(run.sessions, 1):
        told: dict[str, Any] = {}
        for key, value in session.items():
            told |= value if isinstance(value, dict) else {key.replace("_", " "): value}
        sessions += [element("h4", f"Session {index} of {len(run.sessions)}"), pairs(told)]
    return element(
        "details",
        element("summary", label, " ", element("span", run.name, class_="name")),
        element("h4", "Configuration"),
        pairs(run.config),
        *sessions,
        id=anchor,
    )
