"""``results.json``: the measurements of an experiment, the machine, and which of its claims held."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from oni.machine import code_version, machine, versions
from oni.recipes.experiments.experiment import SKIPPED, Experiment, Results, Run, as_record, read_parameters
from oni.recipes.experiments.texts import format_override

__all__ = ["RESULTS", "RUNS", "add_runs", "find_machines", "format_json", "make_command", "make_record", "read_results"]

RESULTS = "results.json"
RUNS = "runs"
"""The folder of training runs, next to those of experiments."""


def make_record(
    experiment: Experiment,
    results: Results,
    *,
    preset: str,
    seed: int,
    seeds: int | None,
    overrides: Mapping[str, Any],
    planned: Sequence[Any],
    trained_on: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Everything that ``results.json`` holds.

    Args:
        experiment: what was measured.
        results: its runs.
        preset, seed, seeds, overrides: the options of the command.
        planned: the parameters of every run; how many are not yet measured is left out if none is.
        trained_on: see `find_machines`; left out if there is none.
    """
    record = {
        "id": experiment.id,
        "preset": preset,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "code": code_version(),
        "machine": machine(),
        "versions": versions(),
        "command": make_command(experiment.id, preset, seed, seeds, overrides),
        "seeds": sorted({run.parameters.seed for run in results}),
        "overrides": dict(overrides),
        "runs": [as_record(run) for run in results],
        "paper": dict(experiment.paper),
        "claims": experiment.judge(results, preset, planned),
        "table": experiment.table(results).as_json(),
    }
    more = {"missing": len(planned) - len(results), "trained_on": dict(trained_on or {})}
    return record | {name: value for name, value in more.items() if value}


def find_machines(results: Results, runs: Path) -> dict[str, int]:
    """How many of the trained runs were finished on each kind of processor, by its name."""
    counts: dict[str, int] = {}
    for name in sorted({run.measured["run"] for run in results if "run" in run.measured}):
        path = runs / name / "run.json"
        sessions = json.loads(path.read_text(encoding="utf-8")).get("sessions", []) if path.exists() else []
        cpu = sessions[-1].get("machine", {}).get("cpu", "unknown") if sessions else "unknown"
        counts[cpu] = counts.get(cpu, 0) + 1
    return counts


def add_runs(
    experiment: Experiment, record: Mapping[str, Any], results: Results, planned: Sequence[Any], runs: Path
) -> tuple[Results, dict[str, Any]]:
    """Add runs that were measured later to a record, in the planned order, and judge all claims again.

    A run replaces the one with the same parameters, unless it was skipped. Under ``added``, the record says when and
    where runs were measured that are new or have other numbers; ``runs`` is the folder that has their folders.
    """
    before = read_results(experiment, record)
    skipped = [run for run in results if run.measured.get("status") == SKIPPED]
    every_run = Results([*(run for run in results if run not in skipped), *before, *skipped])
    found = map(every_run.find, planned)
    merged = Results(run for run in found if run is not None)
    new = [run for run in merged if run not in before]
    fields = {"date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "code": code_version()}
    later = {**fields, "machine": machine(), "versions": versions(), "runs": len(new)}
    # Not always on the machine that adds them.
    if trained_on := find_machines(Results(new), runs):
        later["trained_on"] = trained_on
    missing = len(planned) - len(merged)
    return merged, {
        **{name: value for name, value in record.items() if name != "missing"},
        **({"missing": missing} if missing else {}),
        "seeds": sorted({run.parameters.seed for run in merged}),
        "runs": [as_record(run) for run in merged],
        "claims": experiment.judge(merged, record["preset"], planned),
        "table": experiment.table(merged).as_json(),
        "added": [*record.get("added", []), *([later] if new else [])],
    }


def make_command(
    id: str, preset: str, seed: int = 0, seeds: int | None = None, overrides: Mapping[str, Any] | None = None
) -> str:
    """The command that measures the same again."""
    words = ["oni", "reproduce", id, "--preset", preset]
    words += ["--seed", str(seed)] if seed else []
    words += [] if seeds is None else ["--seeds", str(seeds)]
    return shlex.join([*words, *(format_override(key, value) for key, value in (overrides or {}).items())])


def format_json(record: dict[str, Any]) -> str:
    """JSON with one line for each key, and for each item of a list of objects."""

    def dump(value: Any) -> str:
        if isinstance(value, list) and value and isinstance(value[0], dict):
            return "[\n" + ",\n".join(f"  {json.dumps(item, allow_nan=False)}" for item in value) + "\n ]"
        return json.dumps(value, allow_nan=False)

    lines = (f" {json.dumps(key)}: {dump(value)}" for key, value in record.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_results(experiment: Experiment, record: Mapping[str, Any]) -> Results:
    """The runs of a ``results.json``."""
    return Results(Run(read_parameters(experiment, run["parameters"]), run["measured"]) for run in record["runs"])
