"""Several position representations on the same text, as a study of one item: what
`shapeshift compare` runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from shapeshift.config_file import find_config, read_document
from shapeshift.lab.grid import Grid
from shapeshift.lab.properties import MEMORY_LENGTH
from shapeshift.papers.build import build
from shapeshift.papers.by_length import add_lengths
from shapeshift.papers.item import Content, Item, Paper
from shapeshift.papers.spec import ColumnSpec, ItemSpec, TableSpec
from shapeshift.papers.study import Study

ITEM = "comparison"
"""Name of the item, and of its folder."""

AXIS = "position"

BY_LENGTH = "bleu-by-length"
"""Name of the second table, and of the figure."""


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
    if any(cell.config.evaluation.length_buckets for cells in runs.values() for cell in cells):
        add_lengths(
            content,
            study,
            runs,
            BY_LENGTH,
            "BLEU by source length in subwords",
            tested=(grid, AXIS) if len(systems) > 1 else None,
        )
    return content
