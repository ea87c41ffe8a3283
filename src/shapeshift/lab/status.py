"""What is happening to the cells of a grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

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
        loss, tokens_per_s: of the last line of the log; the loss in nats a token.
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
        self._seen: set[str] = set()  # cells that were at work since this tally began
        self._num_updates, self._began, self._clock = 0, 0.0, clock  # of those cells

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Take note of a cell's state."""
        key = cell.key
        if key not in self._left:
            return
        is_finished = status.state is State.FINISHED
        left = 0 if is_finished else cell.config.training.max_updates - status.update
        if key in self._seen:
            self._num_updates += max(0, self._left[key] - left)
        elif status.state in (State.RUNNING, State.ELSEWHERE):
            self._began = self._began if self._seen else self._clock()
            self._seen.add(key)
        self._left[key] = left
        if is_finished or status.state is State.FAILED:
            del self._left[key]
            self.num_finished += is_finished

    def left_s(self) -> float | None:
        """Return an estimate of the remaining seconds, at the pace of all updates so far; `None`
        before the first one."""
        if not self._num_updates:
            return None
        return (self._clock() - self._began) / self._num_updates * sum(self._left.values())
