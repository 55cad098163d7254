"""What the command line says of an error, and the exit code it ends with."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress

from oni.terminal import printable

__all__ = ["exit_code", "explain", "silence_output"]

MENDABLE = 2
CANNOT_WRITE = 74  # EX_IOERR of sysexits.h
FAILED_WRITES = {errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""What the system says of a disk that is full, read-only, over its quota or broken."""


def explain(error: Exception) -> str | None:
    """One line for an error that a user can mend, ``None`` for a bug."""
    line: str | None = None
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if package != "oni":
            line = f'this needs {package}, which is not installed: pip install "oni-torch[recipes]"'
    elif isinstance(error, OSError) and error.strerror:
        # Files are opened by name; what has none is what print writes to.
        line = f"{'standard output' if error.filename is None else error.filename}: {error.strerror}"
        if error.filename is None:
            silence_output()
    elif isinstance(error, OSError | ValueError):
        line = str(error)
    # A usage error; typer keeps its class to itself.
    elif hasattr(error, "format_message"):
        line = f"{error.format_message()} (try: oni --help)"
    return None if line is None else printable(" ".join(line.split()))


def exit_code(error: Exception) -> int:
    """74 (EX_IOERR of sysexits.h) for what can't be written, 2 for everything else that a user can mend."""
    if isinstance(error, OSError) and error.errno in FAILED_WRITES:
        return CANNOT_WRITE
    return getattr(error, "exit_code", MENDABLE)


def silence_output() -> None:
    """Throw away what could not be printed: Python would try it again on exit, and complain once more."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
