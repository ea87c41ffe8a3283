"""BLEU by source length of many systems, in several panels one below the other."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from shapeshift.analysis import length_bleu
from shapeshift.analysis.length_bleu import LengthBleu
from shapeshift.analysis.style import TEXT_WIDTH_IN, styled

_PANEL_HEIGHT_IN = 2.3


def draw_panels(panels: Mapping[str, LengthBleu]) -> Figure:
    """Draw a panel for each title, as wide as the text: a dozen lines need the room.

    Args:
        panels: title → its data; at least one, all with the same systems in the same order.
    """
    with styled():
        height = _PANEL_HEIGHT_IN * len(panels)
        figure = Figure(figsize=(TEXT_WIDTH_IN, height), layout="constrained")
        column = figure.subplots(len(panels), squeeze=False)[:, 0]
        for axes, (title, data) in zip(column, panels.items(), strict=True):
            length_bleu.draw(axes, data, data.curves)
            axes.set_title(title, loc="left")
            axes.set_ylabel("BLEU")
        titles = (length_bleu.axis_title(data) for data in panels.values())
        column[-1].set_xlabel(max(titles, key=len))  # of a panel that has all marks
        figure.legend(
            *column[0].get_legend_handles_labels(),
            loc="outside right center",
            frameon=False,
            handlelength=3,  # so that dashes can be told apart
        )
    return figure
