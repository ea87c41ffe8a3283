"""Scores as tables: for the terminal and for documents (Markdown)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shapeshift.evaluation.scores import FEW_SEGMENTS, Scores, up_to_longest

NO_VALUE = "–"
FEW_MARK = "†"
NO_BLEU = f"{NO_VALUE} no BLEU: no reference has four words"
"""Note on a bucket with segments and without a score."""


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
        lines = []
        for first, *others in (cells[0], rule, *cells[1:]):
            rest = (f"{x:>{width}}" for x, width in zip(others, widths[1:], strict=True))
            lines.append(f"| {' | '.join((f'{first:<{widths[0]}}', *rest))} |")
        notes = [f"- {note}" for note in self.notes]
        return "\n".join([*lines, "", *notes]).rstrip() + "\n"


def score_tables(name: str, scores: Scores) -> list[Table]:
    """Lay out the scores of a system: a row for each metric; where there is BLEU by source length,
    a second table with a row for each bucket and one for the whole corpus.

    A value over fewer than `FEW_SEGMENTS` segments carries a dagger; a bucket without a score a
    dash, except for those longer than every segment, which are left out. All notes stand below the
    last table.
    """
    rows = [(score.name, f"{score.value:.2f}") for score in scores.scores]
    tables = [Table(("metric", name), rows)]
    notes = [f"{score.name}: {score.signature}" for score in scores.scores]
    if scores.by_length is not None:
        lengths = []
        for bucket in up_to_longest(scores.by_length):
            bleu = NO_VALUE if bucket.bleu is None else f"{bucket.bleu:.2f}"
            count = str(bucket.num_segments)
            lengths.append((bucket.label, count, bleu + FEW_MARK * bucket.is_small))
        lengths.append(("all", str(scores.num_segments), dict(rows).get("BLEU", NO_VALUE)))
        tables.append(Table(("source length", "segments", name), lengths))
        signatures = {x.score.signature for x in scores.by_length if x.score is not None}
        notes += [f"BLEU: {signature}" for signature in sorted(signatures)]
        if any(bucket.num_segments > 0 and bucket.score is None for bucket in scores.by_length):
            notes.append(NO_BLEU)
        if any(bucket.is_small for bucket in scores.by_length):
            notes.append(f"{FEW_MARK} fewer than {FEW_SEGMENTS} segments")
    tables[-1] = replace(tables[-1], notes=[*dict.fromkeys(notes)])
    return tables
