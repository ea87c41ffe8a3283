"""BLEU over the settings of an axis, a line for each system.

Shaw et al. 2018, Table 2 (the clipping distance) and Miyazaki et al. 2024 (NHK), Table 6 (positions
in the first n layers), drawn.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from matplotlib.figure import Figure

from shapeshift.lab.analysis.document import Measured
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, add_legend, looks, styled

_HEIGHT_IN = 2.3
_NUDGE = 0.05  # of the room of a setting, between one system and the next


@dataclass(frozen=True)
class Line:
    """One system.

    Attributes:
        name: of the system.
        mean, spread: mean and standard deviation over seeds, a value for each setting; NaN where
            nothing was measured.
    """

    name: str
    mean: tuple[Measured, ...]
    spread: tuple[Measured, ...]


@dataclass(frozen=True)
class BySetting:
    """The data of the figure.

    Attributes:
        axis: what the settings are, a title.
        settings: their names, evenly spaced from left to right.
        score: what is measured, a title.
        lines: one for each system.
    """

    axis: str
    settings: tuple[str, ...]
    score: str
    lines: tuple[Line, ...]


def plot(data: BySetting) -> Figure:
    """Draw it; bars through the points are one standard deviation. Save it with `style.save`."""
    with styled():
        num_rows = 0 if len(data.lines) == 1 else 1 + (len(data.lines) - 1) // 3
        figure = Figure(
            figsize=(0.72 * TEXT_WIDTH_IN, _HEIGHT_IN + 0.18 * num_rows), layout="constrained"
        )
        axes = figure.subplots()
        axes.grid(axis="y")
        styles = looks([line.name for line in data.lines])
        for number, (line, style) in enumerate(zip(data.lines, styles, strict=True)):
            # Side by side, so that systems with equal scores do not hide each other.
            nudge = _NUDGE * (number - (len(data.lines) - 1) / 2)
            axes.errorbar(
                [place + nudge for place in range(len(data.settings))],
                line.mean,
                [0.0 if math.isnan(spread) else spread for spread in line.spread],
                **style.line,
                elinewidth=0.8,
                capsize=2,
                label=line.name,
            )
        axes.set_xticks(range(len(data.settings)), data.settings)
        axes.set_xlim(-0.5, len(data.settings) - 0.5)
        axes.margins(y=0.1)
        axes.set_xlabel(data.axis)
        axes.set_ylabel(data.score)
        if num_rows:
            add_legend(figure, axes)
    return figure
