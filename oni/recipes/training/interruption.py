"""Ctrl-C between two steps instead of within one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Interrupted", "Stop", "catch_signals", "how_to_continue"]


class Interrupted(KeyboardInterrupt):
    """The run was stopped by Ctrl-C or SIGTERM, and continues from here when it is started again."""

    exit_code = 130  # 128 + SIGINT, as in a shell


class Stop:
    """Whether someone has asked to stop."""

    asked = False


def how_to_continue(resumes: bool) -> str:
    """What to do after an interruption; ``resumes``: whether the same command continues, or it takes ``--resume``.

    >>> how_to_continue(True), how_to_continue(False)
    ('start it again to continue', 'start it again with --resume to continue')
    """
    return f"start it again {'' if resumes else 'with --resume '}to continue"


active: list[Stop] = []
"""One for each ``catch_signals`` context that the main thread is in, the innermost last."""


@contextmanager
def catch_signals() -> Iterator[Stop]:
    """Inside, the first SIGINT or SIGTERM only sets ``asked``; a second one does what it would do outside.

    What was asked outside is asked inside as well.
    """
    stop = Stop()
    before: dict[int, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        for each in active:
            each.asked = True
        signal.signal(number, before[number])

    # Python lets only the main thread have handlers.
    if threading.current_thread() is threading.main_thread():
        stop.asked = any(outer.asked for outer in active)
        active.append(stop)
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if before:
            active.remove(stop)
