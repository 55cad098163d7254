"""Every rank tells every other where it is, before they do something together.

A collective operation that one rank does not enter keeps the others waiting, and one that it enters at another point of
its program gives wrong numbers without a word. So before each of them the ranks exchange a short message, each with
each: who does not answer is known by its rank, and so is who is elsewhere.

torch's own means do not do this. Measured with gloo and four processes, the last of them killed: in
``all_gather_object`` its two neighbours get "Connection closed by peer" at once, which names no rank, and the one
between them waits for as long as the group allows, half an hour by default. In ``monitored_barrier`` the first rank is
told who is missing, and the two others wait as long. Here all three name the killed one within 0.03 s. Nor is this
slower: where all are well, the fastest of 280 meetings takes 0.09 ms with two processes and 0.34 ms with four, that of
``all_gather_object``, which sends sizes first, 0.47 and 1.69 ms.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = ["MOST_WEIGHTS", "Place", "RankFailed", "RollCall"]

MESSAGE_BYTES = 4096
"""All messages are of one size, so that one exchange is enough."""
MOST_WEIGHTS = 8192
"""A set of so many takes a quarter of a message."""
MOST_LETTERS = 400
"""Of why a rank failed: less than half of a message, whatever the alphabet."""


class RankFailed(RuntimeError):
    """A rank failed, ended, did not answer, or is somewhere else."""


class Place(NamedTuple):
    """Where a rank is, and what it has to say."""

    what: str
    number: int
    digest: bytes = b""
    """Of what must be the same for all."""
    weights: int = 0
    """A set of weights as bits."""
    failure: str = ""
    """Why it failed; empty if it did not."""

    def pack(self) -> bytearray:
        """The message to send."""
        content = pickle.dumps(self._replace(failure=self.failure[:MOST_LETTERS]))
        return bytearray(content.ljust(MESSAGE_BYTES, b"\0"))

    @classmethod
    def unpack(cls, message: bytearray) -> Place:
        """What was sent, by a process of the same program, as with ``all_gather_object``."""
        # What follows the pickle is not read.
        place: Place = pickle.loads(message)
        return place


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
        """Exchange messages with all others; return where each rank is.

        Raises:
            RankFailed: naming the ranks that failed, are gone, or are elsewhere. All ranks raise it, and again whenever
                they come here.
        """
        if self.failed:
            raise RankFailed(self.failed)
        places, silent = self.exchange(place)
        places[self.rank] = place
        if message := describe_failures(places, silent):
            self.fail(message)
        return places

    def fail(self, message: str) -> NoReturn:
        """Raise an error, now and whenever the ranks meet again."""
        self.failed = f"oni.share: {message}"
        raise RankFailed(self.failed)

    def exchange(self, place: Place) -> tuple[dict[int, Place], dict[int, str]]:
        """Where the others are, and why some of them do not answer."""
        own, inbox = view(place.pack()), {rank: bytearray(MESSAGE_BYTES) for rank in self.others}
        silent, sends, receipts = dict[int, str](), dict[int, Any](), dict[int, Any]()
        for rank, address in self.others.items():
            try:
                receipts[rank] = dist.irecv(view(inbox[rank]), address, group=self.group)
                sends[rank] = dist.isend(own, address, group=self.group)
            except RuntimeError as error:
                silent[rank] = self.explain_silence(error)
        for rank, receipt in receipts.items():
            if rank not in silent:
                try:
                    receipt.wait()
                except RuntimeError as error:
                    silent[rank] = self.explain_silence(error)
        places = {rank: Place.unpack(message) for rank, message in inbox.items() if rank not in silent}
        for rank, send in sends.items():
            # To those that are well: they wait for it, even if this rank is about to raise an error.
            if rank in places and not places[rank].failure:
                with suppress(RuntimeError):
                    send.wait()
        return places, silent

    def explain_silence(self, error: RuntimeError) -> str:
        """Say what an error of torch means for the rank that it is about."""
        timed_out = "timed out" in str(error).lower()
        return f"did not answer in {self.timeout.total_seconds():g} s" if timed_out else "has ended"


def view(message: bytearray) -> Tensor:
    """The bytes of a message as torch sends them; the memory is the same."""
    return torch.frombuffer(message, dtype=torch.uint8)


def describe_failures(places: Mapping[int, Place], silent: Mapping[int, str]) -> str:
    """What is wrong, the cause first; empty if nothing is.

    >>> describe_failures({0: Place("pass", 2), 1: Place("pass", 2, failure="no memory")}, {2: "has ended"})
    'rank 1 failed: no memory'
    """
    ranks = sorted(places)
    failed = [f"rank {rank} failed: {places[rank].failure}" for rank in ranks if places[rank].failure]
    if failed:
        return "; ".join(failed)
    if silent:
        return "; ".join(f"rank {rank} {text}" for rank, text in sorted(silent.items()))
    if len({(place.what, place.number) for place in places.values()}) > 1:
        where = ", ".join(f"rank {rank} at {places[rank].what} {places[rank].number}" for rank in ranks)
        return f"the ranks are not at the same point: {where}; all must run the same training passes in the same order"
    different = [str(rank) for rank in ranks if places[rank].digest != places[ranks[0]].digest]
    if different:
        return f"rank {', '.join(different)} differs from rank {ranks[0]} in the weights to compute"
    return ""
