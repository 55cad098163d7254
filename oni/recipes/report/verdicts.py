"""Claims and verdicts, as the report and the documentation show them: counted by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from oni.recipes.experiments.verdicts import Kind, Verdict

__all__ = ["KINDS", "VERDICTS", "count_by_kind", "count_verdicts", "read_claim", "show_verdict"]

VERDICTS = tuple(verdict.value for verdict in Verdict)
KINDS = {
    Kind.PAPER.value: "the paper's claims",
    Kind.MATHEMATICS.value: "mathematics",
    Kind.OURS.value: "questions of our own",
}
"""What each kind of claims is called."""


def read_claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """A claim as ``results.json`` holds it. Results of earlier versions lack its kind, or have ``"held": true``.

    >>> read_claim({"text": "It works", "held": False, "detail": "0.5 > 0.1"})
    {'kind': 'paper', 'text': 'It works', 'verdict': 'not held', 'detail': '0.5 > 0.1'}
    """
    verdict = claim.get("verdict")
    if verdict is None and isinstance(claim.get("held"), bool):
        verdict = "held" if claim["held"] else "not held"
    kind = claim.get("kind", Kind.PAPER.value)
    return {"kind": kind, "text": claim.get("text"), "verdict": verdict, "detail": claim.get("detail")}


def show_verdict(verdict: str) -> str:
    """The verdict in words.

    >>> show_verdict("not tested")
    'not tested at this preset'
    """
    return "not tested at this preset" if verdict == "not tested" else verdict


def count_verdicts(claims: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have each verdict.

    >>> count_verdicts([{"verdict": "held"}, {"verdict": "not tested"}, {"verdict": "held"}])
    '2 held, 0 not held, 0 undecided, 1 not tested'
    """
    counts = Counter(claim["verdict"] for claim in claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)


def count_by_kind(claims: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The same for each kind of claims that there are, by what it is called.

    >>> count_by_kind([{"kind": "ours", "verdict": "held"}])
    {'questions of our own': '1 held, 0 not held, 0 undecided, 0 not tested'}
    """
    by_kind = {words: [claim for claim in claims if claim["kind"] == kind] for kind, words in KINDS.items()}
    return {words: count_verdicts(chosen) for words, chosen in by_kind.items() if chosen}
