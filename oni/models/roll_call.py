"""Every rank tells every other where it is, before they do something together.

A collective operation that one rank does not enter keeps the others waiting, and one that it enters at another point of
its program gives wrong numbers without a word. So before each of them the ranks exchange a short message, each with
each: who does not answer is known by its rank, and so is who is elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["MOST_WEIGHTS", "Place", "RankFailed", "RollCall"]

MOST_WEIGHTS = 8192
"""As many as a message has bits for."""
TEXT_BYTES = 400
HEADER = struct.Struct("<?16sq32s")
MESSAGE_BYTES = HEADER.size + MOST_WEIGHTS // 8 + TEXT_BYTES


class RankFailed(RuntimeError):
    """A rank failed, ended, did not answer, or is somewhere else."""


class Place(NamedTuple):
    """Where a rank is, and what it has to say."""

    what: str
    """Up to 16 letters."""
    number: int
    digest: bytes = b""
    """Of what must be the same for all; up to 32 bytes."""
    weights: int = 0
    """A set of weights as bits."""
    failure: str = ""
    """Why it failed; empty if it did not."""

    def pack(self) -> Tensor:
        header = HEADER.pack(bool(self.failure), self.what.encode(), self.number, self.digest)
        weights = self.weights.to_bytes(MOST_WEIGHTS // 8, "little")
        text = self.failure.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0")
        return torch.frombuffer(bytearray(header + weights + text), dtype=torch.uint8)

    @classmethod
    def unpack(cls, message: Tensor) -> Place:
        content = bytes(message.tolist())
        failed, what, number, digest = HEADER.unpack_from(content)
        weights = int.from_bytes(content[HEADER.size : -TEXT_BYTES], "little")
        text = content[-TEXT_BYTES:].rstrip(b"\0").decode(errors="replace")
        return cls(what.rstrip(b"\0").decode(), number, digest, weights, text or "unknown" if failed else "")


class RollCall:
    """The ranks of a group; ``group`` is a gloo group that serves nothing else."""

    def __init__(self, group: dist.ProcessGroup, timeout: timedelta) -> None:
        self.group, self.timeout = group, timeout
        self.rank, ranks = dist.get_rank(group), dist.get_process_group_ranks(group)
        self.others = {rank: ranks[rank] for rank in range(len(ranks)) if rank != self.rank}
        """The ranks in the whole job, by those in the group."""
        self.failed = ""
        """What went wrong, once something did."""

    def meet(self, place: Place) -> dict[int, Place]:
        """Exchange messages with all others; return what each rank said.

        Raises:
            RankFailed: naming the ranks that failed, are gone, or are elsewhere. All ranks raise it, and again whenever
                they come here.
        """
        if self.failed:
            raise RankFailed(self.failed)
        said, silent = self.exchange(place)
        if message := describe_failures(self.rank, place, said, silent):
            self.fail(message)
        return {self.rank: place, **said}

    def fail(self, message: str) -> NoReturn:
        """Raise an error, now and whenever the ranks meet again."""
        self.failed = f"oni.share: {message}"
        raise RankFailed(self.failed)

    def exchange(self, place: Place) -> tuple[dict[int, Place], dict[int, str]]:
        """What the others said, and why there is nothing from some of them."""
        own, silent = place.pack(), dict[int, str]()
        inbox = {rank: torch.empty(MESSAGE_BYTES, dtype=torch.uint8) for rank in self.others}
        sends, receipts = dict[int, Any](), dict[int, Any]()
        for rank, address in self.others.items():
            try:
                receipts[rank] = dist.irecv(inbox[rank], address, group=self.group)
                sends[rank] = dist.isend(own, address, group=self.group)
            except RuntimeError as error:
                silent[rank] = self.why_silent(error)
        for rank, receipt in receipts.items():
            if rank not in silent:
                try:
                    receipt.wait()
                except RuntimeError as error:
                    silent[rank] = self.why_silent(error)
        said = {rank: Place.unpack(message) for rank, message in inbox.items() if rank not in silent}
        for rank, send in sends.items():
            # To those that are well: they wait for it, even if this rank is about to raise an error.
            if rank in said and not said[rank].failure:
                with suppress(RuntimeError):
                    send.wait()
        return said, silent

    def why_silent(self, error: RuntimeError) -> str:
        """In our words."""
        timed_out = "timed out" in str(error).lower()
        return f"did not answer in {self.timeout.total_seconds():g} s" if timed_out else "has ended"


def describe_failures(rank: int, place: Place, said: Mapping[int, Place], silent: Mapping[int, str]) -> str:
    """What is wrong, the cause first; empty if nothing is."""
    failed = {other: at.failure for other, at in {rank: place, **said}.items() if at.failure}
    if failed:
        return "; ".join(f"rank {other} failed: {text}" for other, text in sorted(failed.items()))
    if silent:
        return "; ".join(f"rank {other} {text}" for other, text in sorted(silent.items()))
    places = {other: f"{at.what} {at.number}" for other, at in sorted({rank: place, **said}.items())}
    if len(set(places.values())) > 1:
        where = ", ".join(f"rank {other} at {name}" for other, name in places.items())
        return f"the ranks are not at the same point: {where}; all must run the same training passes in the same order"
    digests = {rank: place.digest.rstrip(b"\0"), **{other: at.digest.rstrip(b"\0") for other, at in said.items()}}
    different = [str(other) for other, digest in sorted(digests.items()) if digest != digests[min(digests)]]
    if different:
        return f"rank {', '.join(different)} differs from rank {min(digests)} in the weights to compute"
    return ""
