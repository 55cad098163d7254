"""Files of experiments and runs, read and checked: an error names the file, what is wrong in it, and what to do."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

from oni import files
from oni.recipes.run_files.run_folder import FORMAT

__all__ = ["REMEDY", "check_format", "check_type", "read_epochs", "read_json", "read_numbers", "read_watched"]

REMEDY = "make one with: oni reproduce fig5 --preset smoke"
LARGEST = {"config.json": 1 << 18, "run.json": 1 << 22}
"""Bytes of files whose texts are shown as they stand; a session takes about 1 kB of run.json."""
TYPES: dict[type, str] = {dict: "an object", list: "a list", str: "a string", float: "a number"}


def read_json(path: Path) -> Any:
    """What a JSON file holds; NaN, infinities, and more than a file of this name ever holds, are refused."""
    size, largest = path.stat().st_size, LARGEST.get(path.name, math.inf)
    if size > largest:
        raise ValueError(f"{path}: has {size:,} bytes, more than the {largest:,} allowed for this file; {REMEDY}")
    return files.read_json(path, remedy=f"delete it and {REMEDY}")


def check_type(path: Path, what: str, value: Any, kind: type) -> Any:
    """Return the value if it is of this type."""
    if not isinstance(value, kind):
        got = "nothing" if value is None else repr(value)[:40]
        raise ValueError(f"{path}: {what} must be {TYPES[kind]}, got {got}; {REMEDY}")
    return value


def check_format(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    """Return the record if this version of oni can read it."""
    number = record.get("format", 1)
    if number not in range(1, FORMAT + 1):
        raise ValueError(f"{path}: its format is {number!r}, but this version of oni reads up to {FORMAT}; update oni")
    return record


def read_epochs(path: Path) -> list[dict[str, float | None]]:
    """The rows of epochs.csv; an empty cell is ``None``."""
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines(), strict=True))
        return [read_numbers(path, {name: float(cell) if cell else None for name, cell in row.items()}) for row in rows]
    except (ValueError, TypeError, csv.Error) as error:
        raise ValueError(
            f"{path}: not the table of epochs that training writes ({error}); train the run again"
        ) from None


def read_watched(path: Path, watched: dict[str, Any]) -> dict[str, dict[int, dict[str, list[float | None]]]]:
    """Lists of numbers by step; what was recorded in another form can't be drawn and is left out."""
    lists: dict[str, dict[int, dict[str, list[float | None]]]] = {}
    for name, steps in watched.items():
        for step, values in check_type(path, f'"{name}" of "watched"', steps, dict).items():
            if not re.fullmatch(r"[0-9]{1,15}", step):
                raise ValueError(f'{path}: steps of "{name}" must be whole numbers, got {step!r}; {REMEDY}')
            if isinstance(values, dict) and all(isinstance(value, list) for value in values.values()):
                lists.setdefault(name, {})[int(step)] = {
                    key: [read_number(path, key, number) for number in value] for key, value in values.items()
                }
    return lists


def read_numbers(path: Path, row: dict[str, Any]) -> dict[str, float | None]:
    """Every number by its name."""
    return {name: read_number(path, name, value) for name, value in row.items()}


def read_number(path: Path, name: str, value: Any) -> float | None:
    """A number, or ``None`` for one that is missing or not finite."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f'{path}: "{name}" must be a number or null, got {value!r:.40}; {REMEDY}')
    return value if abs(value) < 1e300 else None
