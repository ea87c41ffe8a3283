"""Validation perplexity against updates or training time, as a table and a figure.

Kiyono et al. 2021 (SHAPE), Figure 8 (updates) and Figure 9 (wall clock).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.figures import Line, Panel, draw_lines
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, number, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.spec import CurvesSpec
from shapeshift.papers.study import Study
from shapeshift.training.log import read_log

_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


def read_validations(directory: Path) -> list[dict[str, Any]]:
    """Return the lines of a run's log with a validation, in the order of training, each with its
    `perplexity`.

    Raises:
        ShapeshiftError: there are none, or the log is damaged.
    """
    path = directory / "log.jsonl"
    lines = [line for line in read_log(path) if "valid_loss" in line]
    if not lines:
        raise ShapeshiftError(
            "no validation is logged there yet; name the folder of a run that has validated",
            path=path,
        )
    return [{**line, "perplexity": math.exp(line["valid_loss"])} for line in lines]


Runs = Sequence[tuple[Cell, Sequence[dict[str, Any]]]]


def curves(study: Study, spec: CurvesSpec, item: str) -> Content:
    """Return a figure and a table for each setting of `spec.each`; in a figure against time, runs
    whose times are lost are left out."""
    content = Content()
    for setting in study.settings(spec.each):
        cells = study.finished({spec.each: setting})
        runs = [(cell, read_validations(study.run(cell).directory)) for cell in cells]
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
                        number(line.get("elapsed_s"), ",.0f", [cell]),
                        number(line["perplexity"], ".3f", [cell]),
                    )
                    for cell, lines in runs
                    for line in lines
                ),
                notes=("time: as the clock had it, whatever else the machine did",),
            )
        )
        if spec.against != "updates":
            runs = [(cell, own) for cell, own in runs if all("elapsed_s" in x for x in own)]
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
            [[x["perplexity"]] for x in own],
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
