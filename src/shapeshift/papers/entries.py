"""Fields of an item's tables, by what they hold."""

from __future__ import annotations

from collections.abc import Iterable

from shapeshift.data.prepared import Prepared
from shapeshift.evaluation.tables import NO_VALUE
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import Entry


def missing() -> Entry:
    """Return the field for what was not measured."""
    return Entry(text=NO_VALUE)


def words(*texts: str) -> tuple[Entry, ...]:
    """Return fields that hold text."""
    return tuple(Entry(text=text) for text in texts)


def number(value: float | None, show: str = ".2f", cells: Iterable[Cell] = ()) -> Entry:
    """Return a field for a number that is no measurement of its own, such as the paper's.

    Args:
        value: `None` is a dash.
        show: format specification.
        cells: runs that it was computed from.
    """
    if value is None:
        return missing()
    keys = tuple(dict.fromkeys(cell.key for cell in cells))
    return Entry(text=format(value, show), value=value, cells=keys)


def counted(value: int, data: Prepared, cell: Cell) -> Entry:
    """Return a field for a number of the data, whatever is trained on them.

    Args:
        value: the number.
        data: that it was counted in.
        cell: one that has these data.
    """
    fingerprint = data.report.fingerprint
    return Entry(text=f"{value:,}", value=value, cells=(cell.key,), data=fingerprint)
