"""Progress: bars on a terminal, plain lines in a file or a pipe."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn

from shapeshift.cli import output
from shapeshift.cli.output import clock_time, duration, notice
from shapeshift.run.measures import TRAIN
from shapeshift.study.grid import distinct
from shapeshift.study.runner import State
from shapeshift.training.observer import Observer

if TYPE_CHECKING:
    from shapeshift.study.grid import PlannedRun
    from shapeshift.training.checkpoints import Resumed

LINE_EVERY_S = 30.0
"""Seconds between the lines of a phase in a file or a pipe."""


CORRECT_AFTER_S = 30.0
"""Seconds of training after which an estimate is corrected."""

_MIN_UPDATES, _TOLERANCE = 3, 1.3
"""Updates that a correction needs, and how many times longer or shorter is still as announced."""


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
            BarColumn(bar_width=20),  # the only column that is narrower where there is no room
            TextColumn("{task.fields[count]}", justify="right", markup=False),
            TextColumn("{task.fields[note]}", markup=False),
            console=output.console(),
            refresh_per_second=4,
            transient=True,
            speed_estimate_period=300,
            get_time=lambda: time.monotonic(),
            disable=not output.console().is_interactive,
        )
        self._tasks: dict[str, Task] = {}
        self._printed: dict[str, float] = {}  # phase -> when its last line was
        self._current = ""  # of consecutive phases

    def __enter__(self) -> Display:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._end_current()
        self._progress.stop()

    def __call__(self, phase: str, done: int, total: int | None, note: str = "") -> None:
        """Show the progress of a phase, and end the one before; `note` is shown next to it."""
        if phase != self._current:
            self._end_current()
            self._current = phase
            self._printed[phase] = time.monotonic()  # a short phase has its ✓ alone
        self.show(phase, done, total, note)

    def show(self, phase: str, done: int, total: int | None, note: str = "") -> None:
        """Show the progress of one of several phases."""
        if phase not in self._tasks:
            self._progress.add_task(phase, total=total, completed=done, count="", note="")
            self._tasks[phase] = self._progress.tasks[-1]
        task = self._tasks[phase]
        self._progress.update(task.id, completed=done, total=total)
        left_s = task.time_remaining if total else None
        note = " · ".join(filter(None, [note, f"about {duration(left_s)} left" if left_s else ""]))
        count = f"{done:,}/{total:,}" if total else f"{done:,}" if done else ""
        self._progress.update(task.id, count=count, note=note)
        now = time.monotonic()
        is_due = now - self._printed.get(phase, -math.inf) > LINE_EVERY_S
        if is_due and not output.console().is_interactive:
            self._printed[phase] = now
            counted = ": ".join(filter(None, [phase, count.replace("/", " of ")]))
            notice(" · ".join(filter(None, [counted, note])))

    def end(self, phase: str) -> float:
        """Remove a phase and return its seconds."""
        self._printed.pop(phase, None)
        task = self._tasks.pop(phase)
        self._progress.remove_task(task.id)
        return task.elapsed or 0.0

    def _end_current(self) -> None:
        if self._current:
            notice(f"✓ {self._current} ({duration(self.end(self._current))})")
            self._current = ""


class TrainingDisplay(Observer):
    """Shows a run's updates, loss and speed; prints a line for each validation.

    Args:
        estimate: seconds that were announced for the run, at least and at most; corrected once,
            after `CORRECT_AFTER_S`, if the first updates tell otherwise.
    """

    def __init__(
        self,
        display: Display,
        name: str,
        max_updates: int,
        estimate: tuple[float, float] | None = None,
    ):
        self._display, self._name, self._max_updates = display, name, max_updates
        self._note = ""
        self._estimate = estimate
        self._began: tuple[int, float] | None = None

    def preparing(self, stage: str, done: int, total: int | None) -> None:
        self._display(stage, done, total)

    def started(self, line: str) -> None:
        notice(line)

    def noticed(self, line: str) -> None:
        notice(line)

    def resumed(self, resumed: Resumed) -> None:
        for skipped in resumed.skipped:
            notice(f"warning: {skipped}", "yellow")
        notice(resumed)

    def advanced(self, update: int) -> None:
        self._display(f"train {self._name}", update, self._max_updates, self._note)
        if self._estimate is not None:
            self._correct(update, *self._estimate)

    def _correct(self, update: int, low: float, high: float) -> None:
        """Correct the announced time if the first updates show that it was wrong."""
        now = time.monotonic()
        if self._began is None:
            if update:  # the first one is slow
                self._began = update, now
            return
        first, began = self._began
        if now - began < CORRECT_AFTER_S or update < first + _MIN_UPDATES:
            return
        self._estimate = None
        update_s = (now - began) / (update - first)
        whole = update_s * self._max_updates
        if high > low or not low / _TOLERANCE < whole < high * _TOLERANCE:
            left = update_s * (self._max_updates - update)
            notice(
                f"{self._name}: at the speed of its first {update:,} updates, {duration(left)} are"
                f" left, until {clock_time(left)}"
            )

    def updated(self, update: int, loss: float, tokens_per_s: float) -> None:
        self._note = f"loss {loss:.3f} · {tokens_per_s:,.0f} tokens/s"

    def validated(self, update: int, values: dict[str, float]) -> None:
        loss = values["valid_loss"]
        perplexity = math.exp(min(loss, 99))
        line = f"{self._name}: update {update} · valid loss {loss:.3f} · ppl {perplexity:.2f}"
        for name in ("bleu", "chrf", "chrf++", "comet"):
            if f"valid_{name}" in values:
                line += f" · {name.upper()} {values[f'valid_{name}']:.2f}"
        notice(line)


class GridDisplay:
    """Shows the runs of one or more grids: a bar for each running run and one for all runs, and a
    line when a run starts another measure or ends. If several share a folder, the first is named.
    """

    def __init__(self, display: Display, runs: Sequence[PlannedRun]):
        self._display = display
        several = len({planned.grid for planned in runs}) > 1
        self._names = {
            planned.key: f"{planned.grid} {planned.name}" if several else planned.name
            for planned in distinct(runs)
        }
        updates = {planned.key: planned.config.training.max_updates for planned in runs}
        self._num_updates, self._updates = sum(updates.values()), dict.fromkeys(updates, 0)
        self._states = dict.fromkeys(self._names, State.WAITING)
        self._phases: dict[str, str] = {}
        self._began: dict[str, float] = {}  # when a run was first seen running

    def changed(
        self, planned: PlannedRun, state: State, measure: str | None, progress: Mapping[str, float]
    ) -> None:
        """Move the bars; print a line for a new measure or state."""
        key, name, most = planned.key, self._names[planned.key], planned.config.training.max_updates
        before, self._states[key] = self._states[key], state
        self._updates[key] = most if state is State.FINISHED else int(progress.get("update", 0))
        phase = f"{name} {measure}" if state is State.RUNNING and measure else ""
        if key in self._phases and self._phases[key] != phase:
            self._display.end(self._phases.pop(key))
        finished = f"{[*self._states.values()].count(State.FINISHED)} of {len(self._names)} runs"
        if phase:
            self._phases[key] = phase
            self._began.setdefault(key, time.monotonic())
            note = ""
            if progress:
                note = f"loss {progress['loss']:.3f} · {progress['tokens_per_s']:,.0f} tokens/s"
            training = (self._updates[key], most, note)
            self._display.show(phase, *(training if measure == TRAIN else (0, None)))
            if len(self._names) > 1:
                self._display.show("all runs", sum(self._updates.values()), self._num_updates)
        elif state in (before, State.WAITING, State.RUNNING):
            return
        elif state is State.FAILED:
            notice(f"{name}: failed ({finished} finished)", "bold red")
        elif state is not State.FINISHED:
            is_elsewhere = state is State.ELSEWHERE
            what = "another command is at work on it" if is_elsewhere else "stopping"
            notice(f"{name}: {what}", "yellow")
        elif before is not State.WAITING:  # else it was finished before this command
            began = self._began.get(key)
            took = "" if began is None else f" ({duration(time.monotonic() - began)})"
            notice(f"✓ {name}{took}: {finished} finished")
