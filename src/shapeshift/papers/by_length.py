"""BLEU by source length as a table and a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import stdev

from shapeshift.config import Config
from shapeshift.data.config import Extrapolate, LengthSlice
from shapeshift.evaluation.lengths import FEW_SEGMENTS
from shapeshift.evaluation.tables import FEW_MARK
from shapeshift.lab.analysis import length_bleu
from shapeshift.lab.analysis.length_bleu import Bounds, LengthBleu
from shapeshift.lab.figures import draw_lines
from shapeshift.lab.grid import Cell
from shapeshift.lab.significance import MARK
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.spec import Split
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import mark_note, significant

UNSEEN_MARK = "‡"

Runs = Mapping[str, Sequence[Cell]]
"""System → its finished cells, one for each seed."""


def trained_lengths(config: Config) -> Bounds | None:
    """Return the source lengths in training, where the dataset limits them."""
    match config.data.dataset:
        case Extrapolate(max_length=longest):
            return 1, longest + 1
        case LengthSlice(min_length=shortest, max_length=end):
            return shortest, end
    return None


def add_lengths(
    content: Content,
    study: Study,
    runs: Runs,
    name: str,
    title: str,
    *,
    splits: Sequence[Split] = ("test",),
    gain_over: str = "",
    tested: tuple[str, str] | None = None,
    notes: Sequence[str] = (),
) -> None:
    """Add BLEU by source length; nothing where no run is finished.

    Args:
        content: gets the table and the figure.
        study: with the runs.
        runs: all on the same data; systems without any are left out.
        name: of the table and the figure.
        title: of both.
        splits: whose sentences are taken together.
        gain_over: show BLEU minus that of this system.
        tested: grid and axis: mark the lengths at which a system differs from the first.
        notes: lines to stand below the table.
    """
    runs = {system: cells for system, cells in runs.items() if cells}
    if not runs or (gain_over and (gain_over not in runs or len(runs) == 1)):
        return
    config = next(iter(runs.values()))[0].config
    data = length_bleu.compute(
        {system: [study.scores(cell, *splits) for cell in cells] for system, cells in runs.items()},
        trained=trained_lengths(config),
    )
    marked = _marked(study, data, *tested) if tested else {}
    if gain_over:
        data = data.gains(gain_over)
    first = next(iter(runs))
    content.tables.append(
        DocumentTable(
            name=name,
            title=title,
            header=("source length", "segments", *data.systems),
            rows=_rows(data, runs, marked, sign="+" if gain_over else ""),
            notes=tuple(_notes(data, notes, first if marked else "")),
        )
    )
    shaded = "; lengths that training has not shown are shaded" if data.trained else ""
    about = DocumentFigure(
        name=name,
        title=title + shaded,
        table=name,
        alt=f"{title}: {_spoken(data)}{shaded}.",
    )
    y_title = f"BLEU gain over {gain_over}" if gain_over else "BLEU"
    panel = data.panel(y_title, zero=bool(gain_over))
    content.figures.append(Figure(about, draw_lines([panel], data.x_title)))


def _rows(
    data: LengthBleu, runs: Runs, marked: Mapping[str, set[int]], sign: str
) -> tuple[tuple[Entry, ...], ...]:
    cells = [cell for own in runs.values() for cell in own]
    rows = []
    for place, bucket in enumerate(data.buckets):
        fields = [number(bucket.num_segments, ",", cells)]
        for system, values in data.systems.items():
            mean = data.mean(system)[place]
            if math.isnan(mean):  # no sentence is so long
                fields.append(missing())
                continue
            seeds = values[place]
            text = f"{mean:{sign}.2f}" + (f" ± {stdev(seeds):.2f}" if len(seeds) > 1 else "")
            text += FEW_MARK * bucket.is_small + MARK * (place in marked.get(system, ()))
            field = number(mean, cells=runs[system])
            fields.append(field.model_copy(update={"text": text}))
        label = bucket.label + UNSEEN_MARK * data.is_unseen(bucket)
        rows.append((*words(label), *fields))
    return tuple(rows)


def _notes(data: LengthBleu, notes: Sequence[str], baseline: str) -> list[str]:
    found = [*notes]
    if any(map(data.is_unseen, data.buckets)):
        found.append(f"{UNSEEN_MARK} longer or shorter than anything in training")
    if any(bucket.is_small for bucket in data.buckets):
        found.append(f"{FEW_MARK} fewer than {FEW_SEGMENTS} segments")
    most = max(len(values) for own in data.systems.values() for values in own)
    found.append("mean ± standard deviation over seeds" if most > 1 else "one seed")
    if baseline:
        found.append(mark_note(baseline, "lengths of the system"))
    return found


def _marked(study: Study, data: LengthBleu, grid: str, axis: str) -> dict[str, set[int]]:
    """Return system → the places of the buckets in which it differs from the first one."""
    first, *others = data.systems
    return {
        system: significant(
            {
                place: study.compare(
                    grid, {axis: system}, {axis: first}, lengths=(bucket.low, bucket.high)
                )
                for place, bucket in enumerate(data.buckets)
                if bucket.num_segments >= FEW_SEGMENTS
            }
        )
        for system in others
    }


def _spoken(data: LengthBleu) -> str:
    """Return where each line begins and ends, for those who cannot see it."""
    parts = []
    for system in data.systems:
        points = [
            (bucket.label, mean)
            for bucket, mean in zip(data.buckets, data.mean(system), strict=True)
            if not math.isnan(mean)
        ]
        if points:
            (first, begin), (last, end) = points[0], points[-1]
            parts.append(f"{system} goes from {begin:.1f} at {first} to {end:.1f} at {last}")
    return "; ".join(parts)
