"""Output of commands: results on standard output, notices on standard error.

rich is imported with the first line that is printed, which keeps `--help` fast.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def plain_console(**settings: Any) -> Console:
    """Return a console that prints text, such as a path with `[` in it, without markup."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False, **settings)


@cache
def console() -> Console:
    """Return the console for standard error, where progress goes. In a notebook, `!shapeshift` has
    a terminal each frame of which would be kept: it gets lines, as a file does."""
    in_notebook = "JPY_PARENT_PID" in os.environ  # which kernels of Jupyter set
    return plain_console(stderr=True, force_terminal=False if in_notebook else None)


def results_console() -> Console:
    """Return the console for standard output; tables are not folded in a file or a pipe."""
    return plain_console(width=None if sys.stdout.isatty() else 200)


def show(line: object) -> None:
    """Print a line of results."""
    results_console().print(str(line), soft_wrap=True)


def notice(line: object, style: str | None = None) -> None:
    """Print a line on standard error."""
    console().print(str(line), style=style, soft_wrap=True)


def show_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    *,
    numbers: bool = True,
) -> None:
    """Print a table and its notes; with `numbers`, all columns except the first hold numbers. If
    there is no room, columns are folded between words."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, header_style="bold")
    names = " ".join([header[0], *(row[0] for row in rows)]).split()
    for number, title in enumerate(header):
        justify: Any = "right" if numbers and number else "left"
        width = None if number else max(map(len, names), default=0)  # no name to copy is cut
        shown.add_column(Text(title), justify=justify, overflow="fold", min_width=width)
    for row in rows:
        shown.add_row(*map(Text, row))
    results_console().print(shown)
    for line in notes:
        show(line)


def write(path: Path, text: str) -> None:
    """Write a file that the user named, atomically."""
    from shapeshift._system.files import replacing

    with replacing(path) as stream:
        stream.write(text)


def clock_time(seconds: float) -> str:
    """Return the time and the date a number of seconds from now."""
    return time.strftime("%H:%M on %d %B %Y", time.localtime(time.time() + seconds))


def time_range(low: float, high: float) -> str:
    """Return a range of times, or one time where both print the same."""
    texts = dict.fromkeys((duration(low), duration(high)))
    return " to ".join(texts)


def duration(seconds: float) -> str:
    """Return a duration for people: `0.4 s`, `40 s`, `12 min`, `3.4 h`."""
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
