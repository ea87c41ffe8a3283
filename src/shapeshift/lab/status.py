"""The progress of a cell, read from its files: the same for a cell in this process, in another, or
on another machine."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Protocol

from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.grid import Cell


class State(StrEnum):
    """What is happening to a cell. `ELSEWHERE`: another runner is at work on it. `STOPPING`: it was
    asked to end, and will go on another time."""

    WAITING = "waiting"
    RUNNING = "running"
    ELSEWHERE = "elsewhere"
    STOPPING = "stopping"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(frozen=True)
class CellStatus:
    """How far a cell is.

    Attributes:
        state: what is happening to it.
        step: the step at work, or the one that failed.
        update, max_updates: of training.
        loss: of the last line of the log, in nats a token.
        tokens_per_s: of the last line of the log.
        message: why it failed, in its last lines.
    """

    state: State
    step: str | None = None
    update: int = 0
    max_updates: int = 0
    loss: float | None = None
    tokens_per_s: float | None = None
    message: str = ""


class GridObserver(Protocol):
    """Receives the status of the cells of a grid, such as a table on a terminal."""

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Called when a cell's state changes, and about once a second while it is running."""


@dataclass(frozen=True, eq=False)
class Watch:
    """Reads a cell's status from its files, again and again.

    Attributes:
        cell: with its settings.
        folder: the cell's.
        steps: names of its measures.
    """

    cell: Cell
    folder: CellFolder
    steps: Sequence[str]

    def missing(self) -> list[str]:
        """Return the steps that are not done."""
        return self.folder.missing(self.steps, self.cell.config)

    def read(self, state: State, message: str = "") -> CellStatus:
        """Return the cell's status, given what its runner knows of it."""
        missing = self.missing()
        status = CellStatus(
            state,
            step=missing[0] if missing else None,
            max_updates=self.cell.config.training.max_updates,
            message=message,
        )
        lines = self.folder.last_log_lines()
        update = int(lines[-1]["update"]) if lines else 0
        with suppress(OSError, ValueError):  # not written yet, or half written
            update = max(update, int(self.folder.update.read_text()))
        losses = [line for line in lines if "loss" in line and "tokens_per_s" in line]
        if losses:
            last = losses[-1]
            status = replace(status, loss=last["loss"], tokens_per_s=last["tokens_per_s"])
        return replace(status, update=update)


@dataclass
class _Course:
    """When a cell was how far, in seconds of the tally's clock.

    Attributes:
        update: the furthest one that is known.
        began, from_update: when it was first seen at work, and how far it was.
        first, first_update: when it was first seen to have got further.
        last: when it was last seen to get further.
        ended: when it was seen to be finished.
    """

    update: int
    began: float | None = None
    from_update: int = 0
    first: float | None = None
    first_update: int = 0
    last: float = 0.0
    ended: float | None = None

    @property
    def before_first_s(self) -> float:
        """Seconds at work before it was first seen to have got further."""
        return 0.0 if self.first is None or self.began is None else self.first - self.began

    @property
    def first_updates(self) -> int:
        """The updates of that time."""
        return self.first_update - self.from_update

    def advance(self, update: int, now: float) -> None:
        """Take note of how far it is."""
        if update <= self.update:
            return
        if self.first is None:
            self.first, self.first_update = now, update
        self.update, self.last = update, now


class Tally:
    """The progress of several cells together; a `GridObserver`.

    Args:
        cells: those that share a folder count as one.
        clock: returns the time in seconds.
    """

    def __init__(self, cells: Iterable[Cell], clock: Callable[[], float] = time.monotonic):
        self._updates = {cell.key: cell.config.training.max_updates for cell in cells}
        self._finished: set[str] = set()
        self._at_work: set[str] = set()
        self._failed: set[str] = set()
        self._courses: dict[str, _Course] = {}
        self._most, self._clock = 1, clock

    @property
    def num_cells(self) -> int:
        """The number of cells."""
        return len(self._updates)

    @property
    def num_finished(self) -> int:
        """The number of cells whose training and measures are done."""
        return len(self._finished)

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Take note of a cell's state."""
        now, key = self._clock(), cell.key
        course = self._courses.setdefault(key, _Course(status.update))
        at_work = status.state in (State.RUNNING, State.ELSEWHERE)
        for is_so, keys in (
            (at_work, self._at_work),
            (status.state is State.FINISHED, self._finished),
            (status.state is State.FAILED, self._failed),
        ):
            (keys.add if is_so else keys.discard)(key)
        if at_work and course.began is None:
            course.began, course.from_update = now, course.update
        course.advance(status.update, now)
        if status.state is State.FINISHED and course.began is not None and course.ended is None:
            course.ended = now
        self._most = max(self._most, len(self._at_work))

    def left_s(self) -> float | None:
        """Return an estimate of the remaining seconds; `None` before the first update.

        What a cell takes before its first update, for an update and after its last one is known
        from the cells that were at work. Those that wait take the places of those that end, as
        many at a time as there were.
        """
        courses = [each for each in self._courses.values() if each.first is not None]
        if not courses:
            return None
        now = self._clock()
        mean = _pace(courses)
        start = max(0.0, fmean(each.before_first_s - mean * each.first_updates for each in courses))
        ends = [each.ended - each.last for each in courses if each.ended is not None]
        end = fmean(ends) if ends else 0.0
        places, waiting = [], []
        for key in self._updates.keys() - self._finished - self._failed:
            course = self._courses.get(key, _Course(0))
            pace = _pace([course]) if course.update > course.first_update > 0 else mean
            left = max(0, self._updates[key] - course.update) * pace + end
            if key not in self._at_work:
                waiting.append(start + left)
            elif course.first is None:
                places.append(max(0.0, start + left - (now - (course.began or now))))
            else:
                places.append(max(0.0, left - (now - course.last)))
        places += [0.0] * (self._most - len(places))
        heapq.heapify(places)
        for seconds in sorted(waiting, reverse=True):
            heapq.heapreplace(places, places[0] + seconds)
        return max(places)


def _pace(courses: Sequence[_Course]) -> float:
    """Return the seconds of an update, of all cells together."""
    seconds = sum(each.last - (each.first or 0.0) for each in courses)
    updates = sum(each.update - each.first_update for each in courses)
    if not updates:  # the first ones alone, with all that came before them
        seconds = sum(each.before_first_s for each in courses)
        updates = sum(each.first_updates for each in courses)
    return seconds / updates
