"""How shift invariance is learned: similarity of states, the cost of a swapped order (Kiyono et al.
2021, Figure 6 and Table 1) and BLEU against updates, for APE and for SHAPE with several K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from shapeshift.lab.analyses import SHIFTS
from shapeshift.lab.figures import Line, Panel, draw_lines
from shapeshift.lab.results import Row
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, missing, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.study import Study

_BLEU = "validation BLEU"
_ORIGINAL, _SWAPPED, _DROP = "BLEU, original order", "swapped order", "drop"
_SIMILARITY = {most: f"similarity to {most}" for most in SHIFTS}
_COLUMNS = (_BLEU, _ORIGINAL, _SWAPPED, _DROP, *_SIMILARITY.values())

_PANELS = {
    _BLEU: _BLEU,
    _DROP: "BLEU lost by swapped order",
    **{_SIMILARITY[most]: f"similarity, offsets to {most}" for most in SHIFTS},
}
"""Column → title of its panel."""

Point = tuple[str, int]
"""A position and an update."""

Rows = Mapping[str, Sequence[Row]]
"""Column → its measurements, one for each seed and layer."""


def checkpoints(study: Study, grid: str) -> Content:
    """Make a table of what the measure `learning` found at the checkpoints of each position, and a
    figure with a panel for each column."""
    points = _points(study, grid)
    table = DocumentTable(
        name="learning",
        title="Single checkpoints in the course of training, Interpolate",
        header=("position", "updates", *_COLUMNS),
        rows=tuple(
            (
                *words(position),
                Entry(text=f"{update:,}", value=update),
                *(_entry(study, rows, column) for column in _COLUMNS),
            )
            for (position, update), rows in points.items()
        ),
        notes=(
            "BLEU in original and swapped order: of the first sentence of joined training pairs, in"
            " its place and moved to the end",
            "similarity to K: mean cosine of the encoder's states over its layers, under each two"
            " of the offsets 0, K/5, K/2 and K",
            "mean over seeds",
        ),
    )
    return Content([table], [_draw(points)] if points else [])


def _points(study: Study, grid: str) -> dict[Point, Rows]:
    """Return what was measured at each point, over seeds that are finished."""
    found: dict[Point, dict[str, list[Row]]] = {}
    for row in study.results:
        column = _column(row) if row.grid == grid and row.step is not None else None
        if row.step is not None and column is not None:
            point = found.setdefault((row.axes["position"], row.step), {})
            point.setdefault(column, []).append(row)
    order = study.settings(grid, "position")
    return dict(sorted(found.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def _column(row: Row) -> str | None:
    if row.metric == "BLEU":
        return {None: _BLEU, "original order": _ORIGINAL, "swapped order": _SWAPPED}.get(row.bucket)
    if row.metric == "shift_similarity" and row.bucket and not row.bucket.startswith("layer 0"):
        return _SIMILARITY.get(int(row.bucket.rpartition(" ")[2]))
    return None


def _values(rows: Rows, column: str) -> dict[int, float]:
    """Return seed → the mean of a column's measurements, such as those of all layers."""
    if column == _DROP:
        original, swapped = _values(rows, _ORIGINAL), _values(rows, _SWAPPED)
        return {seed: original[seed] - swapped[seed] for seed in original.keys() & swapped.keys()}
    values: dict[int, list[float]] = {}
    for row in rows.get(column, ()):
        values.setdefault(row.seed, []).append(row.value)
    return {seed: fmean(each) for seed, each in values.items()}


def _entry(study: Study, rows: Rows, column: str) -> Entry:
    values = _values(rows, column)
    if not values:
        return missing()
    sources = [*rows[_ORIGINAL], *rows[_SWAPPED]] if column == _DROP else rows[column]
    show, value = ".3f" if column in _SIMILARITY.values() else ".2f", fmean(values.values())
    return study.entry(sources).model_copy(update={"text": format(value, show), "value": value})


def _draw(points: Mapping[Point, Rows]) -> Figure:
    systems = list(dict.fromkeys(name for name, _ in points))
    panels = [
        Panel(
            [
                Line(
                    name,
                    [update for own, update in points if own == name],
                    [
                        [*_values(rows, column).values()]
                        for (own, _), rows in points.items()
                        if own == name
                    ],
                )
                for name in systems
            ],
            title,
            min_span=0.05 if column in _SIMILARITY.values() else 1.0,
        )
        for column, title in _PANELS.items()
    ]
    ends = {name: rows for (name, _), rows in points.items()}  # the last of each
    described = "; ".join(
        f"{name} "
        + ", ".join(
            f"{fmean(values.values()):.2f} ({title})"
            for column, title in _PANELS.items()
            if (values := _values(rows, column))
        )
        for name, rows in ends.items()
    )
    about = DocumentFigure(
        name="learning",
        title="Learning to be shift invariant, Interpolate",
        table="learning",
        alt=f"Panels against updates, a line for each of {', '.join(systems)}. At the end:"
        f" {described}.",
    )
    return Figure(about, draw_lines(panels, "updates"))
