"""Changes to a configuration: ``key=value`` strings, or a file, which is YAML or the ``config.json`` of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from oni.names import unknown_name
from oni.recipes.run_files.config import Config

__all__ = ["apply_changes", "read_changes"]

KINDS = {item.name: str(item.type) for item in fields(Config)}
DEEPEST = 20
BOOLEANS = {"true": True, "yes": True, "false": False, "no": False}


def apply_changes(config: Config, changes: Iterable[str]) -> Config:
    """The configuration with changes, each ``key=value``; later ones win.

    >>> changed = apply_changes(Config(), ["learning_rate=0.5", "drops=80,120", "method_options.steps=3"])
    >>> changed.learning_rate, changed.drops, changed.method_options["steps"]
    (0.5, (80, 120), 3)
    >>> apply_changes(Config(), ["learning_rat=0.5"])
    Traceback (most recent call last):
    ValueError: unknown key 'learning_rat'; did you mean 'learning_rate'? Choose from data, network, ...
    """
    values: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise ValueError(f"{change!r} is not key=value; write for example learning_rate=0.5")
        name, dot, option = key.strip().partition(".")
        check_key(name)
        has_options = KINDS[name].startswith("Mapping")
        if has_options != bool(dot and option):
            remedy = f"write {name}.option=value" if has_options else f"write {name}=value"
            raise ValueError(f"{change!r}: {remedy}")
        if has_options:
            values.setdefault(name, {})[option] = parse_option(text.strip())
        else:
            values[name] = parse_field(name, text.strip())
    return replace_fields(config, values)


def read_changes(path: Path) -> list[str]:
    """The changes that a file holds, as ``key=value`` strings.

    The file is YAML, of which JSON is a part: ``learning_rate: 0.5``, or ``method_options: {steps: 3}``.
    """
    try:
        text = path.read_text(encoding="utf-8")
        check_depth(text)
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must contain keys and values, such as 'epochs: 5'; got {type(values).__name__}")
    changes: list[str] = []
    for key, value in values.items():
        try:
            check_key(str(key))
            if isinstance(value, dict):
                changes += [f"{key}.{option}={as_text(item)}" for option, item in value.items()]
            else:
                changes.append(f"{key}={as_text(value)}")
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        except TypeError:
            raise ValueError(
                f"{path}: {key} must be a number, a string, or a list or map of these, got {value!r:.60} "
                f"({type(value).__name__})"
            ) from None
    return changes


def check_depth(text: str) -> None:
    """Refuse YAML nested more deeply than a configuration ever is: its reader would run out of stack."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} deep")


def as_text(value: Any) -> str:
    """A value as it is written after ``key=``."""
    if isinstance(value, str):
        return value
    text = json.dumps(value)  # refuses what is not plain
    return ",".join(map(str, value)) if isinstance(value, list) else text


def check_key(name: str) -> None:
    """Refuse what is not a field of a configuration."""
    if name not in KINDS:
        raise ValueError(unknown_name("key", name, list(KINDS)))


def replace_fields(config: Config, values: Mapping[str, Any]) -> Config:
    """Merge options with the old ones, unless there is another data set, network, method or task."""
    values = dict(values)
    for owner in ("data", "network", "method", "task"):
        options = f"{owner}_options"
        given = values.get(options, {})
        if values.get(owner, getattr(config, owner)) == getattr(config, owner) and isinstance(given, Mapping):
            values[options] = {**getattr(config, options), **given}
        else:
            values[options] = given
    try:
        return replace(config, **values)
    except TypeError as error:
        raise ValueError(str(error)) from None


def parse_field(name: str, text: str) -> Any:
    """The value of a field, by its type."""
    kind = KINDS[name]
    try:
        if kind == "bool":
            return BOOLEANS[text.lower()]
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind.startswith("tuple"):
            items = [item.strip() for item in text.strip("()[]").split(",") if item.strip()]
            return tuple(int(item) for item in items) if "int" in kind else tuple(items)
    except (KeyError, ValueError):
        expectations = {"bool": "true or false", "int": "a whole number", "float": "a number"}
        expected = expectations.get(kind, "whole numbers with commas between them")
        raise ValueError(f"{name}={text}: must be {expected}") from None
    return text


def parse_option(text: str) -> Any:
    """The value of an option: a number, true, false, null, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return BOOLEANS.get(text.lower(), text)
