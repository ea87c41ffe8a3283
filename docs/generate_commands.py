"""Write docs/commands.md from the commands' own help.

    python docs/generate_commands.py

A test compares the file with the command line.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from shapeshift.cli import COMMANDS, app

TARGET = Path(__file__).with_name("commands.md")

INTRO = """\
# Commands

<!-- Made by docs/generate_commands.py from the code: change it there. -->

`shapeshift COMMAND --help` prints the same. `python -m shapeshift` is the same program.

Settings are written `section.key=value`. `prepare`, `train`, `compare`, `demo` and `reproduce` take
them as arguments; `translate` and `serve` take some after `--set`.
[Configuration](configuration.md) lists all of them.

| exit status | meaning |
| --- | --- |
| 0 | success |
| 1 | an error that you can fix, explained in one line on standard error |
| 2 | wrong usage |
| 130, 143 | stopped by Ctrl-C, by SIGTERM or a closed terminal; the same command continues |

An error with a Python traceback is a bug of Shapeshift, unless the traceback ends in a file of
yours.
"""


def document() -> str:
    """Return the whole page."""
    group = typer.main.get_command(app)
    context: Any = group.make_context("shapeshift", ["positions"])
    parts = [INTRO]
    for name in COMMANDS:
        command: Any = group.get_command(context, name)
        parts.append(f"## shapeshift {name}\n")
        parts.append(inspect.cleandoc(command.help) + "\n")
        inner = command.make_context(name, [], resilient_parsing=True)
        for kind in ("argument", "option"):
            rows = [_row(param, inner) for param in command.params if param.param_type_name == kind]
            if rows:
                parts.append("\n".join(_table((kind, "meaning", "default"), rows)) + "\n")
    return "\n".join(parts)


def _row(param: Any, context: Any) -> tuple[str, str, str]:
    names = [param.metavar or param.name.upper()]
    if param.param_type_name == "option":
        metavar = f" {param.metavar}" if param.metavar else ""
        names = ["/".join([*param.opts, *param.secondary_opts]) + metavar]
    _, text = param.get_help_record(context)
    meaning, _, notes = text.rstrip("]").partition("  [")  # such as [default: 1; x>=1]
    _, _, own = (param.help or "").rstrip("]").partition(" [default: ")
    given = [note.removeprefix("default: ") for note in notes.split("; ") if "=" not in note]
    default = own or "; ".join(given)
    return f"`{names[0]}`", meaning.partition(" [default: ")[0].replace("|", r"\|"), default or "–"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (header, ["---"] * 3, *rows)]


if __name__ == "__main__":
    TARGET.write_text(document(), encoding="utf-8")
