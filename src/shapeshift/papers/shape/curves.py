"""Figure 8 and Figure 9: validation perplexity against updates and against training time."""

from __future__ import annotations

from statistics import fmean

from shapeshift.lab.analysis import curves
from shapeshift.lab.analysis.curves import Against, Curves, RunCurve, SystemCurves
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shape.shared import GRID
from shapeshift.papers.study import Study

Runs = dict[str, dict[int, tuple[Cell, RunCurve]]]
"""Position → seed → the run and its validations."""


def build_updates(study: Study) -> Content:
    """Make Figure 8: perplexity against updates."""
    return _build(study, "figure8", "updates")


def build_time(study: Study) -> Content:
    """Make Figure 9: perplexity against the clock."""
    return _build(study, "figure9", "time")


def read(study: Study, grid: str, dataset: str) -> Runs:
    """Return the runs of a dataset that are finished.

    Args:
        study: with the runs.
        grid: with the axes `dataset` and `position`.
        dataset: a setting of that axis.
    """
    found: Runs = {}
    for cell in study.finished(grid, {"dataset": dataset}):
        curve = curves.read_run(study.run(cell).directory)
        found.setdefault(cell.axes["position"], {})[cell.seed] = (cell, curve)
    return found


def draw(name: str, dataset: str, runs: Runs, against: Against, table: str) -> Drawn | None:
    """Draw perplexity against updates or time; `None` where no run has what it takes.

    Args:
        name: of the figure.
        dataset, runs: what is drawn.
        against: the axis.
        table: name of the table with the same data.
    """
    drawn = _timed(runs) if against == "time" else runs
    if not drawn:
        return None
    data = Curves(
        tuple(
            SystemCurves(system, tuple(run for _, run in each.values()))
            for system, each in drawn.items()
        )
    )
    axis = "updates" if against == "updates" else "training time"
    about = DocumentFigure(
        name=name,
        title=f"Validation perplexity against {axis}, {dataset.capitalize()}",
        table=table,
        alt=f"Validation perplexity on {dataset} falls with {axis}, a line for each run; at the"
        f" end {_ends(drawn)}.",
    )
    return Drawn(about, curves.plot(data, against=against))


def _build(study: Study, item: str, against: Against) -> Content:
    content = Content()
    for dataset in study.settings(GRID, "dataset"):
        runs = read(study, GRID, dataset)
        name = f"{item}-{dataset}"
        content.tables.append(table(name, dataset, runs))
        drawn = draw(name, dataset, runs, against, name)
        content.figures.extend([] if drawn is None else [drawn])
    return content


def _timed(runs: Runs) -> Runs:
    """Leave out runs whose times are lost."""
    kept = {
        position: {seed: each for seed, each in own.items() if each[1].elapsed_s is not None}
        for position, own in runs.items()
    }
    return {position: own for position, own in kept.items() if own}


def table(name: str, dataset: str, runs: Runs) -> DocumentTable:
    """Return all validations of some runs.

    Args:
        name: of the table.
        dataset, runs: what it shows.
    """
    rows: list[tuple[Entry, ...]] = []
    for position, own in runs.items():
        for seed, (cell, run) in own.items():
            times = run.elapsed_s or (None,) * len(run.updates)
            for update, elapsed_s, perplexity in zip(
                run.updates, times, run.perplexity, strict=True
            ):
                rows.append(
                    (
                        *words(position, str(seed)),
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


def _ends(runs: Runs) -> str:
    return ", ".join(
        f"{position} {fmean(run.perplexity[-1] for _, run in own.values()):.2f}"
        for position, own in runs.items()
    )


FIGURE8 = Item("Figure 8: validation perplexity against updates", (GRID,), build_updates)
FIGURE9 = Item("Figure 9: validation perplexity against training time", (GRID,), build_time)
