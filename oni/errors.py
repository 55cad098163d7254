"""The message and the exit code of the command line for an error."""

from __future__ import annotations

import errno
import json
import os
import sys
from contextlib import suppress
from importlib.metadata import distributions
from typing import Any
from urllib.parse import urlsplit

from oni.terminal import printable

__all__ = ["exit_code", "explain", "make_install_command", "silence_output"]

MENDABLE = 2
CANNOT_WRITE = 74  # EX_IOERR of sysexits.h
FAILED_WRITES = {errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Error numbers of a disk that is full, read-only, over its quota or broken."""


def explain(error: Exception) -> str | None:
    """Return one line for an error that the user can fix, ``None`` for a bug."""
    line: str | None = None
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if package != "oni":
            line = f"this needs {package}, which is not installed: {make_install_command('recipes')}"
    elif isinstance(error, OSError) and error.strerror:
        # Files are opened by name; an error without one comes from standard output.
        line = f"{'standard output' if error.filename is None else error.filename}: {error.strerror}"
        if error.filename is None:
            silence_output()
    elif isinstance(error, MemoryError) or "DefaultCPUAllocator" in str(error):
        line = "there is not enough memory for this; choose smaller sizes, fewer steps or a smaller batch"
    elif isinstance(error, OSError | ValueError):
        line = str(error)
    # A usage error; typer keeps its class to itself.
    elif hasattr(error, "format_message"):
        line = explain_usage(error)
    return None if line is None else printable(" ".join(line.split()))


def explain_usage(error: Any) -> str:
    """Say what is wrong with the arguments of a command, and where its help is."""
    message = error.format_message()
    context: Any = getattr(error, "ctx", None)
    missing: Any = getattr(error, "param", None)
    command = "oni" if context is None else context.command_path
    hint = f"try: {command} --help"
    if message.startswith("Missing argument") and getattr(missing, "help", None):
        message = f"{message.rstrip('.')}: {missing.help}"
    # The parser knows neither the option nor one of a similar name.
    is_unknown = getattr(error, "possibilities", None) in ([], ())
    if is_unknown and context is not None and any(parameter.name == "changes" for parameter in context.command.params):
        key = error.option_name.lstrip("-").replace("-", "_")
        hint = f"set configuration keys as {key}=VALUE; {hint}"
    return f"{message} ({hint})"


def make_install_command(extra: str) -> str:
    """Return the command that installs an extra of this package, from the same source as the package.

    >>> make_install_command("recipes").startswith("pip install ")
    True
    """
    name = "oni-torch"
    origin: dict[str, Any] = {}
    # A clone in the current folder is found too, but does not record its origin.
    for distribution in distributions(name=name):
        with suppress(ValueError):
            recorded = json.loads(distribution.read_text("direct_url.json") or "{}")
            origin = origin or (recorded if isinstance(recorded, dict) else {})
    url, folder, repository = (origin.get(key) for key in ("url", "dir_info", "vcs_info"))
    if not isinstance(url, str):
        return f'pip install "{name}[{extra}]"'
    if isinstance(folder, dict) and url.startswith("file:"):
        from urllib.request import url2pathname

        editable = "-e " if folder.get("editable") else ""
        return f'pip install {editable}"{url2pathname(urlsplit(url).path)}[{extra}]"'
    if isinstance(repository, dict):
        revision = repository.get("requested_revision")
        url = f"{repository.get('vcs')}+{url}" + (f"@{revision}" if revision else "")
    if origin.get("subdirectory"):
        url += f"#subdirectory={origin['subdirectory']}"
    return f'pip install "{name}[{extra}] @ {url}"'


def exit_code(error: Exception) -> int:
    """Return 74 (EX_IOERR of sysexits.h) for a failed write, 2 for any other error that the user can fix."""
    if isinstance(error, OSError) and error.errno in FAILED_WRITES:
        return CANNOT_WRITE
    return getattr(error, "exit_code", MENDABLE)


def silence_output() -> None:
    """Discard output that could not be printed: Python would try again on exit and complain again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
