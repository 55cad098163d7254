"""``make docs``: write docs/reproduction.md from the measured results, and from nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oni.files import write_atomically
from oni.recipes.experiments.experiment import Comparison
from oni.recipes.experiments.record import RESULTS, read_results
from oni.recipes.experiments.registry import MEASURED, load_experiment
from oni.recipes.experiments.table_formats import format_markdown
from oni.recipes.report.provenance import describe_overrides, describe_provenance
from oni.recipes.report.verdicts import count_verdicts, read_claim

__all__ = ["render_page", "write_page"]

HEAD = """\
# The paper's experiments, measured

This page is made by `make docs` from the `results.json` of every folder in `results/`; it is not edited. Each
experiment is run again by the command given with it (`oni list` names them all). A claim is a statement of the paper,
or one that corrects or adds to it, decided by a function of the measured numbers. One that does not hold stays here;
one that the runs are too short or too few to decide is *not tested*.
"""
VERDICTS = {"held": "held", "not held": "**NOT held**", "not tested": "*not tested at this preset*"}


def render_page(results: Path, docs: Path) -> str:
    """The page for the results of a folder, to stand in the folder ``docs``."""
    records = {
        id: json.loads((results / id / RESULTS).read_text(encoding="utf-8"))
        for id in MEASURED
        if (results / id / RESULTS).exists()
    }
    parts = [HEAD, render_overview(records)]
    parts += [render_section(record, os.path.relpath(results / id, docs)) for id, record in records.items()]
    return "\n".join(parts)


def render_overview(records: Mapping[str, dict[str, Any]]) -> str:
    """How many claims held, then every experiment in one line, also those that were not run."""
    claims = [read_claim(claim) for record in records.values() for claim in record["claims"]]
    rows = []
    for id in MEASURED:
        experiment = load_experiment(id)
        if id in records:
            verdicts = [read_claim(claim)["verdict"] for claim in records[id]["claims"]]
            counts = [str(verdicts.count(verdict)) for verdict in VERDICTS]
            rows.append([f"[{id}](#{id.lower()})", experiment.title, records[id]["preset"], *counts])
        else:
            rows.append([id, experiment.title, "not run", *("-" for _ in VERDICTS)])
    count = f"Of {len(claims)} claims: **{count_verdicts(claims)}**.\n"
    return "\n".join([count, format_markdown(Comparison(["experiment", "title", "preset", *VERDICTS], rows))])


def render_section(record: dict[str, Any], folder: str) -> str:
    """One experiment."""
    id = record["id"]
    subject = load_experiment(id)
    machine, versions = record["machine"], record["versions"]
    comparison = subject.table(read_results(subject, record))
    changes = describe_overrides(record.get("overrides"))
    provenance = describe_provenance(record)
    claims = [read_claim(claim) for claim in record["claims"]]
    verdicts = [[VERDICTS[claim["verdict"]], claim["text"], claim["detail"]] for claim in claims]
    lines = [
        f"## {id}",
        "",
        f"**{subject.title}.** {subject.shows}",
        "",
        f"*Chosen here:* {subject.choices}",
        "",
        *([f"*Changed from the preset {record['preset']}:* `{changes}`", ""] if changes else []),
        f"![{subject.title}]({Path(folder, id).as_posix()}.png)",
        "",
        format_markdown(comparison),
        f"{count_verdicts(claims)}:",
        "",
        format_markdown(Comparison(["", "claim", "measured"], verdicts)),
        *([f"*Found:* {subject.findings}", ""] if subject.findings else []),
        f"`{record['command']}`{f' ({provenance})' if provenance else ''}: {len(record['runs'])} runs on "
        f"{machine['cpu']}, {machine['threads']} of {machine['cores']} threads, {machine['device']}; Python "
        f"{versions['python']}, torch {versions['torch']}, oni {versions['oni']}. "
        f"[All numbers]({Path(folder, RESULTS).as_posix()}).",
        "",
    ]
    return "\n".join(lines)


def write_page(results: Path = Path("results"), to: Path = Path("docs/reproduction.md")) -> None:
    """Write the page, all or nothing."""
    write_atomically(to, render_page(results, to.parent))


if __name__ == "__main__":
    write_page(*map(Path, sys.argv[1:]))
