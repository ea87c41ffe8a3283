"""How far a cell is, told from its files: the same for a cell in this process, in another, or on
another machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from shapeshift.lab.cell_folder import CellFolder
from shapeshift.lab.grid import Cell
from shapeshift.lab.measures import TRAIN


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
        left_s: time that training still takes, in seconds, once two lines of the log are known.
        message: why it failed, in its last lines.
    """

    state: State
    step: str | None = None
    update: int = 0
    max_updates: int = 0
    loss: float | None = None
    tokens_per_s: float | None = None
    left_s: float | None = None
    message: str = ""


class GridObserver(Protocol):
    """Whoever watches a grid, such as a table on a terminal."""

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Called when a cell's state changes, and about once a second while it is running."""


class Watch:
    """Reads a cell's status from its files, again and again.

    Args:
        cell: with its settings.
        folder: the cell's.
        steps: the measures that it shall get.
    """

    def __init__(self, cell: Cell, folder: CellFolder, steps: Sequence[str]):
        self._cell, self._folder, self.steps = cell, folder, steps
        self._first: tuple[int, float] | None = None

    def missing(self) -> list[str]:
        """Return the steps that are not done."""
        return self._folder.missing(self.steps, self._cell.config)

    def read(self, state: State, message: str = "") -> CellStatus:
        """Return the cell's status, given what its runner knows of it."""
        missing = self.missing()
        status = CellStatus(
            state,
            step=missing[0] if missing else None,
            max_updates=self._cell.config.training.max_updates,
            message=message,
        )
        lines = self._folder.last_log_lines()
        if not lines:
            return status
        update = int(lines[-1]["update"])
        training = [line for line in lines if "loss" in line and "tokens_per_s" in line]
        if training:
            last = training[-1]
            status = replace(status, loss=last["loss"], tokens_per_s=last["tokens_per_s"])
        left_s = self._left_s(update) if missing and missing[0] == TRAIN else None
        return replace(status, update=update, left_s=left_s)

    def _left_s(self, update: int) -> float | None:
        """Extrapolate from the first line that this watch saw: no line says when it was written."""
        now = (self._folder.run / "log.jsonl").stat().st_mtime
        if self._first is None or update < self._first[0]:
            self._first = (update, now)
        updates, elapsed_s = update - self._first[0], now - self._first[1]
        if updates <= 0 or elapsed_s <= 0:
            return None
        return (self._cell.config.training.max_updates - update) * elapsed_s / updates


class Tally:
    """How far some cells are together; a `GridObserver`.

    Args:
        cells: those that share a folder count as one.
        clock: tells the time in seconds.
    """

    def __init__(self, cells: Iterable[Cell], clock: Callable[[], float] = time.monotonic):
        self._updates = {cell.key: cell.config.training.max_updates for cell in cells}
        self._finished: set[str] = set()
        self._at: dict[str, int] = {}  # update of each cell when it was last heard of
        self._done, self._clock, self._began = 0, clock, clock()

    @property
    def num_cells(self) -> int:
        """All."""
        return len(self._updates)

    @property
    def num_finished(self) -> int:
        """Those whose training and measures are done."""
        return len(self._finished)

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Take note of a cell's state."""
        finished = status.state is State.FINISHED
        own = self._updates[cell.key] if finished else status.update
        before = self._at.setdefault(cell.key, own)  # not done since we look: done before
        self._at[cell.key] = max(before, status.update)
        self._done += self._at[cell.key] - before
        if finished:
            self._finished.add(cell.key)

    def left_s(self) -> float | None:
        """Return about how long the rest will take, in seconds: as long for an update as so far,
        measures and all; `None` as long as there is nothing to go by."""
        if not self._done:
            return None
        left = sum(updates - self._at.get(key, 0) for key, updates in self._updates.items())
        return max(0, left) * (self._clock() - self._began) / self._done
