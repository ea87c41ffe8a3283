"""What is happening to the cells of a grid."""

from __future__ import annotations

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
    """

    state: State
    step: str | None = None
    update: int = 0
    max_updates: int = 0
    loss: float | None = None
    tokens_per_s: float | None = None


class GridObserver(Protocol):
    """Receives the status of the cells of a grid, such as a table on a terminal."""

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Called when a cell's state changes, and about once a second while it is running."""
