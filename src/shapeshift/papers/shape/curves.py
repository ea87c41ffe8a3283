"""Figure 8 and Figure 9: validation perplexity against updates and against training time."""

from __future__ import annotations

from functools import partial
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


def build(item: str, against: Against, study: Study) -> Content:
    """Make a figure and a table for each dataset."""
    content = Content()
    for dataset in study.settings(GRID, "dataset"):
        runs: Runs = {}
        for cell in study.finished(GRID, {"dataset": dataset}):
            curve = curves.read_run(study.run(cell).directory)
            runs.setdefault(cell.axes["position"], {})[cell.seed] = (cell, curve)
        name = f"{item}-{dataset}"
        content.tables.append(_table(name, dataset, runs))
        drawn = _timed(runs) if against == "time" else runs
        if drawn:
            content.figures.append(_draw(name, dataset, drawn, against))
    return content


def _timed(runs: Runs) -> Runs:
    """Leave out runs whose times are lost."""
    kept = {
        position: {seed: each for seed, each in own.items() if each[1].elapsed_s is not None}
        for position, own in runs.items()
    }
    return {position: own for position, own in kept.items() if own}


def _draw(name: str, dataset: str, runs: Runs, against: Against) -> Drawn:
    data = Curves(
        tuple(
            SystemCurves(system, tuple(run for _, run in each.values()))
            for system, each in runs.items()
        )
    )
    axis = "updates" if against == "updates" else "training time"
    about = DocumentFigure(
        name=name,
        title=f"Validation perplexity against {axis}, {dataset.capitalize()}",
        table=name,
        alt=f"Validation perplexity on {dataset} falls with {axis}, a line for each run; at the"
        f" end {_ends(runs)}.",
    )
    return Drawn(about, curves.plot(data, against=against))


def _table(name: str, dataset: str, runs: Runs) -> DocumentTable:
    """Lay out all validations of some runs."""
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


FIGURE8 = Item(
    "Figure 8: validation perplexity against updates",
    (GRID,),
    partial(build, "figure8", "updates"),
)
FIGURE9 = Item(
    "Figure 9: validation perplexity against training time",
    (GRID,),
    partial(build, "figure9", "time"),
)
