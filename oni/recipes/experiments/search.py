"""The search for a learning rate, and what else is chosen with it: short trials, compared on held-out samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oni.recipes.training.run import Result

__all__ = ["HELD_OUT", "Changes", "Search", "choose", "describe_choice", "format_changes", "lower_rates", "share_at"]

Changes = Mapping[str, Any]
"""Keys of a configuration, such as ``method_options.steps``, and their values."""
HELD_OUT = 5000
"""How many training samples are held out for a search."""


@dataclass(frozen=True)
class Search:
    """A search before a run: it takes the best candidate on held-out samples, and the first of equals."""

    candidates: tuple[Changes, ...]
    trial: Changes
    """What else differs in a trial: its length, its seed, the number of held-out samples."""
    rate_factor: float = 1.0
    """The chosen learning rate is multiplied by it, if run and trials have different batch sizes."""
    radius: float | None = None
    """Judge by the share of held-out samples without a certificate at this radius, not by their error."""


def choose(search: Search | None, tried: Sequence[Result]) -> tuple[Changes, list[float | None]]:
    """The best candidate, and the held-out errors of all; ``None`` for those that diverged.

    If all diverge, the first is taken, and the run itself will show it.
    """
    if search is None:
        return {}, []
    errors = [None if result.diverged else held_out_error(result, search.radius) for result in tried]
    trained = {index: error for index, error in enumerate(errors) if error is not None}
    best = min(trained, key=lambda index: trained[index], default=0)
    return search.candidates[best], errors


def lower_rates(search: Search | None, chosen: Changes) -> list[Changes]:
    """The candidates that differ from the chosen one in a lower learning rate alone, the highest first.

    >>> search = Search(tuple({"learning_rate": rate} for rate in (0.01, 0.03, 0.1)), trial={})
    >>> lower_rates(search, {"learning_rate": 0.1})
    [{'learning_rate': 0.03}, {'learning_rate': 0.01}]
    """
    rate = chosen.get("learning_rate")
    if search is None or rate is None:
        return []
    lower = [
        candidate
        for candidate in search.candidates
        if candidate["learning_rate"] < rate and {**candidate, "learning_rate": rate} == chosen
    ]
    return sorted(lower, key=lambda candidate: -candidate["learning_rate"])


def held_out_error(result: Result, radius: float | None) -> float:
    """The share of held-out samples that are wrong, or without a certificate at a radius."""
    if radius is None:
        return float(result.metrics["validation_error"])
    (certificate,) = result.watched["certified"].values()
    return 1 - share_at(certificate, radius)


def share_at(certificate: Mapping[str, Any], radius: float) -> float:
    """The share of samples that are certified at a radius, which is one of those that were looked at."""
    pairs = zip(certificate["radius"], certificate["share"], strict=True)
    return float(min(pairs, key=lambda pair: abs(pair[0] - radius))[1])


def describe_choice(
    search: Search | None, attempts: Sequence[Changes], errors: Sequence[float | None]
) -> dict[str, Any]:
    """The choice and all candidates with their errors, as in ``results.json``.

    Of several attempts the last is the choice; at the learning rates of the others the run diverged.
    """
    if search is None:
        return {}
    *diverged, chosen = attempts
    names = [format_changes(candidate) for candidate in search.candidates]
    return {
        "chosen": dict(chosen),
        "tried": dict(zip(names, errors, strict=True)),
        **({"diverged": [attempt["learning_rate"] for attempt in diverged]} if diverged else {}),
    }


def format_changes(changes: Changes) -> str:
    """Changes in a few words, without the prefix of their keys.

    >>> format_changes({"method_options.coefficient": 1e-4, "learning_rate": 0.1})
    'coefficient 0.0001, learning rate 0.1'
    """

    def show(value: Any) -> str:
        return "all" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

    return ", ".join(f"{key.rpartition('.')[2].replace('_', ' ')} {show(value)}" for key, value in changes.items())
