"""What `train`, `compare` and `reproduce` print with `--dry-run`."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.filesize import decimal

from shapeshift.cli.output import console, duration, show_table

if TYPE_CHECKING:
    from shapeshift.lab.grid import Cell


def show_estimates(cells: Collection[Cell]) -> None:
    """Print the cost of runs, grouped if they differ only in their seed."""
    from shapeshift.evaluation.tables import Table
    from shapeshift.lab.requirements import measure_run
    from shapeshift.papers.preflight import measure_runs

    with console().status("measuring a few updates of each model"):
        every = measure_runs(cells, lambda configs: map(measure_run, configs))
    rows = [
        (
            runs.name,
            str(len(runs.cells)),
            f"{runs.num_parameters:,}",
            f"{runs.config.training.max_updates:,}",
            f"{runs.update_s:.2g} s",
            duration(runs.seconds),
            decimal(runs.disk_bytes),
        )
        for runs in every
    ]
    if len(every) > 1:
        number = sum(len(runs.cells) for runs in every)
        seconds = sum(len(runs.cells) * runs.seconds for runs in every)
        disk = sum(len(runs.cells) * runs.disk_bytes for runs in every)
        rows.append(("all", str(number), "", "", "", duration(seconds), decimal(disk)))
    header = ("runs", "number", "parameters", "updates", "an update", "time of one", "disk of one")
    note = (
        "time: measured here on a few batches of random text; without validation, translation and"
        " measures, on a machine that does nothing else; of all runs, one after the other"
    )
    show_table(Table(header, rows, [note]))
