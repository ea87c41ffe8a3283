"""Several position representations on the same text, as a study of one item: what
`shapeshift compare` runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from shapeshift.config import Config
from shapeshift.config_file import find_config, read_document
from shapeshift.data.config import Extrapolate, LengthSlice
from shapeshift.evaluation.lengths import FEW_SEGMENTS
from shapeshift.lab.analysis import length_bleu
from shapeshift.lab.grid import Cell, Grid
from shapeshift.lab.properties import MEMORY_LENGTH
from shapeshift.lab.significance import MARK
from shapeshift.papers.build import build
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Drawn, Item, Paper
from shapeshift.papers.spec import ColumnSpec, ItemSpec, TableSpec
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import mark_note, significant

ITEM = "comparison"
"""Name of the item, and of its folder."""

AXIS = "position"

BY_LENGTH = "bleu-by-length"
"""Name of the second table, and of the figure."""

SHADED = "; lengths that training has not shown are shaded"


def comparison(
    config: str | Path,
    systems: Mapping[str, Sequence[str]],
    num_seeds: int,
) -> tuple[Paper, Grid]:
    """Return what compares the systems, as a paper of one item, and its grid.

    Args:
        config: a configuration file, or the name of a shipped one.
        systems: name → its settings; the first is the one that the others are tested against.
        num_seeds: of training: 1, 2, ….

    Raises:
        ShapeshiftError: for a file or settings that are wrong.
    """
    path = find_config(config)
    title = f"{path.stem}: {', '.join(systems)}"
    grid = Grid(
        path,
        {
            "title": title,
            "axes": {AXIS: {name: [*settings] for name, settings in systems.items()}},
            "scales": {path.stem: {}},
            "seeds": [*range(1, num_seeds + 1)],
            "base": read_document(path),
            "steps": ["score-test", "speed", "step-memory"],
        },
    )
    item = Item(title, (grid.name,), partial(_build, grid.name, [*systems]))
    citation = f"several position representations, {path}"
    return Paper(title=title, citation=citation, items={ITEM: item}), grid


def _build(grid: str, systems: Sequence[str], study: Study) -> Content:
    """Make the table over the whole test text, and table and figure by source length."""
    first = systems[0]
    columns = {
        "BLEU": ColumnSpec(split="test"),
        f"over {first}": ColumnSpec(gain_of="BLEU"),
        "chrF": ColumnSpec(metric="chrF2", split="test"),
        "speed": ColumnSpec(metric="speed"),
        "memory": ColumnSpec(metric="step_memory", bucket=f"length {MEMORY_LENGTH}"),
        "parameters": ColumnSpec(metric="parameters", show="whole number"),
    }
    table = TableSpec(
        title="test text",
        rows=(AXIS,),
        columns=columns,
        baseline={AXIS: first} if len(systems) > 1 else {},
        notes=(
            "speed: of training, over that of ape on the same batches",
            f"memory: of a training step on {MEMORY_LENGTH} subwords a sentence, over that of ape",
        ),
    )
    content = build(ItemSpec(title="", grid=grid, tables=(table,)), ITEM, grid, study)
    runs = {name: study.finished(grid, {AXIS: name}) for name in systems}
    runs = {name: cells for name, cells in runs.items() if cells}
    if not runs:
        return content
    config = next(iter(runs.values()))[0].config
    if not config.evaluation.length_buckets:
        return content
    data = length_bleu.compute(
        {name: [study.scores(cell) for cell in cells] for name, cells in runs.items()},
        baseline=first if first in runs and len(runs) > 1 else None,
        trained=_trained(config),
    )
    content.tables.append(_by_length(grid, data, runs, study))
    about = DocumentFigure(
        name=BY_LENGTH,
        title="BLEU by source length in subwords" + (SHADED if data.trained else ""),
        table=BY_LENGTH,
        alt="BLEU by source length, a line for each system; the numbers stand in the table.",
    )
    content.figures.append(Drawn(about, length_bleu.plot(data)))
    return content


def _by_length(
    grid: str, data: length_bleu.LengthBleu, runs: Mapping[str, Sequence[Cell]], study: Study
) -> DocumentTable:
    """Lay out BLEU by source length, and test each range against the first system."""
    marked = {
        curve.name: _significant(grid, curve.name, data, study)
        for curve in data.curves
        if data.baseline not in (None, curve.name)
    }
    laid_out = length_bleu.tabulate(data)
    rows = []
    for place, texts in enumerate(laid_out.rows):
        fields: list[Entry] = [*words(texts[0]), Entry(text=texts[1])]
        for curve, text in zip(data.curves, texts[2:], strict=True):
            mark = MARK if place in marked.get(curve.name, ()) else ""
            mean = curve.mean[place]
            if math.isnan(mean):  # no sentence is so long
                fields.append(missing())
                continue
            value = number(mean, cells=runs[curve.name])
            fields.append(value.model_copy(update={"text": text + mark}))
        rows.append(tuple(fields))
    notes = [*laid_out.notes]
    if marked:
        notes.append(mark_note(str(data.baseline), "lengths of the system"))
    return DocumentTable(
        name=BY_LENGTH,
        title="BLEU by source length in subwords",
        header=tuple(laid_out.header),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _significant(grid: str, system: str, data: length_bleu.LengthBleu, study: Study) -> set[int]:
    """Return the places of the buckets in which a system differs from the baseline."""
    tests = {
        place: study.compare(
            grid, {AXIS: system}, {AXIS: str(data.baseline)}, lengths=(bucket.low, bucket.high)
        )
        for place, bucket in enumerate(data.buckets)
        if bucket.num_segments >= FEW_SEGMENTS
    }
    return significant(tests)


def _trained(config: Config) -> tuple[int, int | None] | None:
    """Return the half-open range of source lengths in training, where the dataset limits it."""
    match config.data.dataset:
        case Extrapolate(max_length=longest):
            return (1, longest + 1)
        case LengthSlice(min_length=shortest, max_length=end):
            return (shortest, end)
    return None
