"""What an item of a paper is: the runs that it needs, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count

from matplotlib.figure import Figure as Drawing

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.grid import Cell, Grid
from shapeshift.papers.document import DocumentFigure, DocumentTable, Finding
from shapeshift.papers.study import Axes, Study, fits

RESERVED = "results"
"""No name of a table: `results.csv` has all measurements of an item."""


STUDIES = "studies"
"""Stands for a paper's name where the item is a study of one's own."""


@dataclass(frozen=True)
class Figure:
    """A figure and what is to be said of it."""

    about: DocumentFigure
    drawing: Drawing


@dataclass
class Content:
    """The results of an item.

    Attributes:
        tables: ours first, then the paper's; the data of each figure are in one of ours.
        figures: figures of our tables.
        findings: the claims of the paper that the item is about.
        values: name → seed → value, for claims of `rule: threshold` with this `metric`.
    """

    tables: list[DocumentTable] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    values: dict[str, dict[int, float]] = field(default_factory=dict)

    def add(self, part: Content) -> None:
        """Add a part of the item. Names are those of files: a table or figure whose name is taken
        gets a number."""
        renamed: dict[str, str] = {}
        for table in part.tables:
            renamed[table.name] = _free(table.name, [RESERVED, *(x.name for x in self.tables)])
            self.tables.append(table.model_copy(update={"name": renamed[table.name]}))
        for figure in part.figures:
            about = figure.about
            name = _free(about.name, [x.about.name for x in self.figures])
            names = {"name": name, "table": renamed.get(about.table, about.table)}
            self.figures.append(replace(figure, about=about.model_copy(update=names)))
        self.values |= part.values


def _free(name: str, taken: Sequence[str]) -> str:
    """Return a name that is not taken; some file systems do not distinguish `A` and `a`."""
    lower = {each.casefold() for each in taken}
    numbered = (f"{name}-{number}" for number in count(2))
    return next(each for each in chain([name], numbered) if each.casefold() not in lower)


@dataclass(frozen=True)
class Item:
    """One table or figure of a paper, or several that are made from the same runs.

    Attributes:
        title: what it is in the paper.
        grid: whose cells it is made of.
        build: makes tables, figures and findings of what is finished.
        trained: whether it needs trained runs; else prepared data suffice.
        axes: the settings of its cells, all other cells being of no use to it.
    """

    title: str
    grid: Grid
    build: Callable[[Study], Content]
    trained: bool = True
    axes: Axes = field(default_factory=dict)

    def needs(self, cell: Cell) -> bool:
        """Return whether it is made from this cell, among others."""
        return cell.grid == self.grid.name and fits(cell.axes, cell.seed, self.axes)

    def on(self, grid: Grid) -> Item:
        """Return the item as it is made from the runs of another grid.

        Raises:
            ShapeshiftError: the grid has other axes than the item's own.
        """
        needed, there = self.grid.config.axes, grid.config.axes
        if needed.keys() != there.keys():
            raise ShapeshiftError(
                f"has the axes {', '.join(there)}, but what is made of {self.grid.name} needs"
                f" {', '.join(sorted(needed))}",
                path=grid.path,
            )
        return replace(self, grid=grid)


@dataclass(frozen=True)
class Paper:
    """A paper and its items, in the paper's order.

    Attributes:
        name: of the folder of its items, such as `shape`.
        title: for people.
        citation: authors, year, title, venue.
        items: name → item.
        aliases: other names → the item that holds this table or figure too.
    """

    name: str
    title: str
    citation: str
    items: dict[str, Item]
    aliases: Mapping[str, str] = field(default_factory=dict)
