"""The progress of a cell, read from its files: the same for a cell in this process, in another, or
on another machine."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
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


def read_status(cell: Cell, folder: CellFolder, state: State, message: str = "") -> CellStatus:
    """Return a cell's status from the files in its folder, given what its runner knows of it."""
    lines = folder.last_log_lines()
    losses = [line for line in lines if "loss" in line and "tokens_per_s" in line]
    last = losses[-1] if losses else {}
    return CellStatus(
        state,
        step=next(iter(folder.missing(cell.steps, cell.config)), None),
        update=folder.last_update(),
        max_updates=cell.config.training.max_updates,
        loss=last.get("loss"),
        tokens_per_s=last.get("tokens_per_s"),
        message=message,
    )


class Tally:
    """The progress of several cells together; a `GridObserver`.

    Args:
        cells: those that share a folder count as one.
        clock: returns the time in seconds.
    """

    def __init__(self, cells: Iterable[Cell], clock: Callable[[], float] = time.monotonic):
        self._left = {cell.key: cell.config.training.max_updates for cell in cells}
        self.num_cells = len(self._left)
        self.num_finished = 0
        self._began: dict[str, tuple[float, int]] = {}  # when, and with how many updates left
        self._seconds, self._updates = 0.0, 0  # of cells that began and finished under our eyes
        self._most, self._clock = 1, clock

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Take note of a cell's state."""
        now, key = self._clock(), cell.key
        if key in self._left:
            self._left[key] = cell.config.training.max_updates - status.update
        if status.state in (State.RUNNING, State.ELSEWHERE):
            self._began.setdefault(key, (now, self._left.get(key, 0)))
        elif (began := self._began.pop(key, None)) and status.state is State.FINISHED:
            self._seconds += now - began[0]
            self._updates += max(1, began[1])
        if status.state in (State.FINISHED, State.FAILED) and key in self._left:
            del self._left[key]
            self.num_finished += status.state is State.FINISHED
        self._most = max(self._most, len(self._began))

    def left_s(self) -> float | None:
        """Return an estimate of the remaining seconds, from what cells took that have finished;
        `None` before the first one has. Those that wait take the places of those that end, as many
        at a time as there were."""
        if not self._updates:
            return None
        pace, now = self._seconds / self._updates, self._clock()
        places = [  # one may be slower than those that have finished
            max(left * pace - (now - at), self._left.get(key, 0) * pace)
            for key, (at, left) in self._began.items()
        ]
        places += [0.0] * (self._most - len(places))
        heapq.heapify(places)
        for updates in sorted(self._left[x] for x in self._left.keys() - self._began)[::-1]:
            heapq.heapreplace(places, places[0] + updates * pace)
        return max(places)
