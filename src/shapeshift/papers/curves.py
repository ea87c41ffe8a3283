"""Validation perplexity against updates or training time, as a table and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from shapeshift.lab.analysis.curves import RunCurve, read_run
from shapeshift.lab.figures import Line, Panel, draw_lines
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import (
    DocumentFigure,
    DocumentTable,
    Entry,
    missing,
    number,
    words,
)
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.spec import CurvesSpec
from shapeshift.papers.study import Study

_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def add_curves(content: Content, study: Study, spec: CurvesSpec, item: str, grid: str) -> None:
    """Add a figure and a table for each setting of `spec.each`; in a figure against time, runs
    whose times are lost are left out.

    Args:
        content: gets them.
        study: with the runs.
        spec: what is shown.
        item: its name, with which theirs begin.
        grid: of the runs.
    """
    for setting in study.settings(grid, spec.each):
        cells = study.finished(grid, {spec.each: setting})
        runs = [(cell, read_run(study.run(cell).directory)) for cell in cells]
        name, title = f"{item}-{setting}", setting.capitalize()
        content.tables.append(
            DocumentTable(
                name=name,
                title=f"Validation perplexity during training, {title}",
                header=(spec.systems, "seed", "update", "time (s)", "perplexity"),
                rows=tuple(row for cell, curve in runs for row in _rows(cell, curve, spec.systems)),
                notes=("time: as the clock had it, whatever else the machine did",),
            )
        )
        if spec.against != "updates":
            runs = [(cell, curve) for cell, curve in runs if curve.elapsed_s is not None]
        if runs:
            content.figures.append(_figure(name, title, runs, spec))


def _rows(cell: Cell, curve: RunCurve, systems: str) -> list[tuple[Entry, ...]]:
    """Return a row for each validation of a run."""
    times = curve.elapsed_s or (None,) * len(curve.updates)
    return [
        (
            *words(cell.axes[systems], str(cell.seed)),
            Entry(text=f"{update:,}", value=update),
            missing() if elapsed_s is None else number(elapsed_s, ",.0f", [cell]),
            number(perplexity, ".3f", [cell]),
        )
        for update, elapsed_s, perplexity in zip(
            curve.updates, times, curve.perplexity, strict=True
        )
    ]


def _figure(
    name: str, title: str, runs: Sequence[tuple[Cell, RunCurve]], spec: CurvesSpec
) -> Figure:
    """Draw a line for each run; the runs of a system share their look."""
    unit, seconds = "", 1.0
    if spec.against != "updates":
        longest = max(curve.elapsed_s[-1] for _, curve in runs if curve.elapsed_s)
        unit, seconds = next((each for each in _UNITS if longest >= 2 * each[1]), _UNITS[-1])
    lines = [
        Line(
            cell.axes[spec.systems],
            [x / seconds for x in (curve.elapsed_s or ())] if unit else curve.updates,
            [[value] for value in curve.perplexity],
        )
        for cell, curve in runs
    ]
    ends: dict[str, list[float]] = {}
    for line in lines:
        ends.setdefault(line.name, []).append(line.values[-1][0])
    described = ", ".join(f"{system} {fmean(each):.2f}" for system, each in ends.items())
    about = DocumentFigure(
        name=name,
        title=f"Validation perplexity against {spec.against}, {title}",
        table=name,
        alt=f"Validation perplexity on {title} falls with {spec.against}, a line for each run; at"
        f" the end {described}.",
    )
    # It falls from thousands to a few: a linear axis would show the first updates and nothing else.
    panel = Panel(lines, "validation perplexity", log=True, min_span=1.2)
    x_title = f"{spec.against} ({unit})" if unit else spec.against
    return Figure(about, draw_lines([panel], x_title))
