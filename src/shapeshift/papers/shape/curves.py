"""Figure 8 and Figure 9: validation perplexity against updates and against training time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Literal

from shapeshift.lab.analysis.curves import RunCurve, read_run
from shapeshift.lab.figures import Line, Panel, draw_lines
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Figure, Item
from shapeshift.papers.shape.shared import GRID
from shapeshift.papers.study import Study

Against = Literal["updates", "training time"]
Runs = Sequence[tuple[Cell, RunCurve]]

_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def build(item: str, against: Against, study: Study) -> Content:
    """Make a figure and a table for each dataset; in the figure against time, runs whose times are
    lost are left out."""
    content = Content()
    for dataset in study.settings(GRID, "dataset"):
        cells = study.finished(GRID, {"dataset": dataset})
        runs = [(cell, read_run(study.run(cell).directory)) for cell in cells]
        name = f"{item}-{dataset}"
        content.tables.append(_table(name, dataset, runs))
        if against != "updates":
            runs = [(cell, curve) for cell, curve in runs if curve.elapsed_s is not None]
        if runs:
            content.figures.append(_figure(name, dataset, runs, against))
    return content


def _figure(name: str, dataset: str, runs: Runs, against: Against) -> Figure:
    """Draw a line for each run; the runs of a system share their look."""
    unit, seconds = "", 1.0
    if against != "updates":
        longest = max(curve.elapsed_s[-1] for _, curve in runs if curve.elapsed_s)
        unit, seconds = next((each for each in _UNITS if longest >= 2 * each[1]), _UNITS[-1])
    lines = [
        Line(
            cell.axes["position"],
            [x / seconds for x in (curve.elapsed_s or ())] if unit else curve.updates,
            [[value] for value in curve.perplexity],
        )
        for cell, curve in runs
    ]
    ends: dict[str, list[float]] = {}
    for line in lines:
        ends.setdefault(line.name, []).append(line.values[-1][0])
    about = DocumentFigure(
        name=name,
        title=f"Validation perplexity against {against}, {dataset.capitalize()}",
        table=name,
        alt=f"Validation perplexity on {dataset} falls with {against}, a line for each run; at the"
        f" end {', '.join(f'{system} {fmean(each):.2f}' for system, each in ends.items())}.",
    )
    # It falls from thousands to a few: a linear axis would show the first updates and nothing else.
    panel = Panel(lines, "validation perplexity", log=True, min_span=1.2)
    return Figure(about, draw_lines([panel], f"{against} ({unit})" if unit else against))


def _table(name: str, dataset: str, runs: Runs) -> DocumentTable:
    """Lay out all validations of some runs."""
    rows: list[tuple[Entry, ...]] = []
    for cell, curve in runs:
        times = curve.elapsed_s or (None,) * len(curve.updates)
        for update, elapsed_s, perplexity in zip(
            curve.updates, times, curve.perplexity, strict=True
        ):
            rows.append(
                (
                    *words(cell.axes["position"], str(cell.seed)),
                    Entry(text=f"{update:,}", value=update),
                    missing() if elapsed_s is None else number(elapsed_s, ",.0f", [cell]),
                    number(perplexity, ".3f", [cell]),
                )
            )
    return DocumentTable(
        name=name,
        title=f"Validation perplexity during training, {dataset.capitalize()}",
        header=("position", "seed", "update", "time (s)", "perplexity"),
        rows=tuple(rows),
        notes=("time: as the clock had it, whatever else the machine did",),
    )


FIGURE8 = Item(
    "Figure 8: validation perplexity against updates",
    (GRID,),
    partial(build, "figure8", "updates"),
)
FIGURE9 = Item(
    "Figure 9: validation perplexity against training time",
    (GRID,),
    partial(build, "figure9", "training time"),
)
