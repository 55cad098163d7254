"""``make docs``: write docs/reproduction.md from the measured results, and from nothing else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oni.recipes.experiments.experiment import HELD, NOT_TESTED, Comparison
from oni.recipes.experiments.record import RESULTS, read_results
from oni.recipes.experiments.registry import load_all, load_experiment
from oni.recipes.experiments.table_formats import format_markdown

__all__ = ["page", "write"]

HEAD = """\
# The paper's experiments, measured

This page is made by `make docs` from the `results.json` of every folder in `results/`; it is not edited. Each
experiment is run again by the command given with it (`oni list` names them all). A claim is a statement of the paper,
or one that mends or adds to it, decided by a function of the measured numbers; one that does not hold stays here.
"""


def page(results: Path, docs: Path) -> str:
    """The page for the results of a folder, to stand in the folder ``docs``."""
    records = {
        id: json.loads((results / id / RESULTS).read_text(encoding="utf-8"))
        for id in load_all()
        if (results / id / RESULTS).exists()
    }
    parts = [HEAD, overview(records)]
    parts += [section(record, os.path.relpath(results / id, docs)) for id, record in records.items()]
    return "\n".join(parts)


def overview(records: Mapping[str, dict[str, Any]]) -> str:
    """Every experiment in one line, and those not run."""
    known = load_all()
    rows = []
    for id, one in known.items():
        if id in records:
            claims = records[id]["claims"]
            held = f"{sum(claim['verdict'] == HELD for claim in claims)} of {len(claims)}"
            rows.append([f"[{id}](#{id.lower()})", one.title, records[id]["preset"], held])
        else:
            rows.append([id, one.title, "not run", "-"])
    return format_markdown(Comparison(["experiment", "title", "preset", "claims held"], rows))


def section(record: dict[str, Any], folder: str) -> str:
    """One experiment."""
    id = record["id"]
    subject = load_experiment(id)
    machine, versions = record["machine"], record["versions"]
    lines = [
        f"## {id}",
        "",
        f"**{subject.title}.** {subject.shows}",
        "",
        f"*Chosen here:* {subject.choices}",
        "",
        f"![{subject.title}]({Path(folder, id).as_posix()}.png)",
        "",
        format_markdown(subject.table(read_results(subject, record))),
        *claimed(record["claims"]),
        "",
        *([f"*Found:* {subject.found}", ""] if subject.found else []),
        f"`{record['command']}`: {len(record['runs'])} runs on {machine['cpu']}, {machine['threads']} of "
        f"{machine['cores']} threads, {machine['device']}; Python {versions['python']}, torch {versions['torch']}, "
        f"oni {versions['oni']}. [All numbers]({Path(folder, RESULTS).as_posix()}).",
        "",
    ]
    return "\n".join(lines)


def claimed(claims: Sequence[dict[str, Any]]) -> list[str]:
    shown = {HELD: "held", NOT_TESTED: "*not tested at this preset*"}
    rows = [[shown.get(claim["verdict"], "**NOT held**"), claim["text"], claim["detail"]] for claim in claims]
    return format_markdown(Comparison(["", "claim", "measured"], rows)).splitlines()


def write(results: Path = Path("results"), to: Path = Path("docs/reproduction.md")) -> None:
    """Write the page, all or nothing."""
    text = page(results, to.parent)
    to.parent.mkdir(parents=True, exist_ok=True)
    unfinished = to.with_suffix(".unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, to)


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:]))
