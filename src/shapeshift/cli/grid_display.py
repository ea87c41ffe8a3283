"""A grid of runs on a terminal: a live table of its cells; in a file or a pipe, a line an event."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shapeshift.cli import output
from shapeshift.cli.output import duration, notice
from shapeshift.cli.progress import LINE_EVERY_S
from shapeshift.lab.status import CellStatus, State, Tally

if TYPE_CHECKING:
    from shapeshift.lab.grid import Cell
    from shapeshift.lab.runner import Report

_STYLES = {
    State.RUNNING: "cyan",
    State.STOPPING: "yellow",
    State.FAILED: "bold red",
    State.ELSEWHERE: "magenta",
    State.WAITING: "dim",
    State.FINISHED: "green",
}
"""Most urgent first: the order of the rows on a terminal, where rich cuts off those that have no
room."""

_NOTHING = "–"


class GridDisplay:
    """Shows the progress of cells; a `GridObserver`, and a context manager.

    Args:
        cells: of one or of several grids, in the order of the table; of those that share a folder,
            the first is shown.
        clock: see `Tally`.
    """

    def __init__(self, cells: Sequence[Cell], clock: Callable[[], float] = time.monotonic):
        self._console, self._tally = output.console(), Tally(cells, clock)
        several = len({cell.grid for cell in cells}) > 1
        self._names: dict[str, str] = {}
        for cell in cells:
            name = f"{cell.grid} {cell.name}" if several else cell.name
            self._names.setdefault(cell.key, name)
        self._statuses = {
            cell.key: CellStatus(State.WAITING, max_updates=cell.config.training.max_updates)
            for cell in cells
        }
        self._printed: dict[str, float] = {}
        self._live = Live(console=self._console, get_renderable=self.table, auto_refresh=False)

    def __enter__(self) -> GridDisplay:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def changed(self, cell: Cell, status: CellStatus) -> None:
        """Draw the table again; without a terminal, print a line for a new state or step, and
        twice a minute while a cell is running."""
        before = self._statuses[cell.key]
        self._statuses[cell.key] = status
        self._tally.changed(cell, status)
        if self._console.is_terminal:
            self._live.refresh()
            return
        if status.state is State.WAITING or (status.state is State.RUNNING and not status.step):
            return
        if (before.state, status.state) == (State.WAITING, State.FINISHED):  # before this command
            return
        moved = (before.state, before.step) != (status.state, status.step)
        now = time.monotonic()
        since = now - self._printed.get(cell.key, -LINE_EVERY_S)
        if moved or (status.state is State.RUNNING and since >= LINE_EVERY_S):
            self._printed[cell.key] = now
            line = _line(self._names[cell.key], status)
            if status.state in (State.FINISHED, State.FAILED):
                line += f" ({_overall(self._tally)})"
            notice(line)

    def table(self) -> Table:
        """Return the table as it is now, running cells first."""
        counts = Counter(status.state for status in self._statuses.values())
        title = ", ".join(f"{counts[state]} {state}" for state in _STYLES if counts[state])
        title += f"\n{_overall(self._tally)}"
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
        for column in ("cell", "state"):
            table.add_column(column, no_wrap=True)
        for column in ("update", "loss", "tokens/s", "left"):
            table.add_column(column, justify="right", no_wrap=True)
        urgency = list(_STYLES)
        for key in sorted(self._names, key=lambda key: urgency.index(self._statuses[key].state)):
            status = self._statuses[key]
            table.add_row(self._names[key], *_cells(status), style=_STYLES[status.state])
        return table


def show_failures(report: Report) -> None:
    """Print the last lines of each cell that failed."""
    for cell in report.failed:
        notice(f"{cell.name} ({cell.key}) failed:", "bold red")
        for line in report.statuses[cell.key].message.splitlines():
            notice(f"  {line}")


def _cells(status: CellStatus) -> tuple[Text | str, ...]:
    doing = status.state is State.RUNNING and status.step is not None
    state = f"{status.state}: {status.step}" if doing else str(status.state)
    running = status.state is State.RUNNING
    return (
        Text(state),
        f"{status.update:,}/{status.max_updates:,}",
        _NOTHING if status.loss is None else f"{status.loss:.3f}",
        _NOTHING if status.tokens_per_s is None else f"{status.tokens_per_s:,.0f}",
        _NOTHING if status.left_s is None or not running else duration(status.left_s),
    )


def _overall(tally: Tally) -> str:
    text = f"{tally.num_finished} of {tally.num_cells} cells finished"
    left_s = tally.left_s()
    over = tally.num_finished == tally.num_cells
    return text if left_s is None or over else f"{text}, about {duration(left_s)} left"


def _line(name: str, status: CellStatus) -> str:
    if status.state is not State.RUNNING:
        return f"{name}: {status.state}"
    parts = [f"{name}: {status.step}"]
    if status.step == "train" and status.loss is not None:
        parts.append(f"update {status.update}/{status.max_updates} · loss {status.loss:.3f}")
        if status.tokens_per_s is not None:
            parts.append(f"{status.tokens_per_s:,.0f} tokens/s")
        if status.left_s is not None:
            parts.append(f"about {duration(status.left_s)} left")
    return " · ".join(parts)
