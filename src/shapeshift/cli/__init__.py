"""The command line: `shapeshift SUBCOMMAND …`.

Each subcommand is one thin module of this package: a Typer function that reads its options, calls
the library and prints. `COMMANDS` names them; a module is imported when its subcommand runs or its
help is shown, so its top level imports `typer` and the standard library only, and the function
imports the rest. That keeps `shapeshift --help` instant.

Exit status: 0; 1 for what the user can mend (`ShapeshiftError`, one line on stderr); 2 for wrong
usage; 130 after Ctrl-C. When the reader of our output goes away, we stop without a word, with 1.
Anything else is a bug and keeps its Python traceback.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from shapeshift import __version__
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.threads import set_spin_count

COMMANDS = {
    "prepare": "shapeshift.cli.prepare:prepare",
    "train": "shapeshift.cli.train:train",
    "translate": "shapeshift.cli.translate:translate",
    "score": "shapeshift.cli.score:score",
    "positions": "shapeshift.cli.positions:positions",
    "demo": "shapeshift.cli.demo:demo",
    "reproduce": "shapeshift.cli.reproduce:reproduce",
    "report": "shapeshift.cli.report:report",
}
"""Name of the subcommand → `module:function`, in the order of the help."""


class LazyCommands(TyperGroup):
    """A group of subcommands, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a subcommand; a name that is none ends in a usage error."""
        if cmd_name not in COMMANDS:
            ctx.fail(f"no such command {cmd_name!r}{nearest(cmd_name, COMMANDS)}")
        module, _, function = COMMANDS[cmd_name].partition(":")
        single = _typer()
        single.command(cmd_name)(getattr(import_module(module), function))
        return typer.main.get_command(single)


def _typer(**settings: Any) -> typer.Typer:
    # Markup mode None keeps rich, and its import time, out of help texts and usage errors.
    return typer.Typer(
        rich_markup_mode=None,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        **settings,
    )


app = _typer(cls=LazyCommands, no_args_is_help=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"shapeshift {__version__}")
        raise typer.Exit


@app.callback()
def shapeshift(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Position representations for Transformers: prepare, train, translate, score, compare."""


def main() -> None:
    """Run the command line on `sys.argv` and exit with its status."""
    set_spin_count()
    try:
        try:
            # Typer itself ends the run with SystemExit: 0, 2 for wrong usage, 130 for Ctrl-C.
            typer.main.get_command(app)(prog_name="shapeshift")
        except ShapeshiftError as error:
            sys.exit(f"shapeshift: error: {error}")  # to stderr, with status 1
        finally:
            sys.stdout.flush()  # at the interpreter's own exit a closed pipe would make noise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
