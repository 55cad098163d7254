"""How runs in other processes report their progress to the first one. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

__all__ = ["Mailbox", "Messenger"]

Message = tuple[int, str, tuple[Any, ...]]
"""The number of a run, the method of its reporter to call, and the arguments."""


class Mailbox:
    """Holds messages until they are fetched; a Ray actor."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def put(self, message: Message) -> None:
        """Add a message."""
        self.messages.append(message)

    def fetch(self) -> list[Message]:
        """All messages since the last call, in order."""
        messages, self.messages = self.messages, []
        return messages


class Messenger:
    """The reporter of a run in the process that trains it: it sends every event to the mailbox.

    Args:
        number: of the run.
        send: sends a message without waiting, and returns a receipt.
        confirm: waits until the message of a receipt has arrived.
    """

    def __init__(self, number: int, send: Callable[[Message], Any], confirm: Callable[[Any], Any]) -> None:
        self.number, self.send, self.confirm = number, send, confirm
        self.receipt: Any = None
        self.tell("begin")

    def tell(self, method: str, *arguments: Any) -> None:
        """Send a message; training goes on without it if it gets lost."""
        with suppress(Exception):
            self.receipt = self.send((self.number, method, arguments))

    def close(self) -> None:
        """Wait until all messages have arrived."""
        with suppress(Exception):
            self.confirm(self.receipt)

    def for_other_work(self) -> OtherMessenger:
        """A reporter for work other than training."""
        return OtherMessenger(self)

    def start(self, name: str, steps: int, done: int) -> None:
        self.tell("start", name, steps, done)

    def step(self, done: int, epoch: str, values: Mapping[str, float]) -> None:
        self.tell("step", done, epoch, dict(values))

    def epoch(self, row: Mapping[str, Any]) -> None:
        self.tell("epoch", dict(row))

    def warn(self, text: str) -> None:
        self.tell("warn", text)

    def end(self, text: str) -> None:
        self.tell("end", text)


class OtherMessenger(Messenger):
    """The reporter of a run for work other than training: its messages are marked."""

    def __init__(self, messenger: Messenger) -> None:
        self.messenger = messenger

    def tell(self, method: str, *arguments: Any) -> None:
        self.messenger.tell("other", method, *arguments)
