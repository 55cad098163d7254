"""``oni`` and ``python -m oni``: start the command line so that Ctrl-C is one line even while libraries are loaded."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

__all__ = ["main"]

INTERRUPTED = 130  # 128 + SIGINT, as in a shell


def main() -> int:
    """Run the command line on the arguments of this process; return the exit code."""
    # Not where it is ignored, as by nohup.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from oni.cli import main

        return main()
    except KeyboardInterrupt:
        print("oni: interrupted", file=sys.stderr)
        return INTERRUPTED


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, or end at once while libraries are loaded: those in C++ would swallow the exception."""
    if is_loading(frame):
        print("oni: interrupted", file=sys.stderr, flush=True)
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def is_loading(frame: FrameType | None) -> bool:
    """Whether an import is under way before a command has begun: none of our functions runs but these and cli.py's."""
    importing = False
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if (
            module.startswith("oni.")
            and module not in ("oni.cli", "oni.__main__")
            and frame.f_code.co_name != "<module>"
        ):
            return False
        importing |= module in ("importlib._bootstrap", "_frozen_importlib")
        frame = frame.f_back
    return importing


if __name__ == "__main__":
    sys.exit(main())
