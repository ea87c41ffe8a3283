"""Progress: bars on a terminal, plain lines in a file or a pipe."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
)
from rich.text import Text

from shapeshift.cli import output
from shapeshift.cli.output import duration, notice, time_left
from shapeshift.training.observer import Observer

if TYPE_CHECKING:
    from shapeshift.training.checkpoints import Resumed

LINE_EVERY_S = 30.0
"""Seconds between the lines of a phase in a file or a pipe."""


class _Bar(BarColumn):
    """A bar, if the end of a phase is known."""

    def render(self, task: Task) -> Any:
        return super().render(task) if task.total else Text()


class Display:
    """Shows the phases of a command: on a terminal a bar for each active phase, in a file or a pipe
    a line twice a minute.

    A context manager. Called as a function, it shows consecutive phases: a new name ends the
    previous phase with ✓ and its time.
    """

    def __init__(self) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            _Bar(bar_width=20),  # the only column that is narrower where there is no room
            TextColumn("{task.fields[count]}", justify="right", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
            console=output.console(),
            refresh_per_second=4,
            speed_estimate_period=300,
            get_time=lambda: time.monotonic(),
            disable=not output.console().is_terminal,
        )
        self._tasks: dict[str, Task] = {}

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._end_all_but(None)
        self._progress.stop()

    def __call__(self, phase: str, done: int, total: int | None, note: str = "") -> None:
        """Show the progress of a phase, and end the others; `note` is shown next to it."""
        self._end_all_but(phase)
        self.show(phase, done, total, note)

    def show(
        self, phase: str, done: int, total: int | None, note: str = "", *, at_once: bool = False
    ) -> None:
        """Show the progress of one of several phases; `at_once`: print its first line at once."""
        now = time.monotonic()
        if phase not in self._tasks:
            printed = -math.inf if at_once else now
            self._progress.add_task(
                phase, total=total, completed=done, count="", note="", printed=printed, line=""
            )
            self._tasks[phase] = self._progress.tasks[-1]
        task = self._tasks[phase]
        self._progress.update(task.id, completed=done, total=total)
        left_s = task.time_remaining if total else None
        notes = [note, time_left(left_s) if left_s else ""]
        task.fields["note"] = " · ".join(filter(None, notes))
        task.fields["count"] = f"{done:,}/{total:,}" if total else f"{done:,}" if done else ""
        if not output.console().is_terminal and now - task.fields["printed"] > LINE_EVERY_S:
            task.fields["printed"] = now
            count = f": {done:,} of {total:,}" if total else f": {done:,}" if done else ""
            line = " · ".join(filter(None, [phase + count, *notes]))
            if line != task.fields["line"]:
                notice(line)
            task.fields["line"] = line

    def end(self, phase: str) -> float:
        """Remove a phase and return its seconds."""
        task = self._tasks.pop(phase)
        self._progress.remove_task(task.id)
        return task.elapsed or 0.0

    def _end_all_but(self, kept: str | None) -> None:
        for phase in [*self._tasks]:
            if phase != kept:
                notice(f"✓ {phase} ({duration(self.end(phase))})")


class TrainingDisplay(Observer):
    """Shows a run's updates, loss and speed; prints a line for each validation."""

    def __init__(self, display: Display, name: str, max_updates: int):
        self._display, self._name, self._max_updates = display, name, max_updates
        self._note = ""

    def preparing(self, stage: str, done: int, total: int | None) -> None:
        """Show the progress of the preparation."""
        self._display(stage, done, total)

    def started(self, start: object) -> None:
        """Print what the run takes from another one."""
        notice(start)

    def resumed(self, resumed: Resumed) -> None:
        """Print where the run continues, and a warning for each damaged checkpoint."""
        for skipped in resumed.skipped:
            notice(f"warning: {skipped}", "yellow")
        notice(resumed)

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
