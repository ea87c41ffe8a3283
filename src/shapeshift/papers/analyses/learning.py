"""How shift invariance is learned: similarity of states, the cost of a swapped order (Kiyono et al.
2021, Figure 6 and Table 1) and BLEU against updates, for APE and for SHAPE with several K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from shapeshift.lab.analysis.learning import SHIFTS
from shapeshift.lab.figures import Line, Panel, bars_note, draw_lines
from shapeshift.lab.results import Row
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, missing, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.study import Study

_BLEU, _DROP = "validation BLEU", "drop"
_ORIGINAL, _SWAPPED = "BLEU, original order", "swapped order"
_SIMILARITY = {f"similarity to {most}": f"similarity, offsets to {most}" for most in SHIFTS}
_PANELS = {_BLEU: _BLEU, _DROP: "BLEU lost by swapped order", **_SIMILARITY}
"""Column → title of its panel."""

Measured = Mapping[str, tuple[Sequence[Row], Sequence[float]]]
"""Column → its measurements, and the value of each seed."""


def checkpoints(study: Study, grid: str) -> Content:
    """Make a table of what the measure `learning` found at the checkpoints of each position, and a
    figure with a panel for each column."""
    points = _points(study, grid)
    columns = (_BLEU, _ORIGINAL, _SWAPPED, _DROP, *_SIMILARITY)
    table = DocumentTable(
        name="learning",
        title="Single checkpoints in the course of training, Interpolate",
        header=("position", "updates", *columns),
        rows=tuple(
            (
                *words(position),
                Entry(text=f"{update:,}", value=update),
                *(_entry(study, measured, column) for column in columns),
            )
            for (position, update), measured in points.items()
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


def _points(study: Study, grid: str) -> dict[tuple[str, int], Measured]:
    """Return what was measured of each position after each update, over seeds that are finished."""
    rows: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in study.results:
        if row.grid == grid and row.step is not None and (column := _column(row)):
            own = rows.setdefault((row.axes["position"], row.step), {})
            own.setdefault(column, []).append(row)
    order = study.settings(grid, "position")
    ordered = sorted(rows, key=lambda point: (order.index(point[0]), point[1]))
    return {point: _measured(rows[point]) for point in ordered}


def _column(row: Row) -> str | None:
    if row.metric == "BLEU":
        return {None: _BLEU, "original order": _ORIGINAL, "swapped order": _SWAPPED}.get(row.bucket)
    if row.metric == "shift_similarity" and row.bucket and not row.bucket.startswith("layer 0"):
        return f"similarity to {row.bucket.rpartition(' ')[2]}"
    return None


def _measured(columns: Mapping[str, Sequence[Row]]) -> Measured:
    """Return the measurements with the mean of each seed's, such as those of all layers."""
    means = {
        column: {
            seed: fmean(row.value for row in rows if row.seed == seed)
            for seed in dict.fromkeys(row.seed for row in rows)
        }
        for column, rows in columns.items()
    }
    measured = {column: (columns[column], [*own.values()]) for column, own in means.items()}
    if _ORIGINAL in means and _SWAPPED in means:
        original, swapped = means[_ORIGINAL], means[_SWAPPED]
        drops = [original[seed] - swapped[seed] for seed in original.keys() & swapped.keys()]
        measured[_DROP] = [*columns[_ORIGINAL], *columns[_SWAPPED]], drops
    return measured


def _entry(study: Study, measured: Measured, column: str) -> Entry:
    rows, values = measured.get(column, ((), ()))
    if not values:
        return missing()
    show, value = ".3f" if column in _SIMILARITY else ".2f", fmean(values)
    return study.entry(rows).model_copy(update={"text": format(value, show), "value": value})


def _draw(points: Mapping[tuple[str, int], Measured]) -> Figure:
    systems: dict[str, dict[int, Measured]] = {}
    for (name, update), measured in points.items():
        systems.setdefault(name, {})[update] = measured
    panels = [
        Panel(
            [
                Line(name, [*own], [each.get(column, ((), ()))[1] for each in own.values()])
                for name, own in systems.items()
            ],
            title,
            min_span=0.05 if column in _SIMILARITY else 1.0,
        )
        for column, title in _PANELS.items()
    ]
    described = "; ".join(
        f"{name} "
        + ", ".join(
            f"{fmean(last[column][1]):.2f} ({title})"
            for column, title in _PANELS.items()
            if column in last and last[column][1]
        )
        for name, last in ((name, [*own.values()][-1]) for name, own in systems.items())
    )
    about = DocumentFigure(
        name="learning",
        title="Learning to be shift invariant, Interpolate"
        + bars_note(line for panel in panels for line in panel.lines),
        table="learning",
        alt=f"Panels against updates, a line for each of {', '.join(systems)}. At the end:"
        f" {described}.",
    )
    return Figure(about, draw_lines(panels, "updates"))
