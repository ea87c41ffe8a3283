"""Validation perplexity against updates or training time, as a table and a figure.

Kiyono et al. 2021 (SHAPE), Figure 8 (updates) and Figure 9 (wall clock).
"""

from __future__ import annotations

import math

from shapeshift.lab.figures import Line, Panel, draw_lines
from shapeshift.papers.document import Content, DocumentTable, number, words
from shapeshift.papers.spec import CurvesSpec
from shapeshift.papers.study import Study
from shapeshift.training.log import read_log


def curves(study: Study, spec: CurvesSpec, item: str) -> Content:
    """Return a table and a figure for each setting of `spec.each`, with a line for each run; their
    names begin with the item's."""
    content = Content()
    key, unit = ("update", 1) if spec.against == "updates" else ("elapsed_s", 60)
    for setting in study.settings(spec.each):
        rows, lines = [], []
        for cell in study.finished({spec.each: setting}):
            system = cell.axes[spec.systems]
            log = read_log(study.run(cell).directory / "log.jsonl")
            log = [line for line in log if "valid_loss" in line]
            perplexities = [math.exp(line["valid_loss"]) for line in log]
            lines.append(Line(system, [x[key] / unit for x in log], [[x] for x in perplexities]))
            rows += [
                (
                    *words(system, str(cell.seed)),
                    number(line["update"], ","),
                    number(line["elapsed_s"], ",.0f"),
                    number(perplexity, ".3f"),
                )
                for line, perplexity in zip(log, perplexities, strict=True)
            ]
        # It falls from thousands to a few: a linear axis would show the first updates alone.
        panel = Panel(lines, "validation perplexity", log=True, min_span=1.2)
        title = f"Validation perplexity against {spec.against}, {setting.capitalize()}"
        table = DocumentTable(
            name=f"{item}-{setting}",
            title=title,
            header=(spec.systems, "seed", "update", "time (s)", "perplexity"),
            rows=tuple(rows),
            notes=("time: wall-clock time; other programs may have run",),
            figure=title if lines else "",
            drawing=draw_lines([panel], spec.against + " (minutes)" * (unit > 1))
            if lines
            else None,
        )
        content.tables.append(table)
    return content
