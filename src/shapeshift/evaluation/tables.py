"""Scores of several systems side by side: for the terminal and for documents (Markdown)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shapeshift.evaluation.lengths import FEW_SEGMENTS
from shapeshift.evaluation.scores import Scores, check_comparable, length_columns

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


def score_table(systems: Mapping[str, Scores]) -> Table:
    """Lay out corpus scores: a row for each metric, a column for each system.

    Raises:
        ShapeshiftError: the systems cannot be compared, see `check_comparable`.
    """
    check_comparable(systems)
    signatures = {score.name: score.signature for s in systems.values() for score in s.scores}
    rows = [
        (name, *(_number(_value(scores, name)) for scores in systems.values()))
        for name in signatures
    ]
    notes = [f"{name}: {signature}" for name, signature in signatures.items()]
    return Table(("metric", *systems), rows, notes)


def length_table(systems: Mapping[str, Scores]) -> Table:
    """Lay out BLEU by source length: a row for each bucket and one for the whole corpus, a column
    for the number of segments and for each system.

    A value over fewer than `FEW_SEGMENTS` segments carries a dagger; an empty bucket a dash.

    Raises:
        ShapeshiftError: no BLEU by length, or the systems cannot be compared.
    """
    columns = length_columns(systems)
    buckets = next(iter(columns.values()))
    rows = [
        (
            bucket.label,
            str(bucket.num_segments),
            *(_number(column[row].bleu, marked=bucket.is_small) for column in columns.values()),
        )
        for row, bucket in enumerate(buckets)
    ]
    num_segments = next(iter(systems.values())).num_segments
    total = [_value(scores, "BLEU") for scores in systems.values()]
    rows.append(("all", str(num_segments), *map(_number, total)))
    signatures = {bucket.score.signature for bucket in buckets if bucket.score is not None}
    notes = [f"BLEU: {signature}" for signature in sorted(signatures)]
    if any(bucket.is_small for bucket in buckets):
        notes.append(f"{FEW_MARK} fewer than {FEW_SEGMENTS} segments")
    return Table(("source length", "segments", *systems), rows, notes)


def _value(scores: Scores, name: str) -> float | None:
    score = scores.find(name)
    return None if score is None else score.value


def _number(value: float | None, *, marked: bool = False) -> str:
    return NO_VALUE if value is None else f"{value:.2f}" + FEW_MARK * marked


def _markdown_row(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        f"{cell:<{width}}" if column == 0 else f"{cell:>{width}}"
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"| {' | '.join((first, *others))} |"
