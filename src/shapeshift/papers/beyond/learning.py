"""How shift invariance is learned: similarity of states, the cost of a swapped order (Kiyono et al.
2021, Figure 6 and Table 1) and BLEU against updates, for APE and for SHAPE with several K."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from shapeshift.lab.analyses import SHIFTS
from shapeshift.lab.figures import Line, Panel, draw_lines
from shapeshift.lab.results import Row
from shapeshift.papers.beyond.baseline import BASELINE, bleu_by_position
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry
from shapeshift.papers.entries import missing, words
from shapeshift.papers.item import Content, Figure, Item
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import mark_note

GRID = "beyond-learning"

_BLEU = "validation BLEU"
_ORIGINAL, _SWAPPED, _DROP = "BLEU, original order", "swapped order", "drop"
_ALIKE = {most: f"similarity to {most}" for most in SHIFTS}

Rows = Mapping[str, Sequence[Row]]
"""Column → its measurements, one for each seed."""


def build(study: Study) -> Content:
    """Make the tables of all checkpoints and of the ends, and the figure."""
    points = _points(study)
    positions = study.settings(GRID, "position")
    content = Content(tables=[_ends(study, positions, points), _course(study, points)])
    if points:
        content.figures.append(_draw(positions, points))
    return content


def _points(study: Study) -> dict[tuple[str, int], Rows]:
    """Return (position, update) → what was measured there, over seeds that are finished."""
    found: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in study.results.rows:
        column = _column(row)
        if row.step is not None and column is not None:
            point = found.setdefault((row.axes["position"], row.step), {})
            point.setdefault(column, []).append(row)
    order = study.settings(GRID, "position")
    return dict(sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def _column(row: Row) -> str | None:
    if row.metric == "BLEU":
        return {None: _BLEU, "original order": _ORIGINAL, "swapped order": _SWAPPED}.get(row.bucket)
    if row.metric == "shift_similarity" and row.bucket and not row.bucket.startswith("layer 0"):
        return _ALIKE.get(int(row.bucket.rpartition(" ")[2]))
    return None


def _by_seed(rows: Sequence[Row]) -> dict[int, float]:
    """Return seed → the mean of its measurements, such as those of all layers."""
    values: dict[int, list[float]] = {}
    for row in rows:
        values.setdefault(row.seed, []).append(row.value)
    return {seed: fmean(each) for seed, each in values.items()}


def _drops(rows: Rows) -> dict[int, float]:
    original, swapped = (_by_seed(rows.get(name, ())) for name in (_ORIGINAL, _SWAPPED))
    return {seed: original[seed] - swapped[seed] for seed in original.keys() & swapped.keys()}


def _values(rows: Rows, column: str) -> list[float]:
    """Return the value of each seed."""
    values = _drops(rows) if column == _DROP else _by_seed(rows.get(column, ()))
    return [*values.values()]


def _value(rows: Rows, column: str) -> float:
    values = _values(rows, column)
    return fmean(values) if values else math.nan


_COLUMNS = (_BLEU, _ORIGINAL, _SWAPPED, _DROP, *_ALIKE.values())


def _fields(study: Study, rows: Rows, columns: Sequence[str]) -> tuple[Entry, ...]:
    fields = []
    for column in columns:
        value = _value(rows, column)
        if math.isnan(value):
            fields.append(missing())
            continue
        sources = [*rows[_ORIGINAL], *rows[_SWAPPED]] if column == _DROP else rows[column]
        show = ".3f" if column in _ALIKE.values() else ".2f"
        entry = study.entry(sources)
        fields.append(entry.model_copy(update={"text": format(value, show), "value": value}))
    return tuple(fields)


def _course(study: Study, points: Mapping[tuple[str, int], Rows]) -> DocumentTable:
    return DocumentTable(
        name="learning",
        title="Single checkpoints in the course of training, Interpolate",
        header=("position", "updates", *_COLUMNS),
        rows=tuple(
            (
                *words(position),
                Entry(text=f"{update:,}", value=update),
                *_fields(study, rows, _COLUMNS),
            )
            for (position, update), rows in points.items()
        ),
        notes=_NOTES,
    )


def _ends(
    study: Study,
    positions: Sequence[str],
    points: Mapping[tuple[str, int], Rows],
) -> DocumentTable:
    (bleu, _), last = bleu_by_position(study, GRID, {}), _last(points)
    columns = (_DROP, *_ALIKE.values())
    return DocumentTable(
        name="learned",
        title="After training, Interpolate",
        header=("position", "seeds", "test BLEU", *columns),
        rows=tuple(
            (
                *words(name, str(len(study.finished(GRID, {"position": name})))),
                bleu[name],
                *_fields(study, last.get(name, {}), columns),
            )
            for name in positions
        ),
        notes=("test BLEU: of the averaged model", mark_note(BASELINE), *_NOTES),
    )


_NOTES = (
    "BLEU in original and swapped order: of the first sentence of joined training pairs, in its"
    " place and moved to the end",
    "similarity to K: mean cosine of the encoder's states over its layers, under each two of the"
    " offsets 0, K/5, K/2 and K",
    "mean over seeds",
)


def _last(points: Mapping[tuple[str, int], Rows]) -> dict[str, Rows]:
    """Return position → its last point."""
    return {position: rows for (position, _), rows in points.items()}


def _draw(positions: Sequence[str], points: Mapping[tuple[str, int], Rows]) -> Figure:
    systems = [name for name in positions if any(name == own for own, _ in points)]
    titles = {
        _BLEU: _BLEU,
        _DROP: "BLEU lost by swapped order",
        **{_ALIKE[most]: f"similarity, offsets to {most}" for most in SHIFTS},
    }
    panels = [
        Panel(
            [
                Line(
                    name,
                    [update for own, update in points if own == name],
                    [_values(rows, column) for (own, _), rows in points.items() if own == name],
                )
                for name in systems
            ],
            title,
            min_span=0.05 if column in _ALIKE.values() else 1.0,
        )
        for column, title in titles.items()
    ]
    last = _last(points)
    described = "; ".join(
        f"{name} {_value(last[name], _BLEU):.1f}, {_value(last[name], _DROP):.1f} and"
        f" {_value(last[name], _ALIKE[SHIFTS[0]]):.2f}"
        for name in systems
    )
    about = DocumentFigure(
        name="learning",
        title="Learning to be shift invariant, Interpolate",
        table="learning",
        alt=f"Panels against updates, a line for each of {', '.join(systems)}. Validation"
        f" BLEU, BLEU lost by swapped order and similarity to {SHIFTS[0]} at the end: {described}.",
    )
    return Figure(about, draw_lines(panels, "updates"))


ITEM = Item("How shift invariance is learned, by K", (GRID,), build)
