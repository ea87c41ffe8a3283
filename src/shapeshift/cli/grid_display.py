"""Progress of the cells of a grid: bars on a terminal, plain lines in a file or a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from shapeshift.cli.output import duration, notice, time_left
from shapeshift.cli.progress import Display
from shapeshift.lab.measures import TRAIN
from shapeshift.lab.status import CellStatus, State, Tally

if TYPE_CHECKING:
    from shapeshift.lab.grid import Cell
    from shapeshift.lab.runner import Report


_WORDS = {State.ELSEWHERE: "another command is at work on it", State.STOPPING: "stopping"}


class GridDisplay:
    """Shows the cells of a grid: a bar for each running cell, and a line when a cell starts another
    step or ends. A `GridObserver`, and a context manager.

    Args:
        cells: cells of one or more grids; if several share a folder, the first is named.
        clock: see `Tally`.
    """

    def __init__(self, cells: Sequence[Cell], clock: Callable[[], float] = time.monotonic):
        self._display, self._tally = Display(), Tally(cells, clock)
        several = len({cell.grid for cell in cells}) > 1
        self._names: dict[str, str] = {}
        for cell in cells:
            name = f"{cell.grid} {cell.name}" if several else cell.name
            self._names.setdefault(cell.key, name)
        self._states = dict.fromkeys(self._names, State.WAITING)
        self._phases: dict[str, str] = {}
        self._seconds = dict.fromkeys(self._names, 0.0)

    def __enter__(self) -> GridDisplay:
        self._display.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        for phase in self._phases.values():  # none has ended by itself
            self._display.end(phase)
        self._display.__exit__(None)

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Move a bar; print a line for a new step or state."""
        self._tally.changed(cell, status)
        name, before = self._names[cell.key], self._states[cell.key]
        self._states[cell.key] = status.state
        is_running = status.state is State.RUNNING
        phase = f"{name} {status.step}" if is_running and status.step else ""
        if cell.key in self._phases and self._phases[cell.key] != phase:
            self._seconds[cell.key] += self._display.end(self._phases.pop(cell.key))
        if phase:
            self._phases[cell.key] = phase
            values = [
                "" if status.loss is None else f"loss {status.loss:.3f}",
                "" if status.tokens_per_s is None else f"{status.tokens_per_s:,.0f} tokens/s",
            ]
            training = (status.update, status.max_updates, " · ".join(filter(None, values)))
            self._display.show(
                phase, *(training if status.step == TRAIN else (0, None)), at_once=True
            )
        elif is_running or status.state in (before, State.WAITING):
            return
        elif status.state not in (State.FINISHED, State.FAILED):
            notice(f"{name}: {_WORDS[status.state]}", "yellow")
        elif status.state is State.FAILED:
            notice(f"{name}: failed ({_overall(self._tally)})", "bold red")
        elif before is not State.WAITING:  # else it was finished before this command
            seconds = self._seconds[cell.key]  # 0: another command trained it
            took = f" ({duration(seconds)})" if seconds else ""
            notice(f"✓ {name}{took}: {_overall(self._tally)}")


def _overall(tally: Tally) -> str:
    text = f"{tally.num_finished} of {tally.num_cells} runs finished"
    left_s = tally.left_s()
    over = tally.num_finished == tally.num_cells
    return text if left_s is None or over else f"{text}, {time_left(left_s)}"


def show_failures(report: Report) -> None:
    """Print the last lines of each cell that failed."""
    for cell in report.failed:
        notice(f"{cell.name} ({cell.key}) failed:", "bold red")
        for line in report.statuses[cell.key].message.splitlines():
            notice(f"  {line}")
