"""What `shapeshift train --dry-run` and `shapeshift reproduce --dry-run` print."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from shapeshift.errors import ShapeshiftError

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from shapeshift.config import Config
    from shapeshift.data.sources.origins import Origin
    from shapeshift.evaluation.tables import Table
    from shapeshift.papers.planning import Plan
    from shapeshift.training.estimate import Estimate
    from shapeshift.training.gpus import Gpu

SPEED = 100.0
"""TFLOP/s for which the time is given."""

HERE = "here"
"""Stands for this machine where a GPU may be named: its speed is measured."""


def show_estimate(config: Config, gpu: str | None = None, num_gpus: int = 1) -> None:
    """Print what a run would take: tables on a terminal, Markdown into a file or a pipe.

    Text that is not there is listed on standard error, with where it will come from.

    Args:
        config: of the run.
        gpu: whose time is printed; a name from `training.gpus.GPUS`, or `HERE`.
        num_gpus: that share the run.

    Raises:
        ShapeshiftError: no such GPU, or so many of them cannot share an update.
    """
    from shapeshift.data.sources.origins import origins
    from shapeshift.training.estimate import assumed_length, estimate, measure_speed
    from shapeshift.training.gpus import find_gpu

    _check_one(gpu, num_gpus)
    card = None if gpu in (None, HERE) else find_gpu(str(gpu))
    training = config.training
    training.check_shared(num_gpus)
    if card is not None and card.bf16 is None and training.precision == "auto":
        training = training.model_copy(update={"precision": "fp32"})
    run = (config.model, config.position.scheme, training, config.data.subwords.vocab_size)
    made = estimate(*run, min(assumed_length(config.data), training.batch.max_tokens))
    if gpu == HERE:
        time = ("time here", _duration(made.hours(measure_speed(*run, made)))), _measured_note()
    else:
        time = _time(made, card, num_gpus)
    _print_table(_position_table(config))
    _print_table(_parts_table(made))
    _print_table(_run_table(made, config, time))
    _warn_missing(origins(config.data.corpus))


def show_plan(
    plan: Plan, prepared_root: Path, gpu: str, num_gpus: int = 1, gpus_per_run: int = 1
) -> None:
    """Print what all runs of a paper would take, as `show_estimate` does for one.

    Args:
        plan: from `papers.planning.plan_items`.
        prepared_root: see `lab.run.train`.
        gpu: a name from `training.gpus.GPUS`, or `HERE`.
        num_gpus: that the runs are shared out to.
        gpus_per_run: that train a run together.

    Raises:
        ShapeshiftError: no such GPU, or a run that cannot be.
    """
    from rich.text import Text

    from shapeshift.cli.progress import console
    from shapeshift.evaluation.tables import Table
    from shapeshift.papers.dry_run import dry_run
    from shapeshift.training.gpus import find_gpu

    _check_one(gpu, num_gpus)
    if num_gpus % gpus_per_run:
        raise ShapeshiftError(
            f"{num_gpus} GPUs cannot be divided into groups of {gpus_per_run}; give a --num-gpus"
            " that is a multiple of --gpus-per-run"
        )
    card = None if gpu == HERE else find_gpu(gpu)
    with console.status("") as status:
        made = dry_run(plan, card, lambda name: status.update(Text(f"measuring {name}")))
    rows = [
        (
            f"{runs.grid} {runs.name}",
            str(len(runs.cells)),
            _si(runs.estimate.parameters.total, ""),
            f"{runs.config.training.max_updates:,}",
            _si(runs.estimate.total_flops, "FLOP"),
            _duration(runs.hours),
            _si(runs.estimate.memory.total, "B") + ("" if runs.fits else " !"),
            _si(runs.estimate.disk_bytes, "B"),
        )
        for runs in made.runs
    ]
    total = _si(made.total_flops, "FLOP")
    disk = _si(made.disk_bytes, "B")
    rows.append(("all", str(made.num_cells), "", "", total, _duration(made.hours), "", disk))
    title = (f"time of one, {card.title if card else HERE}", "memory", "disk of one")
    if card is None:
        notes = [_measured_note()]
    else:
        notes = [_speed_note(card, {runs.estimate.dtype for runs in made.runs})]
    if num_gpus > 1:
        hours = _duration(made.hours_on(num_gpus, gpus_per_run))
        notes.append(f"on {num_gpus} GPUs, {gpus_per_run} for each run: {hours} until all are done")
    notes.append("without validation, translation and measures; the last row is all runs together")
    if card is not None and not all(runs.fits for runs in made.runs):
        notes.append(
            f"! more than the {_si(card.memory, 'B')} of the GPU: lower training.batch.max_tokens"
            " and raise training.accumulation by as much"
        )
    header = ("runs", "number", "parameters", "updates", "FLOP of one", *title)
    _print_table(Table(header, rows, notes))
    _print_table(Table(("text", ""), [(one.what, one.state) for one in made.origins]))
    for line in plan.missing(prepared_root, packages_only=True):
        console.print(f"missing here: {line}", style="yellow", soft_wrap=True)


def _check_one(gpu: str | None, num_gpus: int) -> None:
    if gpu == HERE and num_gpus > 1:
        raise ShapeshiftError(
            f"--gpu {HERE} measures one process on this machine; leave --num-gpus out"
        )


def _measured_note() -> str:
    import torch

    return (
        f"time: measured on three batches here, {torch.get_num_threads()} threads or one GPU;"
        " batches of real text are less full"
    )


def _print_table(table: Table) -> None:
    if sys.stdout.isatty():
        from shapeshift.cli.progress import results_console

        out = results_console()
        out.print(table.rich())
        for note in table.notes:
            out.print(note, style="dim", soft_wrap=True)
    else:
        print(table.markdown())


def _warn_missing(parts: Sequence[Origin]) -> None:
    from shapeshift.cli.progress import console

    missing = [part for part in parts if not part.here]
    if not missing:
        return
    lost = sum(part.where is None for part in missing)
    if lost:
        text = (
            f"warning: {lost} files of text are not there yet; set data.corpus.root to the folder"
            " that holds them, or put them in place:"
        )
    else:
        text = "the text is not here yet; training fetches it:"
    console.print(text, style="yellow" if lost else None, soft_wrap=True)
    for part in missing:
        line = part.what if part.where is None else f"{part.what} {part.state}"
        console.print(f"  {line}", soft_wrap=True)


def _time(made: Estimate, card: Gpu | None, num_gpus: int) -> tuple[tuple[str, str], str]:
    """Return the row of the time and the note that explains it."""
    if card is None:
        row = (f"time at {SPEED:g} TFLOP/s", _duration(made.hours(SPEED)))
        return row, f"time: at {SPEED:g} TFLOP/s really reached, over all devices; no validation"
    hours = made.hours(card.speed(made.dtype) * num_gpus)
    row = (f"time on {num_gpus} x {card.title}", _duration(hours))
    return row, _speed_note(card, {made.dtype}) + "; without validation"


def _speed_note(card: Gpu, dtypes: Iterable[torch.dtype]) -> str:
    parts = [
        f"{card.speed(dtype) / card.peak(dtype):.0%} of its {card.peak(dtype):g} TFLOP/s in {name}"
        for name, dtype in {("bf16" if x.itemsize == 2 else "fp32"): x for x in dtypes}.items()
    ]
    return f"time: {card.title} at {', '.join(parts)}, assumed"


def _position_table(config: Config) -> Table:
    from shapeshift.cli.positions import describe_indices, describe_part
    from shapeshift.evaluation.tables import Table

    scheme = config.position.scheme
    parts = [("part", describe_part(part)) for part in scheme.parts] or [("part", "none")]
    rows = [("indices", describe_indices(scheme.indices)), *parts]
    return Table(("position", config.position.name), rows)


def _parts_table(made: Estimate) -> Table:
    from shapeshift.evaluation.tables import NO_VALUE, Table

    def row(part: str) -> list[str]:
        parameters = getattr(made.parameters, part)
        flops = getattr(made.flops_per_update, part)
        activations = getattr(made.memory.activations, part)
        cells = (f"{parameters:,}", _si(flops, "FLOP"), _si(activations, "B"))
        numbers = (parameters, flops, activations)
        return [part, *(cell if n else NO_VALUE for cell, n in zip(cells, numbers, strict=True))]

    parts = [*(field.name for field in fields(made.parameters)), "total"]
    return Table(
        ("part", "parameters", "FLOP an update", "activations of a batch"), [*map(row, parts)]
    )


def _run_table(made: Estimate, config: Config, time: tuple[tuple[str, str], str]) -> Table:
    from shapeshift.evaluation.tables import Table

    training, memory = config.training, made.memory
    where = f"{made.device}, {'fp32' if memory.casts == 0 else 'bf16'}"
    rows = [
        ("tokens an update, a side", f"{made.max_tokens_per_update:,}"),
        ("updates", f"{made.num_updates:,}"),
        ("FLOP of all updates", _si(made.total_flops, "FLOP")),
        time[0],
        ("memory: weights", _si(memory.weights, "B")),
        ("memory: gradients", _si(memory.gradients, "B")),
        ("memory: Adam's moments", _si(memory.moments, "B")),
        ("memory: weights in bf16", _si(memory.casts, "B")),
        ("memory: activations of a batch", _si(memory.activations.total, "B")),
        (f"memory: total ({where})", _si(memory.total, "B")),
        ("disk: checkpoints and average", _si(made.disk_bytes, "B")),
    ]
    batch = made.batch
    notes = (
        f"an update is {training.accumulation} x {training.batch.max_tokens:,} tokens at most,"
        " padding included (accumulation x batch.max_tokens)",
        f"assumed: {batch.num_pairs:,} x ({batch.source_length:,} + {batch.target_length:,}) tokens"
        f" a batch, a vocabulary of {config.data.subwords.vocab_size:,}",
        time[1],
        "memory: without the framework's own and fragmentation",
    )
    return Table(("run", ""), rows, notes)


def _duration(hours: float) -> str:
    if hours >= 1:
        return f"{hours:,.1f} h"
    return f"{hours * 60:.0f} min" if hours * 60 >= 1 else f"{hours * 3600:.0f} s"


def _si(value: float, unit: str) -> str:
    """Return three digits or more with a decimal prefix, such as `40.6 TFLOP`."""
    prefixes = iter(("", "k", "M", "G", "T", "P", "E", "Z"))
    prefix = next(prefixes)
    while value >= 999.5 and prefix != "Z":
        value /= 1000
        prefix = next(prefixes)
    return f"{value:.3g} {prefix}{unit}"
