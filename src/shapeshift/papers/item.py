"""What an item of a paper is: the runs that it needs, and what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from matplotlib.figure import Figure as Drawing

from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Finding
from shapeshift.papers.study import Axes, Study, fits


@dataclass(frozen=True)
class Figure:
    """A figure and what is to be said of it."""

    about: DocumentFigure
    drawing: Drawing


@dataclass
class Content:
    """What an item comes to.

    Attributes:
        tables: ours first, then the paper's; every figure's data stand in one of ours.
        figures: what shows them.
        findings: the claims of the paper that the item is about.
        values: name → seed → value, for claims of `rule: threshold` with this `metric`.
        lacks_text: whether text that it counts cannot be had; a note says why.
    """

    tables: list[DocumentTable] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    values: dict[str, dict[int, float]] = field(default_factory=dict)
    lacks_text: bool = False


@dataclass(frozen=True)
class Item:
    """One table or figure of a paper, or several that are made from the same runs.

    Attributes:
        title: what it is in the paper.
        grids: names of files in `configs/grids`, whose cells it needs.
        build: makes tables, figures and findings of what is finished.
        trained: whether it needs trained runs; else prepared data suffice.
        axes: the settings of its cells, all other cells being of no use to it.
    """

    title: str
    grids: tuple[str, ...]
    build: Callable[[Study], Content]
    trained: bool = True
    axes: Axes = field(default_factory=dict)

    def needs(self, cell: Cell) -> bool:
        """Return whether it is made from this cell, among others."""
        return cell.grid in self.grids and fits(cell.axes, cell.seed, self.axes)


@dataclass(frozen=True)
class Paper:
    """A paper and its items, in the paper's order.

    Attributes:
        title: for people.
        citation: authors, year, title, venue.
        items: name → item.
        aliases: other names → the item that holds this table or figure too.
    """

    title: str
    citation: str
    items: dict[str, Item]
    aliases: Mapping[str, str] = field(default_factory=dict)
