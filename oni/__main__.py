"""``oni`` and ``python -m oni``: start the command line so that Ctrl-C is one line even while libraries are loaded."""

from __future__ import annotations

import sys

__all__ = ["main"]

INTERRUPTED = 130  # 128 + SIGINT, as in a shell


def main() -> int:
    """Run the command line on the arguments of this process; return the exit code."""
    try:
        from oni.cli import main

        return main()
    except KeyboardInterrupt:
        print("oni: interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
