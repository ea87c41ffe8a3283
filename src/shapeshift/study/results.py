"""All results of a grid in one tidy table, with a row for each, as a CSV file."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from shapeshift._system.errors import ShapeshiftError
from shapeshift.run.machine import MACHINE, Machine
from shapeshift.run.measures import TRAIN, Result, Text
from shapeshift.run.record import RunFolder
from shapeshift.study.grid import PlannedRun

AXIS = "axis:"
"""Begins the names of the columns that hold axes."""


class Row(Result):
    """A result with its run and origin.

    Attributes:
        grid, profile, seed: of the run.
        run: the run's key.
        axes: axis → the setting's name; in a file, a column each.
        measure: the measure that found it.
        checkpoint, command, version, time, hardware: see `record.MeasureRecord`.
    """

    grid: Text
    profile: Text
    run: Text
    axes: dict[Text, Text] = Field(default_factory=dict)
    seed: int
    measure: Text
    checkpoint: Text
    command: str
    version: Text
    time: Text
    hardware: Text | None = None


_FIRST = ("grid", "profile", "run")
_OTHERS = ("axes", "examples")  # columns of their own, and files of their own
_FIELDS = (*_FIRST, *(name for name in Row.model_fields if name not in (*_FIRST, *_OTHERS)))


def collect(runs: Iterable[PlannedRun], root: Path) -> list[Row]:
    """Collect the recorded results of `runs` in the folders under `root`. Two runs that share a
    folder each get rows.

    Raises:
        ShapeshiftError: see `check_alike`.
    """
    runs, rows = [*runs], []
    folders = [RunFolder(root / planned.key) for planned in runs]
    machines = [Machine.read(folder.run) for folder in folders]
    check_alike(runs, machines)
    for planned, folder, machine in zip(runs, folders, machines, strict=True):
        if machine is None and any(machines):
            raise ShapeshiftError(
                f"{planned.name} does not say what it was trained on ({MACHINE} is missing), and"
                " would be compared with runs that do; remove this folder, and it is trained again",
                path=folder.path,
            )
        folder.check_settings(planned.config)
        for measure in (TRAIN, *planned.measures):
            record = folder.record(measure, planned.config)
            if record is None:
                continue
            shared = {
                "grid": planned.grid,
                "profile": planned.profile,
                "run": planned.key,
                "axes": dict(planned.axes),
                "seed": planned.seed,
                "measure": measure,
                **record.model_dump(
                    include={"checkpoint", "command", "version", "time", "hardware"}
                ),
            }
            rows += [Row(**shared, **x.model_dump()) for x in record.results]
    return rows


def tabulate(rows: Sequence[Row]) -> list[list[Any]]:
    """Return the names of columns, one for each field and each axis (`axis:NAME`), and the rows."""
    axes = list({axis: None for row in rows for axis in row.axes})
    lines = [[*(getattr(row, name) for name in _FIELDS), *map(row.axes.get, axes)] for row in rows]
    return [[*_FIELDS, *(AXIS + axis for axis in axes)], *lines]


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV; `None` is an empty field."""
    import pandas as pd

    # All text in quotation marks: left to itself, `csv` leaves a lone \r without them.
    style: dict[str, Any] = {"lineterminator": "\n", "quoting": csv.QUOTE_NONNUMERIC}
    return str(pd.DataFrame([*rows], dtype=object).to_csv(header=False, index=False, **style))


def check_alike(runs: Iterable[PlannedRun], machines: Iterable[Machine | None]) -> None:
    """Raise a `ShapeshiftError` if runs of one table were trained on different kinds of device, or
    in different precisions, unless each names its own in `training.precision`.

    Args:
        runs: the runs.
        machines: what each was, or will be, trained on; None where that is not known.
    """
    seen: dict[tuple[str, Machine, bool], PlannedRun] = {}
    for planned, machine in zip(runs, machines, strict=True):
        if machine is None:
            continue
        is_auto = planned.config.training.precision == "auto"
        for (grid, before, was_auto), other in seen.items():
            differs = before.precision != machine.precision and (is_auto or was_auto)
            if grid == planned.grid and (differs or before.device != machine.device):
                raise ShapeshiftError(
                    f"{other.name} trains in {before} ({before.hardware}) and {planned.name} in"
                    f" {machine} ({machine.hardware}), and would be compared; give each kind of"
                    " machine a --directory of its own, train all runs on one, or give each a"
                    " training.precision"
                )
        seen.setdefault((planned.grid, machine, is_auto), planned)
