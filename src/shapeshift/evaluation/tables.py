"""Scores as tables: for the terminal and for documents (Markdown)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shapeshift.evaluation.lengths import FEW_SEGMENTS
from shapeshift.evaluation.scores import Scores, length_columns

NO_VALUE = "–"
FEW_MARK = "†"


@dataclass(frozen=True)
class Table:
    """A table of text cells: the first column names the row, the others hold numbers.

    Attributes:
        header: one title a column.
        rows: each as long as `header`.
        notes: lines below the table.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """Return the table in Markdown, columns aligned in the source too, notes below."""
        cells = [[cell.replace("|", r"\|") for cell in row] for row in (self.header, *self.rows)]
        widths = [max(3, *map(len, column)) for column in zip(*cells, strict=True)]
        rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
        lines = [_markdown_row(row, widths) for row in (cells[0], rule, *cells[1:])]
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def score_table(name: str, scores: Scores) -> Table:
    """Lay out the corpus scores of a system: a row for each metric."""
    rows = [(score.name, _number(score.value)) for score in scores.scores]
    notes = [f"{score.name}: {score.signature}" for score in scores.scores]
    return Table(("metric", name), rows, notes)


def length_table(name: str, scores: Scores) -> Table:
    """Lay out BLEU by source length: a row for each bucket and one for the whole corpus, a column
    for the number of segments and for the system.

    A value over fewer than `FEW_SEGMENTS` segments carries a dagger; an empty bucket a dash.

    Raises:
        ShapeshiftError: no BLEU by length.
    """
    buckets = length_columns({name: scores})[name]
    rows = [
        (bucket.label, str(bucket.num_segments), _number(bucket.bleu, marked=bucket.is_small))
        for bucket in buckets
    ]
    total = scores.find("BLEU")
    rows.append(("all", str(scores.num_segments), _number(None if total is None else total.value)))
    signatures = {bucket.score.signature for bucket in buckets if bucket.score is not None}
    notes = [f"BLEU: {signature}" for signature in sorted(signatures)]
    if any(bucket.is_small for bucket in buckets):
        notes.append(f"{FEW_MARK} fewer than {FEW_SEGMENTS} segments")
    return Table(("source length", "segments", name), rows, notes)


def _number(value: float | None, *, marked: bool = False) -> str:
    return NO_VALUE if value is None else f"{value:.2f}" + FEW_MARK * marked


def _markdown_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        f"{cell:<{width}}" if column == 0 else f"{cell:>{width}}"
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join((first, *others))} |"
