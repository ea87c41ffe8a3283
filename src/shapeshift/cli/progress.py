"""Progress on a terminal, or plain lines in a file or a pipe."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
)

from shapeshift.cli import output
from shapeshift.cli.output import duration, notice

if TYPE_CHECKING:
    from shapeshift.training.checkpoints import Resumed
    from shapeshift.training.guards import NonFinite

LINE_EVERY_S = 30.0
"""Seconds between lines in a file or a pipe."""


class Display:
    """Shows what a command does, one phase after the other: on a terminal a line that moves, in a
    file or a pipe a line twice a minute; and a line with ✓ and its time when a phase ends.

    A context manager. It is called with the name of a phase, how much of it is done, and of how
    much, if known; another name ends the phase before.
    """

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=output.console(),
            refresh_per_second=4,
            disable=not output.console().is_terminal,
        )
        self._phase: str | None = None
        self._task = TaskID(0)
        self._began = self._printed = self._first = 0.0

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.end()
        self._progress.stop()

    def __call__(self, phase: str, done: int, total: int | None, note: str = "") -> None:
        """Show how far a phase is; `note` is shown next to it."""
        now = time.monotonic()
        if phase != self._phase:
            self.end()
            self._phase, self._began, self._printed, self._first = phase, now, now, done
            self._task = self._progress.add_task(phase, total=total, completed=done, note=note)
        elapsed = now - self._began
        if total and done > self._first and done < total and elapsed > 1:
            seconds = elapsed * (total - done) / (done - self._first)
            left = "a few seconds left" if seconds < 10 else f"about {duration(seconds)} left"
            note = f"{note} · {left}" if note else left
        self._progress.update(self._task, completed=done, total=total, note=note)
        if not output.console().is_terminal and now - self._printed > LINE_EVERY_S:
            self._printed = now
            of = f" of {total:,}" if total else ""
            notice(f"{phase}: {done:,}{of}{' · ' * bool(note)}{note}")

    def end(self) -> None:
        """End the phase."""
        if self._phase is not None:
            self._progress.remove_task(self._task)
            notice(f"✓ {self._phase} ({duration(time.monotonic() - self._began)})")
        self._phase = None


def show_resumed(resumed: Resumed) -> None:
    """Print where a run continues, and a warning for each damaged checkpoint."""
    for skipped in resumed.skipped:
        notice(f"warning: {skipped}", "yellow")
    notice(resumed)


def show_skipped(found: NonFinite) -> None:
    """Print a warning for a skipped update."""
    notice(f"warning: skipped: {found}", "yellow")


class TrainingDisplay:
    """Shows a run's updates, loss and speed; prints a line for each validation."""

    def __init__(self, display: Display, name: str, max_updates: int):
        self._display, self._name, self._max_updates = display, name, max_updates
        self._note = ""

    def advanced(self, update: int) -> None:
        """Move the bar."""
        self._display(f"train {self._name}", update, self._max_updates, self._note)

    def updated(self, update: int, loss: float, tokens_per_s: float) -> None:
        """Show loss and speed from now on."""
        self._note = f"loss {loss:.3f} · {tokens_per_s:,.0f} tokens/s"

    def validated(self, update: int, values: dict[str, float]) -> None:
        """Print the values of a validation."""
        loss = values["valid_loss"]
        perplexity = math.exp(min(loss, 99))
        line = f"{self._name}: update {update} · valid loss {loss:.3f} · ppl {perplexity:.2f}"
        for name in ("bleu", "chrf", "chrf++", "comet"):
            if f"valid_{name}" in values:
                line += f" · {name.upper()} {values[f'valid_{name}']:.2f}"
        notice(line)
