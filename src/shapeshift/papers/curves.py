"""Validation perplexity against updates or training time, as a table and a figure.

Kiyono et al. 2021 (SHAPE), Figure 8 (updates) and Figure 9 (wall clock).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from shapeshift.lab.figures import Line, Panel, draw_lines
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, number, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.spec import CurvesSpec
from shapeshift.papers.study import Study
from shapeshift.training.log import read_log

_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))

Runs = Sequence[tuple[Cell, Sequence[dict[str, Any]]]]
"""Cells, each with the lines of its log that have a validation, in the order of training."""


def curves(study: Study, spec: CurvesSpec, item: str) -> Content:
    """Return a figure and a table for each setting of `spec.each`; their names begin with the
    item's."""
    content = Content()
    for setting in study.settings(spec.each):
        runs = []
        for cell in study.finished({spec.each: setting}):
            log = read_log(study.run(cell).directory / "log.jsonl")
            runs.append((cell, [line for line in log if "valid_loss" in line]))
        name, title = f"{item}-{setting}", setting.capitalize()
        content.tables.append(
            DocumentTable(
                name=name,
                title=f"Validation perplexity during training, {title}",
                header=(spec.systems, "seed", "update", "time (s)", "perplexity"),
                rows=tuple(
                    (
                        *words(cell.axes[spec.systems], str(cell.seed)),
                        Entry(text=f"{line['update']:,}", value=line["update"]),
                        number(line["elapsed_s"], ",.0f", [cell]),
                        number(math.exp(line["valid_loss"]), ".3f", [cell]),
                    )
                    for cell, lines in runs
                    for line in lines
                ),
                notes=("time: wall-clock time; other programs may have run",),
            )
        )
        if runs:
            content.figures.append(_figure(name, title, runs, spec))
    return content


def _figure(name: str, title: str, runs: Runs, spec: CurvesSpec) -> Figure:
    """Draw a line for each run; the runs of a system share their look."""
    unit, seconds = "", 1.0
    if spec.against != "updates":
        longest = max(own[-1]["elapsed_s"] for _, own in runs)
        unit, seconds = next((each for each in _UNITS if longest >= 2 * each[1]), _UNITS[-1])
    lines = [
        Line(
            cell.axes[spec.systems],
            [x["elapsed_s"] / seconds if unit else x["update"] for x in own],
            [[math.exp(x["valid_loss"])] for x in own],
        )
        for cell, own in runs
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
