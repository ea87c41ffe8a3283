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
            perplexities = [[math.exp(line["valid_loss"])] for line in log]
            lines.append(Line(system, [line[key] / unit for line in log], perplexities))
            for line, [perplexity] in zip(log, perplexities, strict=True):
                update, time = number(line["update"], ","), number(line["elapsed_s"], ",.0f")
                own = words(system, str(cell.seed))
                rows.append((*own, update, time, number(perplexity, ".3f")))
        # It falls from thousands to a few: a linear axis would show the first updates alone.
        panel = Panel(lines, "validation perplexity", log=True, min_span=1.2)
        title = f"Validation perplexity against {spec.against}, {setting.capitalize()}"
        x_title = spec.against + " (minutes)" * (unit > 1)
        table = DocumentTable(
            name=f"{item}-{setting}",
            title=title,
            header=(spec.systems, "seed", "update", "time (s)", "perplexity"),
            rows=tuple(rows),
            notes=("time: wall-clock time; other programs may have run",),
            figure=title if lines else "",
            drawing=draw_lines([panel], x_title) if lines else None,
        )
        content.tables.append(table)
    return content
