"""Output of commands: results on standard output, notices on standard error.

rich is imported with the first line that is printed, which keeps `--help` fast.
"""

from __future__ import annotations

import sys
import textwrap
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

_WORD = 14
"""A longer word, such as an address, is folded if a table has no room for it."""

if TYPE_CHECKING:
    from rich.console import Console

    from shapeshift.evaluation.tables import Table


def plain_console(**settings: Any) -> Console:
    """Return a console that prints text, such as a path with `[` in it, without markup."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, **settings)


@cache
def console() -> Console:
    """Return the console for standard error, where progress goes."""
    return plain_console(stderr=True)


def results_console() -> Console:
    """Return the console for standard output; in a file or a pipe tables are not folded."""
    return plain_console(width=None if sys.stdout.isatty() else 200)


def show(line: object) -> None:
    """Print a line of results."""
    _print(results_console(), line)


def notice(line: object, style: str | None = None) -> None:
    """Print a line on standard error."""
    _print(console(), line, style)


def _print(out: Console, line: object, style: str | None = None) -> None:
    """Print lines. On a terminal they are folded between words, but never within a word, which may
    be a path."""
    lines = str(line).split("\n")
    if out.is_terminal:
        lines = [
            textwrap.fill(
                each,
                out.width,
                subsequent_indent=2 * " " * (len(each) - len(each.lstrip())),
                break_long_words=False,
                break_on_hyphens=False,
            )
            for each in lines
        ]
    out.print("\n".join(lines), style=style, soft_wrap=True)


def show_table(table: Table, *, numbers: bool = True) -> None:
    """Print a table and its notes; with `numbers`, all columns except the first hold numbers.

    The first column holds names to copy. It is as wide as its names, and the others are folded
    between words. If there is no room for that, it is folded between words as well.
    """
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, header_style="bold")
    out = results_console()
    columns = [*zip(table.header, *table.rows, strict=True)]
    words = [max(map(len, " ".join(column).split()), default=0) for column in columns]
    least = [words[0], *(min(width, _WORD) for width in words[1:])]
    fits = max(map(len, columns[0])) + sum(least[1:]) + 3 * len(least) + 1 <= out.width
    for number, (title, width) in enumerate(zip(table.header, least, strict=True)):
        justify: Any = "right" if numbers and number else "left"
        shown.add_column(
            Text(title),
            justify=justify,
            no_wrap=fits and not number,
            min_width=width,
            overflow="fold",
        )
    for row in table.rows:
        shown.add_row(*map(Text, row))
    out.print(shown)
    for line in table.notes:
        _print(out, line, "dim")


def write(path: Path, text: str) -> None:
    """Write a file that the user named; it appears complete or not at all."""
    from shapeshift.disk import replacing

    with replacing(path) as stream:
        stream.write(text)


def time_left(seconds: float) -> str:
    """Return the end of a line about progress: `about 4 min left`."""
    return "a few seconds left" if seconds < 10 else f"about {duration(seconds)} left"


def duration(seconds: float) -> str:
    """Return a readable time: `0.4 s`, `40 s`, `12 min`, `3.4 h`."""
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def confirm_time(work: str, seconds: float, yes: bool) -> None:
    """Print what is trained, how long that takes and when it ends; if it is more than a day, ask on
    a terminal, unless `yes`."""
    took, day = timedelta(seconds=seconds), timedelta(days=1)
    end = datetime.now() + took
    date = f" on {end:%d %B}" if took > day / 2 else ""
    notice(f"{work}: {duration(seconds)}, until {end:%H:%M}{date}")
    if took > day and not yes and sys.stdin.isatty():
        typer.confirm("That is more than a day on this machine. Train?", abort=True, err=True)
