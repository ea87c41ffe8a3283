"""What `train`, `compare` and `reproduce` print with `--dry-run`."""

from __future__ import annotations

from collections import Counter
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
    from shapeshift.training.estimate import disk_bytes

    with console().status("measuring a few updates of each model"):
        measured = measure_runs(cells, lambda configs: map(measure_run, configs))
    seeds: Counter[tuple[str, int, int, float, int]] = Counter()
    for cell, num_parameters, update_s in measured:
        name, training = f"{cell.grid} {'/'.join(cell.axes.values())}", cell.config.training
        disk = disk_bytes(training, num_parameters)
        seeds[name, num_parameters, training.max_updates, update_s, disk] += 1
    rows, all_seconds, all_disk = [], 0.0, 0
    for (name, num_parameters, updates, update_s, disk), number in seeds.items():
        seconds = updates * update_s
        numbers = (str(number), f"{num_parameters:,}", f"{updates:,}", f"{update_s:.2g} s")
        rows.append((name, *numbers, duration(seconds), decimal(disk)))
        all_seconds += number * seconds
        all_disk += number * disk
    if len(rows) > 1:
        total = (str(len(measured)), "", "", "", duration(all_seconds), decimal(all_disk))
        rows.append(("all", *total))
    header = ("runs", "number", "parameters", "updates", "an update", "time of one", "disk of one")
    note = (
        "time: measured here on a few batches of random text, and too long where other programs use"
        " the processor now; without validation, translation and measures; of all runs, one after"
        " the other"
    )
    show_table(Table(header, rows, [note]))
