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

Points = Mapping[tuple[str, int], Mapping[str, Sequence[Row]]]
"""Position and update → column → measurements."""


def checkpoints(study: Study) -> Content:
    """Make a table of what the measure `learning` found at the checkpoints of each position, and a
    figure with a panel for each column."""
    points = _points(study)
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


def _points(study: Study) -> Points:
    """Return what was measured of each position after each update, over seeds that are finished."""
    points: dict[tuple[str, int], dict[str, list[Row]]] = {}
    for row in study.results:
        if row.step is not None and (column := _column(row)):
            own = points.setdefault((row.axes["position"], row.step), {})
            own.setdefault(column, []).append(row)
    order = study.settings("position")
    return {at: points[at] for at in sorted(points, key=lambda at: (order.index(at[0]), at[1]))}


def _column(row: Row) -> str | None:
    if row.metric == "BLEU":
        return {None: _BLEU, "original order": _ORIGINAL, "swapped order": _SWAPPED}.get(row.bucket)
    if row.metric == "shift_similarity" and row.bucket and not row.bucket.startswith("layer 0"):
        return f"similarity to {row.bucket.rpartition(' ')[2]}"
    return None


def _by_seed(measured: Mapping[str, Sequence[Row]], column: str) -> dict[int, float]:
    """Return seed → the mean of its measurements, such as those of all layers."""
    if column == _DROP:
        original, swapped = _by_seed(measured, _ORIGINAL), _by_seed(measured, _SWAPPED)
        return {seed: original[seed] - swapped[seed] for seed in original.keys() & swapped.keys()}
    values: dict[int, list[float]] = {}
    for row in measured.get(column, ()):
        values.setdefault(row.seed, []).append(row.value)
    return {seed: fmean(own) for seed, own in values.items()}


def _entry(study: Study, measured: Mapping[str, Sequence[Row]], column: str) -> Entry:
    values = _by_seed(measured, column).values()
    if not values:
        return missing()
    columns = (_ORIGINAL, _SWAPPED) if column == _DROP else (column,)
    rows = [row for each in columns for row in measured[each]]
    show, value = ".3f" if column in _SIMILARITY else ".2f", fmean(values)
    return study.entry(rows).model_copy(update={"text": format(value, show), "value": value})


def _draw(points: Points) -> Figure:
    systems = {name: [at for at in points if at[0] == name] for name, _ in points}

    def values(at: tuple[str, int], column: str) -> list[float]:
        return [*_by_seed(points[at], column).values()]

    panels = [
        Panel(
            [
                Line(name, [update for _, update in own], [values(at, column) for at in own])
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
            f"{fmean(last):.2f} ({title})"
            for column, title in _PANELS.items()
            if (last := values(own[-1], column))
        )
        for name, own in systems.items()
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
