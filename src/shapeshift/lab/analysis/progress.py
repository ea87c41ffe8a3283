"""Measures of several systems during training: a panel for each measure."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from shapeshift.lab.analysis.document import Measured
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, add_legend, looks, styled

_PANEL_HEIGHT_IN = 1.9
_LEGEND_IN = 0.3
_COLUMNS = 2


@dataclass(frozen=True)
class Panel:
    """One measure.

    Attributes:
        title: of the measure, with its unit.
        lines: for each system a value at each update, NaN where nothing was measured.
    """

    title: str
    lines: tuple[tuple[Measured, ...], ...]


@dataclass(frozen=True)
class Progress:
    """The data of the figure.

    Attributes:
        systems: their names.
        updates: at which was measured, rising.
        panels: read from left to right.
    """

    systems: tuple[str, ...]
    updates: tuple[int, ...]
    panels: tuple[Panel, ...]


def plot(data: Progress) -> Figure:
    """Draw it; a system has the same look in all panels. Save it with `style.save`."""
    with styled():
        num_rows = -(-len(data.panels) // _COLUMNS)
        figure = Figure(
            figsize=(TEXT_WIDTH_IN, num_rows * _PANEL_HEIGHT_IN + _LEGEND_IN), layout="constrained"
        )
        grid = figure.subplots(num_rows, _COLUMNS, sharex=True, squeeze=False)
        styles = looks(data.systems)
        for panel, axes in zip(data.panels, grid.flat, strict=False):
            axes.grid(axis="y")
            for name, values, style in zip(data.systems, panel.lines, styles, strict=True):
                axes.plot(
                    data.updates,
                    values,
                    **style.line,
                    markersize=4,
                    label=name,
                )
            axes.set_title(panel.title)
            axes.set_xlim(0)
            axes.margins(y=0.1)
            axes.xaxis.set_major_locator(MaxNLocator(4))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        for axes in grid.flat[len(data.panels) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel("updates")
        add_legend(figure, grid.flat[0])
    return figure
