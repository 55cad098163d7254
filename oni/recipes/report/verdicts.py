"""The three verdicts on a claim, as the report and the documentation show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["VERDICTS", "count_verdicts", "read_claim", "show_verdict"]

VERDICTS = ("held", "not held", "not tested")


def read_claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """A claim as ``results.json`` holds it. Results of earlier versions have ``"held": true`` or ``false`` instead.

    >>> read_claim({"text": "It works", "held": False, "detail": "0.5 > 0.1"})
    {'text': 'It works', 'verdict': 'not held', 'detail': '0.5 > 0.1'}
    """
    verdict = claim.get("verdict")
    if verdict is None and isinstance(claim.get("held"), bool):
        verdict = "held" if claim["held"] else "not held"
    return {"text": claim.get("text"), "verdict": verdict, "detail": claim.get("detail")}


def show_verdict(verdict: str) -> str:
    """The verdict in words.

    >>> show_verdict("not tested")
    'not tested at this preset'
    """
    return "not tested at this preset" if verdict == "not tested" else verdict


def count_verdicts(claims: Sequence[Mapping[str, Any]]) -> str:
    """How many claims have each verdict.

    >>> count_verdicts([{"verdict": "held"}, {"verdict": "not tested"}, {"verdict": "held"}])
    '2 held, 0 not held, 1 not tested'
    """
    counts = Counter(claim["verdict"] for claim in claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
