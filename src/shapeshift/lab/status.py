"""The progress of a cell, read from its files: the same for a cell in this process, in another, or
on another machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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


class Tally:
    """The progress of several cells together; a `GridObserver`.

    Args:
        cells: those that share a folder count as one.
        clock: returns the time in seconds.
    """

    def __init__(self, cells: Iterable[Cell], clock: Callable[[], float] = time.monotonic):
        self._updates = {cell.key: cell.config.training.max_updates for cell in cells}
        self._finished: set[str] = set()
        self._at: dict[str, int] = {}  # last reported update of each cell
        self._done, self._clock, self._began = 0, clock, clock()

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
        finished = status.state is State.FINISHED
        own = self._updates[cell.key] if finished else status.update
        before = self._at.setdefault(cell.key, own)  # not done since we look: done before
        self._at[cell.key] = max(before, status.update)
        self._done += self._at[cell.key] - before
        if finished:
            self._finished.add(cell.key)

    def left_s(self) -> float | None:
        """Return an estimate of the remaining seconds from the mean time of an update so far,
        measures included; `None` before the first update."""
        if not self._done:
            return None
        left = sum(updates - self._at.get(key, 0) for key, updates in self._updates.items())
        return max(0, left) * (self._clock() - self._began) / self._done
