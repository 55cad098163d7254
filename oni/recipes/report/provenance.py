"""When something was measured, and by which version of the code, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["describe_code", "describe_overrides", "describe_provenance", "describe_sessions"]

COMMIT_DIGITS = 10


def describe_code(code: str) -> str:
    """The result of `oni.machine.code_version` in words.

    >>> describe_code("47bddd2a270c3aecb88afe2afe19793b3bef89c5+")
    'commit 47bddd2a27 with local changes'
    >>> describe_code("installed")
    'an installed package'
    """
    if re.fullmatch(r"[0-9a-f]{40}\+?", code):
        return f"commit {code[:COMMIT_DIGITS]}" + (" with local changes" if code.endswith("+") else "")
    return {"installed": "an installed package", "unknown": "code of an unknown version"}.get(code, code)


def describe_date(date: str) -> str:
    """The day of a time in ISO 8601; anything else as it is."""
    return date[:10] if re.match(r"\d{4}-\d\d-\d\d", date) else date


def describe_provenance(record: Mapping[str, Any]) -> str:
    """Date and code of a results.json, of the runs that were added to it, and what else is to be known of its runs.

    Empty if it says nothing of that.

    >>> first = {"date": "2026-11-16T03:36:52+00:00", "code": "installed"}
    >>> describe_provenance({**first, "added": [{"date": "2026-11-17", "code": "installed", "runs": 2}]})
    '2026-11-16, an installed package; 2 runs added 2026-11-17, an installed package'
    >>> there = {"machine": {"cpu": "AMD EPYC"}, "versions": {"oni": "0.1.0"}, "date": "2026-11-18", "runs": 1}
    >>> describe_provenance({**first, "machine": {"cpu": "Intel Xeon"}, "added": [there, there]})
    '2026-11-16, an installed package; 2 runs added 2026-11-18, on AMD EPYC with oni 0.1.0'
    >>> describe_provenance({"missing": 3, "trained_on": {"AMD EPYC": 20, "Intel Xeon": 2}})
    'trained on AMD EPYC (20) and Intel Xeon (2); 3 more are not yet measured'
    """
    words = [describe_date(record["date"])] if record.get("date") else []
    own = ", ".join([*words, describe_code(record["code"])] if record.get("code") else words)
    added: dict[str, int] = {}
    for part in record.get("added", []):
        origin = ", ".join(filter(None, [describe_provenance(part), describe_elsewhere(part, record)]))
        added[origin] = added.get(origin, 0) + part["runs"]
    later = [f"{runs} run{'' if runs == 1 else 's'} added {origin}" for origin, runs in added.items()]
    machines = [f"{cpu} ({runs})" for cpu, runs in record.get("trained_on", {}).items()]
    if len(machines) > 1:
        later.append(f"trained on {' and '.join(machines)}")
    if record.get("missing"):
        later.append(f"{record['missing']} more are not yet measured")
    return "; ".join([own, *later] if own else later)


def describe_elsewhere(part: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Where runs were added, if on another processor or with another version than the first."""
    cpu, version = find_place(part)
    return f"on {cpu} with oni {version}" if (cpu, version) != find_place(record) and cpu and version else ""


def find_place(record: Mapping[str, Any]) -> tuple[str, str]:
    """The processor on which runs were trained, and the version of this package."""
    cpu = record.get("machine", {}).get("cpu", "")
    return next(iter(record.get("trained_on", {})), cpu), record.get("versions", {}).get("oni", "")


def describe_sessions(sessions: Sequence[Mapping[str, Any]]) -> str:
    """Dates and code of the sessions that trained one or several runs; empty if they do not say.

    >>> describe_sessions([{"started": "2026-11-15T03:36:52", "code": "installed"}, {"started": "2026-11-16"}])
    '2026-11-15 to 2026-11-16, an installed package'
    """
    days = sorted({describe_date(str(session["started"])) for session in sessions if session.get("started")})
    codes = list(dict.fromkeys(describe_code(str(session["code"])) for session in sessions if session.get("code")))
    span = [" to ".join(dict.fromkeys([days[0], days[-1]]))] if days else []
    return ", ".join([*span, *codes])


def describe_overrides(overrides: Mapping[str, Any] | None) -> str:
    """What the user changed, as it was typed.

    >>> describe_overrides({"epochs": 30, "data": "fashion-mnist"})
    'epochs=30, data=fashion-mnist'
    """
    return ", ".join(f"{key}={value}" for key, value in (overrides or {}).items())
