"""What `train`, `compare` and `reproduce` print with `--dry-run`."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from rich.filesize import decimal

from shapeshift._system.errors import ShapeshiftError
from shapeshift.cli.output import console, duration, notice, show_table, time_range

if TYPE_CHECKING:
    from shapeshift.config import Config
    from shapeshift.study.grid import PlannedRun
    from shapeshift.training.estimate import UpdateTime

_COSTS_NOTHING = {"seed", "max_updates", "schedule", "checkpoint_every", "keep_checkpoints"}

_PATIENCE_S = 10
"""Seconds after which each measured model prints a line, also in a pipe: models of the papers' size
take many minutes."""


def show_estimates(runs: Collection[PlannedRun]) -> None:
    """Print the estimated cost of runs, and missing text. Runs of equal cost are measured once;
    nothing is downloaded or trained."""
    from shapeshift._system.threads import num_cores, set_num_threads
    from shapeshift.run.requirements import measure_run, require_text
    from shapeshift.study.grid import distinct
    from shapeshift.training.estimate import disk_bytes

    found = [(planned, _cost(planned.config)) for planned in distinct(runs)]
    num_models = len({cost for _, cost in found})
    measured: dict[str, tuple[int, UpdateTime]] = {}
    rows, all_low, all_high, all_disk = [], 0.0, 0.0, 0
    began = time.monotonic()
    if num_models > 1:
        notice(f"measuring a few updates of each of {num_models} models")
    with console().status("measuring a few updates of each model"):
        for planned, cost in found:
            training = planned.config.training
            if cost not in measured:
                set_num_threads(planned.config.model.dim)
                measured[cost] = measure_run(planned.config)
                elapsed, left = time.monotonic() - began, num_models - len(measured)
                if left and elapsed > _PATIENCE_S:
                    remaining = duration(elapsed / len(measured) * left)
                    notice(f"{len(measured)} of {num_models} measured, about {remaining} left")
            num_parameters, update = measured[cost]
            low, high = (training.max_updates * seconds for seconds in update[:2])
            disk = disk_bytes(training, num_parameters)
            numbers = (f"{num_parameters:,}", f"{training.max_updates:,}", f"{update.low:.2g} s")
            rows.append(
                (f"{planned.grid} {planned.name}", *numbers, time_range(low, high), decimal(disk))
            )
            all_low, all_high, all_disk = all_low + low, all_high + high, all_disk + disk
    if len(rows) > 1:
        rows.append(("all", "", "", "", time_range(all_low, all_high), decimal(all_disk)))
    note = "time: of training alone, one run after the other, from a few batches of random text"
    if others := max((update.others for _, update in measured.values()), default=0.0):
        note += (
            f"; other programs used {others:.1f} of {num_cores()} cores: the first number is"
            " without them, the second one if they go on"
        )
    show_table(("run", "parameters", "updates", "an update", "time", "disk"), rows, [note])
    missing = []
    for planned in runs:
        try:
            require_text(planned.config)
        except ShapeshiftError as error:
            missing.append(str(error))
    for line in dict.fromkeys(missing):
        notice(f"needed before the runs can start: {line}")


def _cost(config: Config) -> str:
    """Return the key of runs whose updates cost the same."""
    from shapeshift.training.estimate import assumed_length

    size = config.data.subwords.vocab_size, assumed_length(config.data)
    costs = config.training.model_dump(exclude=_COSTS_NOTHING)
    return f"{config.model} {config.position.scheme} {costs} {size}"
