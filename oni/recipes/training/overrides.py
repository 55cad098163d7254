"""Changes to a configuration by words, ``key=value``, or by a file: YAML, or the ``config.json`` of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import yaml

from oni.recipes.data.subjects import unknown
from oni.recipes.training.config import Config

__all__ = ["overridden", "read_changes"]

KINDS = {each.name: str(each.type) for each in fields(Config)}
WORDS = {"true": True, "yes": True, "false": False, "no": False}


def overridden(config: Config, changes: Iterable[str]) -> Config:
    """The configuration with changes, each ``key=value``, later ones winning.

    >>> changed = overridden(Config(), ["learning_rate=0.5", "drops=80,120", "method_options.steps=3"])
    >>> changed.learning_rate, changed.drops, changed.method_options["steps"]
    (0.5, (80, 120), 3)
    >>> overridden(Config(), ["learning_rat=0.5"])
    Traceback (most recent call last):
    ValueError: 'learning_rat' is not a key of a configuration; the nearest is 'learning_rate', and all are: ...
    """
    values: dict[str, Any] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            raise ValueError(f"{change!r} is not key=value; write for example learning_rate=0.5")
        name, dot, option = key.strip().partition(".")
        known_key(name)
        of_options = KINDS[name].startswith("Mapping")
        if of_options != bool(dot and option):
            remedy = f"write {name}.option=value" if of_options else f"write {name}=value"
            raise ValueError(f"{change!r}: {remedy}")
        if of_options:
            values.setdefault(name, {})[option] = plain_value(text.strip())
        else:
            values[name] = parsed(name, text.strip())
    return changed(config, values)


def read_changes(path: Path) -> list[str]:
    """The changes that a file holds, as ``key=value`` words.

    The file is YAML, of which JSON is a part: ``learning_rate: 0.5``, or ``method_options: {steps: 3}``.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must hold keys and values, such as 'epochs: 5'; got {type(values).__name__}")
    changes: list[str] = []
    for key, value in values.items():
        try:
            known_key(str(key))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if isinstance(value, dict):
            changes += [f"{key}.{option}={as_word(of)}" for option, of in value.items()]
        else:
            changes.append(f"{key}={as_word(value)}")
    return changes


def as_word(value: Any) -> str:
    """A value as it is written after ``key=``."""
    if isinstance(value, str):
        return value
    return ",".join(map(str, value)) if isinstance(value, list) else json.dumps(value)


def known_key(name: str) -> None:
    if name not in KINDS:
        raise ValueError(f"{name!r} is not a key of a configuration; {unknown(name, list(KINDS))}")


def changed(config: Config, values: Mapping[str, Any]) -> Config:
    """Options are merged, unless another network or method makes the old ones meaningless."""
    values = dict(values)
    for owner in ("network", "method"):
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


def parsed(name: str, text: str) -> Any:
    kind = KINDS[name]
    try:
        if kind == "bool":
            return WORDS[text.lower()]
        if kind == "int":
            return int(text)
        if kind == "float":
            return float(text)
        if kind.startswith("tuple"):
            items = [item.strip() for item in text.strip("()[]").split(",") if item.strip()]
            return tuple(int(item) for item in items) if "int" in kind else tuple(items)
    except (KeyError, ValueError):
        article = {"bool": "true or false", "int": "a whole number", "float": "a number"}
        expected = article.get(kind, "whole numbers with commas between them")
        raise ValueError(f"{name}={text}: must be {expected}") from None
    return text


def plain_value(text: str) -> Any:
    """What an option's text means: a number, true, false, null, or else the word itself."""
    try:
        return json.loads(text)
    except ValueError:
        return WORDS.get(text.lower(), text)
