"""What `shapeshift train --dry-run` and `shapeshift reproduce --dry-run` print."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.filesize import decimal

from shapeshift.cli.output import console, duration, notice, show_table
from shapeshift.threads import num_cores

if TYPE_CHECKING:
    from pathlib import Path

    from shapeshift.config import Config
    from shapeshift.data.sources.origins import Origin
    from shapeshift.papers.planning import Plan


def show_estimate(config: Config) -> None:
    """Print what a run takes, and where its text is or will be fetched from."""
    from shapeshift.data.sources.origins import origins
    from shapeshift.evaluation.tables import Table
    from shapeshift.lab.requirements import measure_run
    from shapeshift.training.estimate import disk_bytes

    busy = busy_note()
    num_parameters, measured = measure_run(config)
    training = config.training
    tokens = training.accumulation * training.batch.max_tokens
    rows = [
        ("parameters", f"{num_parameters:,}"),
        ("tokens an update, a side", f"{tokens:,} at most, padding included"),
        ("updates", f"{training.max_updates:,}"),
        ("an update, measured", f"{measured.seconds_per_update:.2g} s"),
        ("all updates", f"about {duration(training.max_updates * measured.seconds_per_update)}"),
        ("disk: checkpoints and average", decimal(disk_bytes(training, num_parameters))),
    ]
    if measured.is_whole:
        rows.insert(5, ("peak memory, measured", decimal(measured.peak_bytes)))
    batch = f"{measured.num_pairs:,} x ({measured.length:,} + {measured.length:,}) tokens"
    notes = [
        f"measured here on batches of {batch} of random text, a vocabulary of"
        f" {config.data.subwords.vocab_size:,}"
        + ("" if measured.is_whole else ", and scaled up to whole batches"),
        "without validation and translation, on a machine that does nothing else",
        *filter(None, [busy]),
    ]
    scheme = config.position.scheme
    parts = [("part", str(part)) for part in scheme.parts] or [("part", "none")]
    position = [("position ids", str(scheme.position_ids)), *parts]
    show_table(Table(("position", config.position.name), position))
    show_table(Table(("run", ""), rows, notes))
    _show_origins(origins(config.data.corpus))


def show_plan(plan: Plan, prepared_root: Path) -> None:
    """Print what all runs of a paper take, as `show_estimate` does for one.

    Args:
        plan: from `papers.planning.plan_items`.
        prepared_root: see `lab.train.train`.
    """
    from shapeshift.evaluation.tables import Table
    from shapeshift.lab.requirements import measure_run
    from shapeshift.papers.preflight import find_origins, measure_runs, missing

    busy = busy_note()
    with console().status("measuring a few updates of each model"):
        every = measure_runs(plan.runs, lambda configs: map(measure_run, configs))
    rows = [
        (
            runs.name,
            str(len(runs.cells)),
            f"{runs.num_parameters:,}",
            f"{runs.config.training.max_updates:,}",
            f"{runs.measured.seconds_per_update:.2g} s",
            duration(runs.seconds),
            decimal(runs.disk_bytes),
        )
        for runs in every
    ]
    seconds = sum(len(runs.cells) * runs.seconds for runs in every)
    disk = sum(len(runs.cells) * runs.disk_bytes for runs in every)
    number = sum(len(runs.cells) for runs in every)
    rows.append(("all", str(number), "", "", "", duration(seconds), decimal(disk)))
    header = ("runs", "number", "parameters", "updates", "an update", "time of one", "disk of one")
    notes = [
        "time: measured here on a few batches of random text; without validation, translation and"
        " measures, on a machine that does nothing else; the last row is all runs, one after the"
        " other",
        *filter(None, [busy]),
    ]
    show_table(Table(header, rows, notes))
    _show_origins(find_origins(every))
    for line in missing(plan.runs, prepared_root, hardware=False, packages_only=True):
        notice(f"missing here: {line}", "yellow")


def _show_origins(parts: Sequence[Origin]) -> None:
    from shapeshift.evaluation.tables import Table

    lost = any(not part.here and part.where is None for part in parts)
    remedy = "missing: put it in place, or set data.corpus.root to the folder that holds it"
    rows = [(part.what, part.state) for part in parts]
    show_table(Table(("text", "where it is"), rows, [remedy] * lost), numbers=False)


def busy_note() -> str | None:
    """Return a note for what was measured while other programs were at work, if they were."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load < num_cores() / 2:
        return None
    return (
        f"another program was using the processor (load {load:.1f} on {num_cores()} cores): on an"
        " idle machine it takes less time"
    )
