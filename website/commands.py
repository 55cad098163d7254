"""The page of the command line: every command with its help and its options."""

from __future__ import annotations

from typing import Any

import typer.main

from oni.cli import COMMANDS, application
from oni.recipes.experiments.experiment import Comparison
from oni.recipes.experiments.table_formats import format_markdown

__all__ = ["render_commands"]

HEAD = """\
# Commands

`oni` is installed with the extra `recipes`; `python -m oni` is the same. `oni COMMAND --help` shows the text below.
`oni --install-completion` completes commands and options in your shell.
"""


def render_commands() -> str:
    """The page."""
    program: Any = typer.main.get_command(application())
    parts = [render_command(command.__name__, program.commands, example) for command, example in COMMANDS.items()]
    return "\n".join([HEAD, *parts])


def render_command(name: str, commands: dict[str, Any], example: str) -> str:
    """One command: what it does, an example, and a table of arguments and options."""
    rows = []
    for parameter in commands[name].params:
        is_option = parameter.param_type_name == "option"
        title = ", ".join(f"`{option}`" for option in parameter.opts)
        rows.append(
            [
                title if is_option else f"`{parameter.metavar or parameter.name.upper()}`",
                show_default(parameter),
                parameter.help,
            ]
        )
    description = " ".join((commands[name].help or "").split())
    table = format_markdown(Comparison(["", "default", ""], rows))
    return "\n".join([f"## `oni {name}`", "", description, "", "```sh", example, "```", "", table])


def show_default(parameter: Any) -> str:
    """The default, where there is one to speak of."""
    default = parameter.default
    return f"`{default}`" if default not in (None, False, (), []) and not callable(default) else ""
