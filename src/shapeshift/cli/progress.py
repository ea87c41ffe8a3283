"""Progress on a terminal, or plain lines in a file or a pipe."""

from __future__ import annotations

import math
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from shapeshift.lab.start import Started
    from shapeshift.training.checkpoints import Resumed
    from shapeshift.training.guards import NonFinite

PlainConsole = partial(Console, markup=False, emoji=False, highlight=False)
"""Prints text, such as a path with `[` in it, without markup."""

console = PlainConsole(stderr=True)
"""Progress goes to standard error: standard output has results only."""


def results_console() -> Console:
    """Return the console for standard output; in a file or a pipe tables are not folded."""
    return PlainConsole(width=None if sys.stdout.isatty() else 200)


def make_progress() -> Progress:
    """Return a display with a description, a bar, counts, time spent and time left."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        refresh_per_second=4,
        disable=not console.is_terminal,  # a file gets lines, printed below
    )


def show_started(started: Started) -> None:
    """Print which weights a new run has from another one."""
    line = f"starts from {started.directory}: {started.num_kept:,} parameters"
    for what, names in (("new", started.new), ("left out", started.left_out)):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            line += f"; {what}: {', '.join(names[:3])}{more}"
    console.print(line, soft_wrap=True)


def show_resumed(resumed: Resumed) -> None:
    """Print where a run continues, and a warning for each damaged checkpoint."""
    for skipped in resumed.skipped:
        console.print(f"warning: {skipped}", style="yellow", soft_wrap=True)
    console.print(str(resumed), soft_wrap=True)


def show_skipped(found: NonFinite) -> None:
    """Print a warning for a skipped update."""
    console.print(f"warning: skipped: {found}", style="yellow", soft_wrap=True)


class Steps:
    """A display of stages, one bar each; usable as a callback
    `(stage, done, total)`."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        if stage not in self._tasks:
            for task in self._progress.tasks:  # a new stage begins where the last one ended
                if task.id in self._tasks.values() and not task.finished:
                    end = max(task.completed, 1)
                    self._progress.update(task.id, completed=end, total=end)
            self._tasks[stage] = self._progress.add_task(stage, total=total, note="")
            if not console.is_terminal:
                console.print(stage, soft_wrap=True)
        self._progress.update(self._tasks[stage], completed=done, total=total)


class TrainingDisplay:
    """Shows a run's updates, loss, speed and time left; prints a line for each validation."""

    def __init__(self, progress: Progress, name: str, max_updates: int):
        self._progress = progress
        self._name = name
        self._max_updates = max_updates
        self._task = progress.add_task(f"train {name}", total=max_updates, note="")
        self._printed = time.monotonic()

    def updated(self, update: int, loss: float, tokens_per_s: float) -> None:
        """Move the bar; without a terminal, print a line twice a minute."""
        note = f"loss {loss:.3f} · {tokens_per_s:,.0f} tokens/s"
        self._progress.update(self._task, completed=update, note=note)
        if not console.is_terminal and time.monotonic() - self._printed > 30:
            self._printed = time.monotonic()
            console.print(
                f"{self._name}: update {update}/{self._max_updates} · {note}", soft_wrap=True
            )

    def validated(self, update: int, values: dict[str, float]) -> None:
        """Print the values of a validation."""
        loss = values["valid_loss"]
        perplexity = math.exp(min(loss, 99))
        line = f"{self._name}: update {update} · valid loss {loss:.3f} · ppl {perplexity:.2f}"
        for name in ("bleu", "chrf", "chrf++", "comet"):
            if f"valid_{name}" in values:
                line += f" · {name.upper()} {values[f'valid_{name}']:.2f}"
        console.print(line, soft_wrap=True)
