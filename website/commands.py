"""The page of the command line: every command with its help and its options."""

from __future__ import annotations

import click
import typer.main

from oni.cli import COMMANDS, application
from oni.recipes.experiments.experiment import Comparison
from oni.recipes.experiments.table_formats import format_markdown

__all__ = ["render_commands"]

HEAD = """\
# Commands

`oni` is installed with the extra `recipes`; `python -m oni` is the same. `oni COMMAND --help` shows what is here.
`oni --install-completion` completes commands and options in your shell.
"""


def render_commands() -> str:
    """The page."""
    program = typer.main.get_command(application())
    assert isinstance(program, click.Group) or hasattr(program, "commands")
    examples = {command.__name__: example for command, example in COMMANDS.items()}
    parts = [HEAD]
    for name, example in examples.items():
        parts.append(render_command(name, program.commands[name], example))
    return "\n".join(parts)


def render_command(name: str, command: click.Command, example: str) -> str:
    """One command: what it does, an example, and a table of arguments and options."""
    rows = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) or parameter.param_type_name == "option":
            title = ", ".join(f"`{option}`" for option in parameter.opts)
        else:
            title = f"`{parameter.metavar or parameter.human_readable_name}`"
        rows.append([title, show_default(parameter), getattr(parameter, "help", None) or ""])
    description = " ".join((command.help or "").split())
    table = format_markdown(Comparison(["", "default", ""], rows))
    return "\n".join([f"## `oni {name}`", "", description, "", "```sh", example, "```", "", table])


def show_default(parameter: click.Parameter) -> str:
    """The default, where there is one to speak of."""
    default = parameter.default
    return f"`{default}`" if default not in (None, False, (), []) and not callable(default) else ""
