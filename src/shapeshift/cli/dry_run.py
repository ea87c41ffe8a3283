"""What `shapeshift train --dry-run` prints."""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from shapeshift.config import Config
from shapeshift.data.config import (
    SPLITS,
    DataConfig,
    Extrapolate,
    FilesCorpus,
    Interpolate,
    LengthSlice,
)

if TYPE_CHECKING:
    from shapeshift.evaluation.tables import Table
    from shapeshift.training.estimate import Estimate

TYPICAL_LENGTH = 30
"""Subwords of a sentence where nothing is known of the data: the mean of WMT's news text, or so."""
SPEED = 100.0
"""TFLOP/s for which the time is given."""


def show_estimate(config: Config) -> None:
    """Print what a run would take: tables on a terminal, Markdown into a file or a pipe.

    Files of text that the configuration names and that are not there are listed on standard error.
    """
    from rich.console import Console

    from shapeshift.cli.progress import console
    from shapeshift.training.estimate import estimate

    length = min(assumed_length(config.data), config.training.batch.max_tokens)
    made = estimate(
        config.model,
        config.position.scheme,
        config.training,
        config.data.subwords.vocab_size,
        length,
    )
    for table in (_parts_table(made), _run_table(made, config)):
        if sys.stdout.isatty():
            Console().print(table.rich())
            for note in table.notes:
                Console().print(note, style="dim", markup=False, highlight=False, soft_wrap=True)
        else:
            print(table.markdown())
    missing = missing_files(config.data)
    if missing:
        console.print(
            f"warning: {len(missing)} files of text are not there yet; set data.corpus.root to the"
            " folder that holds them, or put them in place:",
            style="yellow",
            soft_wrap=True,
        )
        for path in missing:
            console.print(f"  {path}", markup=False, highlight=False, soft_wrap=True)


def assumed_length(data: DataConfig) -> int:
    """Return the tokens of a sentence, `</s>` included, that an estimate may assume of the data:
    `TYPICAL_LENGTH`, within the limits of the dataset."""
    match data.dataset:
        case Interpolate(num_joined=count):
            subwords = count * TYPICAL_LENGTH + count - 1  # `<sep>` between them
        case Extrapolate(max_length=limit):
            subwords = min(TYPICAL_LENGTH, limit)
        case LengthSlice(min_length=low, max_length=high):
            subwords = max(low, TYPICAL_LENGTH if high is None else min(TYPICAL_LENGTH, high - 1))
        case _:
            subwords = TYPICAL_LENGTH
    return subwords + 1


def missing_files(data: DataConfig) -> list[Path]:
    """Return the files of text that the corpus names and that are not there, plain or gzipped."""
    corpus = data.corpus
    if not isinstance(corpus, FilesCorpus):
        return []
    named = [
        corpus.root / f"{prefix}.{language}"
        for split in SPLITS
        for prefix in corpus.prefixes(split)
        for language in (corpus.source, corpus.target)
    ]
    return [path for path in named if not (path.is_file() or Path(f"{path}.gz").is_file())]


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


def _run_table(made: Estimate, config: Config) -> Table:
    from shapeshift.evaluation.tables import Table

    training, memory = config.training, made.memory
    where = f"{made.device}, {'fp32' if memory.casts == 0 else 'bf16'}"
    rows = [
        ("tokens an update, a side", f"{made.max_tokens_per_update:,}"),
        ("updates", f"{made.num_updates:,}"),
        ("FLOP of all updates", _si(made.total_flops, "FLOP")),
        (f"time at {SPEED:g} TFLOP/s", _duration(made.hours(SPEED))),
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
        f"time: at {SPEED:g} TFLOP/s really reached, over all devices; without validation",
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
