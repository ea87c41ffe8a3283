"""An item of a paper: the runs that it needs, and what is made of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Cell, Grid
from shapeshift.lab.measures import find_function
from shapeshift.papers.by_length import bleu_by_length
from shapeshift.papers.claims import judge_claims
from shapeshift.papers.curves import curves
from shapeshift.papers.document import Content
from shapeshift.papers.measurements import check_measurements
from shapeshift.papers.spec import ItemSpec
from shapeshift.papers.study import Study, fits
from shapeshift.papers.tables import TableBuilder, published_table

STUDIES = "studies"
"""Stands for a paper's name where the item is a study of one's own."""


@dataclass(frozen=True)
class Item:
    """One table or figure of a paper, or several that are made from the same runs.

    Attributes:
        name: of its tables that have no other.
        spec: what is made.
        grid: of its runs.
    """

    name: str
    spec: ItemSpec
    grid: Grid

    def needs(self, cell: Cell) -> bool:
        """Return whether it is made from this cell, among others."""
        return cell.grid == self.grid.name and fits(cell.axes, cell.seed, self.spec.only)

    def on(self, grid: Grid) -> Item:
        """Return the item as it is made from the runs of another grid.

        Raises:
            ShapeshiftError: the grid has other axes than the item's own, or lacks a measurement.
        """
        needed, there = self.grid.config.axes, grid.config.axes
        if needed.keys() != there.keys():
            raise ShapeshiftError(
                f"has the axes {', '.join(there)}, but what is made of {self.grid.name} needs"
                f" {', '.join(sorted(needed))}",
                path=grid.path,
            )
        check_measurements(self.spec, grid, grid.path)
        return replace(self, grid=grid)

    def build(self, study: Study) -> Content:
        """Make tables, figures and findings of the runs that are finished."""
        spec, content, published = self.spec, Content(), []
        for table in spec.tables:
            builder = TableBuilder(table, study, trained=spec.trained)
            content.add(Content([builder.table(table.name or self.name)]))
            if table.published:
                published.append(published_table(table, table.published, content.tables[-1]))
        for figure in spec.by_length:
            content.add(bleu_by_length(study, figure, figure.name or self.name))
        if spec.curves:
            content.add(curves(study, spec.curves, self.name))
        for each in spec.analyses:
            content.add(find_function(each, "analysis")(study))
        content.add(Content(published))
        content.findings += judge_claims(spec, study, content.values)
        return content


@dataclass(frozen=True)
class Paper:
    """A paper and its items, or those of them that are asked for, in the paper's order.

    Attributes:
        name: of the folder of its items, such as `shape`.
        title: for people.
        citation: authors, year, title, venue.
        items: name → item.
    """

    name: str
    title: str
    citation: str
    items: dict[str, Item]

    @property
    def grids(self) -> dict[str, Grid]:
        """The grids of all items by their names."""
        return {item.grid.name: item.grid for item in self.items.values()}
