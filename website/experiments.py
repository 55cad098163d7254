"""The pages of the reproduction: an overview, and one page for each experiment that was measured."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oni.files import write_atomically
from oni.recipes.experiments.experiment import Comparison, Results, Run
from oni.recipes.experiments.record import RESULTS, read_results
from oni.recipes.experiments.registry import MEASURED, load_experiment
from oni.recipes.experiments.runs import Training
from oni.recipes.experiments.table_formats import format_markdown
from oni.recipes.report.provenance import describe_overrides, describe_provenance
from oni.recipes.report.verdicts import KINDS, count_by_kind, read_claim
from website.names import nav_title

__all__ = ["OVERVIEW", "describe_effort", "read_records", "render_pages", "write_pages"]

OVERVIEW = "index.md"
HEAD = """\
# The paper's experiments, measured

`make docs` writes the pages of this section from the `results.json` of every folder in `results/`; do not edit them.
The command on each page runs the experiment again (`oni list` names them all; [how runs work](../running.md), [what
the paper's own scale takes](../paper-scale.md)). One rule [judges all claims](../verdicts.md), and it treats both
sides of a comparison alike.
"""
PHOTOGRAPHS = "#photographs"
"""Behind the address of a picture that must not be turned over on a dark page; docs/assets/site.css knows it."""
VERDICTS = {
    "held": "held",
    "not held": "**NOT held**",
    "undecided": "*undecided*",
    "not tested": "*not tested*",
}


def read_records(results: Path) -> dict[str, dict[str, Any]]:
    """The ``results.json`` of every experiment that has one, in the paper's order."""
    return {
        id: json.loads((results / id / RESULTS).read_text(encoding="utf-8"))
        for id in MEASURED
        if (results / id / RESULTS).exists()
    }


def render_pages(results: Path, folder: Path) -> dict[str, str]:
    """Every page by its file name, to stand in ``folder``."""
    records = read_records(results)
    pages = {OVERVIEW: f"{HEAD}\n{render_overview(records, os.path.relpath(results, folder))}"}
    for id, record in records.items():
        pages[f"{id}.md"] = render_experiment(record, os.path.relpath(results / id, folder))
    return pages


def render_overview(records: Mapping[str, dict[str, Any]], folder: str) -> str:
    """How many claims held, a gallery, then every claim with its verdict, by kind, and what was not run.

    The results are in ``folder`` as seen from the page.
    """
    claims = {id: [read_claim(claim) for claim in record["claims"]] for id, record in records.items()}
    counts = count_by_kind([claim for several in claims.values() for claim in several])
    lines = [f"- {words}: **{count}**" for words, count in counts.items()]
    lines += ["", *render_gallery(records, folder), ""]
    for kind, words in KINDS.items():
        rows = [
            [f"[{id}]({id}.md)", describe_run(records[id], claim["text"]), claim["text"], VERDICTS[claim["verdict"]]]
            for id, several in claims.items()
            for claim in several
            if claim["kind"] == kind
        ]
        if rows:
            table = format_markdown(Comparison(["experiment", "what was run", "claim", "verdict"], rows))
            lines += [f"## {words[0].upper()}{words[1:]}", "", table]
    idle = [f"- {id}: {load_experiment(id).title}" for id in MEASURED if id not in records]
    return "\n".join([*lines, "## Not run", "", *idle, ""])


def describe_run(record: Mapping[str, Any], claim: str) -> str:
    """The preset, how long the runs of a claim are where networks are trained, and how many seeds they have."""
    words = [f"preset {record['preset']}"]
    lengths = sorted({run.parameters.steps for run in find_claimed(record, claim) if is_trained(run)})
    if lengths:
        words.append(" to ".join(f"{steps:,}" for steps in dict.fromkeys([lengths[0], lengths[-1]])) + " steps")
    return ", ".join([*words, describe_effort(record, claim)])


def describe_effort(record: Mapping[str, Any], claim: str) -> str:
    """With how many seeds the runs of a claim were made, and what they took where that was recorded."""
    runs = find_claimed(record, claim)
    if not runs:
        return "not yet run"
    seeds: dict[tuple[str, str], set[int]] = {}
    for run in filter(is_trained, runs):
        seeds.setdefault((run.parameters.row, run.parameters.group), set()).add(run.parameters.seed)
    counts = [len(each) for each in seeds.values()] or [len(record["seeds"])]
    least, most = min(counts), max(counts)
    words = f"{least} to {most} seeds" if least < most else f"{most} seed{'s' if most > 1 else ''}"
    costs = [run.measured["cost"] for run in runs if run.measured.get("cost")]
    hours = sum(cost["seconds"] * cost["threads"] for cost in costs) / 3600
    return f"{words}, {hours:.1f} core-hours" if costs and len(costs) == len(runs) else words


def find_claimed(record: Mapping[str, Any], text: str) -> Results:
    """The measured runs that a claim is about, of those that its command plans."""
    experiment = load_experiment(record["id"])
    results = read_results(experiment, record)
    claim = next((claim for claim in experiment.claims if claim.text == text), None)
    if claim is None or "missing" not in record:
        return results if claim is None else claim.of(results)
    planned = [parameters.override(record["overrides"]) for parameters in experiment.planned(record["preset"])]
    about = claim.of(Results(results.find(parameters) or Run(parameters, {}) for parameters in planned))
    return Results(run for run in about if run.measured)


def is_trained(run: Run) -> bool:
    """Whether a run is the training of a network, with a row of its own."""
    return isinstance(run.parameters, Training)


def render_gallery(records: Mapping[str, dict[str, Any]], results: str) -> list[str]:
    """A small picture of every experiment, with its name: lines of a list that the site shows as a grid."""
    lines = ['<div class="gallery" markdown>', ""]
    for id in records:
        subject = load_experiment(id)
        source = f"{Path(results, id, id).as_posix()}.png{PHOTOGRAPHS if subject.photographs else ''}"
        picture = f'<span><img src="{source}" alt="" width="220" loading="lazy"></span>'
        lines.append(f"- [{picture}<br>{nav_title(id)}]({id}.md)")
    return [*lines, "", "</div>"]


def render_experiment(record: dict[str, Any], folder: str) -> str:
    """The page of one experiment, whose results are in ``folder`` as seen from the page."""
    id = record["id"]
    subject = load_experiment(id)
    machine, versions = record["machine"], record["versions"]
    comparison = subject.table(read_results(subject, record))
    changes = describe_overrides(record.get("overrides"))
    provenance = describe_provenance(record)
    claims = [read_claim(claim) for claim in record["claims"]]
    verdicts = [[VERDICTS[claim["verdict"]], KINDS[claim["kind"]], claim["text"], claim["detail"]] for claim in claims]
    judged = ["## Claims", "", format_markdown(Comparison(["", "whose", "claim", "measured"], verdicts))]
    said, chosen = "What the paper says.", "What the paper leaves open, and what we chose."
    if not subject.paper:
        said, chosen = "Not an experiment of the paper.", "What we chose."
    lines = [
        f"# {id}: {subject.title}",
        "",
        f"**{said}** {subject.shows}",
        "",
        f"![{subject.title}]({Path(folder, id).as_posix()}.png{PHOTOGRAPHS if subject.photographs else ''})",
        "",
        *(judged if claims else []),
        *([f"**What we found.** {subject.findings}", ""] if subject.findings else []),
        "## Numbers",
        "",
        format_markdown(comparison),
        "## How it was measured",
        "",
        f"**{chosen}** {subject.choices}",
        "",
        *([f"**Changed from the preset {record['preset']}:** `{changes}`", ""] if changes else []),
        "```sh",
        record["command"],
        "```",
        "",
        f"{len(record['runs'])} runs{f' ({provenance})' if provenance else ''} on "
        f"{machine['cpu']}, {machine['threads']} of {machine['cores']} threads, {machine['device']}; Python "
        f"{versions['python']}, torch {versions['torch']}, oni {versions['oni']}. "
        f"[All numbers]({Path(folder, RESULTS).as_posix()}).",
        "",
    ]
    return "\n".join(lines)


def write_pages(results: Path, folder: Path) -> None:
    """Write every page, each all or nothing, and remove those of experiments that are no longer there."""
    pages = render_pages(results, folder)
    for name, text in pages.items():
        write_atomically(folder / name, text)
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
