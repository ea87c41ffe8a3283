"""Makes tables, figures and findings of an item from its spec and its finished runs."""

from __future__ import annotations

from functools import partial
from statistics import fmean

from shapeshift.lab.figures import Line, Panel, bars_note, draw_lines
from shapeshift.lab.grid import Grid
from shapeshift.lab.measures import find_function
from shapeshift.papers.by_length import bleu_by_length
from shapeshift.papers.claims import judge_claims
from shapeshift.papers.curves import curves
from shapeshift.papers.document import DocumentFigure, DocumentTable
from shapeshift.papers.item import Content, Figure, Item
from shapeshift.papers.spec import ItemSpec, PlotSpec
from shapeshift.papers.study import Study
from shapeshift.papers.tables import TableBuilder, published_table

_MIN_SPAN = 2.0
"""Of the vertical axis of a plot, BLEU: less is within the noise of most test sets."""


def item_of(spec: ItemSpec, name: str, grid: Grid) -> Item:
    """Return an item that is made as its spec says, of the runs of a grid."""
    return Item(spec.title, grid, partial(build, spec, name), spec.trained, spec.only)


def build(spec: ItemSpec, name: str, study: Study) -> Content:
    """Make the content of an item."""
    content, published = Content(), []
    for table in spec.tables:
        builder = TableBuilder(table, study, trained=spec.trained)
        part = Content([builder.table(table.name or name)])
        if table.plot:
            part.figures += _plot(builder, table.plot, part.tables[0], study)
        content.add(part)
        if table.published:
            published.append(published_table(table, table.published, content.tables[-1]))
    for figure in spec.by_length:
        content.add(bleu_by_length(study, figure, figure.name or name))
    if spec.curves:
        content.add(curves(study, spec.curves, name))
    for each in spec.analyses:
        content.add(find_function(each, "analysis")(study))
    content.add(Content(published))
    content.findings += judge_claims(spec, study, content.values)
    return content


def _plot(
    builder: TableBuilder, plot: PlotSpec, table: DocumentTable, study: Study
) -> list[Figure]:
    """Draw a column over an axis, a line for each setting of `across`."""
    settings = study.settings(plot.x)
    column = builder.spec.columns[plot.y]
    lines = []
    for group in builder.groups():
        values = [
            [row.value for row in builder.rows(group | {plot.x: x}, column)] for x in settings
        ]
        if any(values):
            name = " ".join(group.values()) or plot.y
            lines.append(Line(name, range(len(settings)), values))
    if not lines:
        return []
    described = "; ".join(
        f"{line.name}: "
        + ", ".join(
            f"{fmean(values):.1f} at {x}"
            for x, values in zip(settings, line.values, strict=True)
            if values
        )
        for line in lines
    )
    about = DocumentFigure(
        name=f"{table.name}-plot",
        title=plot.title + bars_note(lines),
        table=table.name,
        alt=f"{plot.y} over {plot.x}. {described}.",
    )
    panel = Panel(lines, plot.y, places=settings, min_span=_MIN_SPAN)
    return [Figure(about, draw_lines([panel], plot.x_title or plot.x))]
