"""Changes to a configuration by words: ``key=value``, or a JSON file such as the ``config.json`` of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from oni.recipes.config import Config
from oni.recipes.subjects import unknown

__all__ = ["overridden", "read_config"]

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


def read_config(path: Path, config: Config | None = None) -> Config:
    """The configuration with the changes that a JSON file holds."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must hold an object of keys and values, got {type(values).__name__}")
    for name in values:
        known_key(name)
    try:
        return changed(config or Config(), values)
    except TypeError as error:
        raise ValueError(f"{path}: {error}") from None


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
    return replace(config, **values)


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
