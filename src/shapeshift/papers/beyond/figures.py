"""Figures of the master table, each with the table of what it shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from shapeshift.lab.analysis import length_bleu, tradeoff
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, styled
from shapeshift.lab.grid import Cell
from shapeshift.lab.significance import MARK
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Drawn
from shapeshift.papers.study import Study

_HEIGHT_IN = 4.0


def add_lengths(
    content: Content,
    study: Study,
    runs: Mapping[str, Sequence[Cell]],
    longest: int,
) -> None:
    """Add BLEU by source length, of all systems; nothing where no run is finished.

    Args:
        content: gets the figure and its table.
        study: with the runs.
        runs: system → its finished cells.
        longest: source in training, subwords.
    """
    if not runs:
        return
    scores = {name: [study.scores(cell) for cell in cells] for name, cells in runs.items()}
    data = length_bleu.compute(scores, trained=(1, longest + 1))
    content.tables.append(_length_table(data, runs, longest))
    content.figures.append(
        Drawn(
            DocumentFigure(
                name="lengths",
                title="BLEU by source length, Extrapolate",
                table="lengths",
                alt=f"Lines of {len(runs)} positions over source length; all fall beyond the"
                f" {longest} subwords of training. {_at_the_end(data)}",
            ),
            _draw_lengths(data),
        )
    )


def add_tradeoff(
    content: Content, quality: Mapping[str, Entry], speed: Mapping[str, Entry], baseline: str
) -> None:
    """Add quality beyond the training lengths against speed; nothing where no system has both.

    Args:
        content: gets the figure and its table.
        quality: system → BLEU beyond the training lengths, marked if it differs from the baseline.
        speed: system → of training.
        baseline: that both are compared with.
    """
    points = [
        tradeoff.Point(name, x, y, marked=quality[name].text.endswith(MARK))
        for name in quality
        if (x := speed[name].value) is not None and (y := quality[name].value) is not None
    ]
    if not points:
        return
    data = tradeoff.Tradeoff(
        tuple(points),
        x_title=f"training speed ({baseline} = 1)",
        y_title="BLEU beyond the training lengths",
        marked=f"differs from {baseline} significantly",
        baseline=baseline,
    )
    content.tables.append(
        DocumentTable(
            name="tradeoff",
            title="BLEU beyond the training lengths against training speed",
            header=("position", "training speed", "BLEU beyond"),
            rows=tuple(
                (*words(point.name), speed[point.name], quality[point.name]) for point in points
            ),
        )
    )
    best = max(points, key=lambda point: point.y)
    content.figures.append(
        Drawn(
            DocumentFigure(
                name="tradeoff",
                title="BLEU beyond the training lengths against training speed",
                table="tradeoff",
                alt=f"A point for each of {len(points)} positions; {best.name} is highest, at"
                f" {best.y:.1f} BLEU and {best.x:.2f} of {baseline}'s speed.",
            ),
            tradeoff.plot(data),
        )
    )


def _draw_lengths(data: length_bleu.LengthBleu) -> Figure:
    """Draw absolute BLEU alone, in one tall panel: a dozen lines need the room."""
    with styled():
        figure = Figure(figsize=(TEXT_WIDTH_IN, _HEIGHT_IN), layout="constrained")
        axes = figure.subplots()
        length_bleu.draw(axes, data, data.curves)
        axes.set_ylabel("BLEU")
        axes.set_xlabel(length_bleu.axis_title(data))
        figure.legend(
            *axes.get_legend_handles_labels(),
            loc="outside right center",
            frameon=False,
            handlelength=3,  # so that dashes can be distinguished
        )
    return figure


def _length_table(
    data: length_bleu.LengthBleu, runs: Mapping[str, Sequence[Cell]], longest: int
) -> DocumentTable:
    """Return a row for each system and a column for each range of lengths."""
    rows = []
    for curve in data.curves:
        values = (None if math.isnan(mean) else mean for mean in curve.mean)
        fields = [number(value, cells=runs[curve.name]) for value in values]
        rows.append((*words(curve.name), *fields))
    cells = [cell for own in runs.values() for cell in own]
    counts = [number(bucket.num_segments, ",.0f", cells) for bucket in data.buckets]
    return DocumentTable(
        name="lengths",
        title="BLEU by source length, Extrapolate",
        header=("position", *(bucket.label for bucket in data.buckets)),
        rows=((*words("segments"), *counts), *rows),
        notes=(
            f"training pairs have at most {longest} subwords on either side",
            "mean over seeds",
        ),
    )


def _at_the_end(data: length_bleu.LengthBleu) -> str:
    """Say who is ahead and who behind at the greatest length that has sentences."""
    filled = [row for row, bucket in enumerate(data.buckets) if bucket.num_segments]
    if not filled:
        return ""
    last = filled[-1]
    ranked = sorted(data.curves, key=lambda curve: curve.mean[last])
    return (
        f"At {data.buckets[last].label} subwords {ranked[-1].name} is ahead with"
        f" {ranked[-1].mean[last]:.1f}, {ranked[0].name} last with {ranked[0].mean[last]:.1f}."
    )
