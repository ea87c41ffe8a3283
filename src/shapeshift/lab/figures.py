"""The figures of all results: panels of lines, and how a figure becomes files.

A position representation has the same colour, marker and dash in every figure. Lines are named at
their right ends; a line of several seeds is their mean, with a bar of one standard deviation and a
dot for each seed.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from shapeshift import disk
from shapeshift.lab.looks import TEXT_WIDTH_IN, Look, looks, styled

FORMATS: dict[str, dict[str, None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
"""Format → the metadata that leave out the date."""

_PANEL_HEIGHT_IN = 2.3
_LABEL_PT = 7.0
_LABEL_LINE_IN = 9 / 72  # from one name to the next
_SAMPLE_IN = 0.28  # of a line, before its name
_NUDGE = 0.05  # of the room of a named place, between one line and the next
_GREY = "#999999"


@dataclass(frozen=True)
class Line:
    """A system in a panel.

    Attributes:
        name: of the system, which decides its look.
        xs: where it was measured: numbers, or places among `Panel.places`, counted from 0.
        values: for each of `xs` the value of each seed; empty where nothing was measured.
        hollow: indices of points that are drawn hollow.
    """

    name: str
    xs: Sequence[float]
    values: Sequence[Sequence[float]]
    hollow: Collection[int] = ()


@dataclass(frozen=True)
class Panel:
    """One panel of a figure.

    Attributes:
        lines: drawn in this order.
        y_title: of the vertical axis; the number of seeds is added.
        title: above the panel.
        places: names of the places 0, 1, … of the horizontal axis; by default it is numeric.
        shaded: spans of the horizontal axis, `(from, to)`.
        zero: draw a line at 0.
        log: logarithmic vertical axis.
        min_span: least range of the vertical axis, so that noise does not look like an effect; on
            a logarithmic axis a factor.
    """

    lines: Sequence[Line]
    y_title: str
    title: str = ""
    places: Sequence[str] = ()
    shaded: Sequence[tuple[float, float]] = ()
    zero: bool = False
    log: bool = False
    min_span: float = 0.0


def draw_lines(panels: Sequence[Panel], x_title: str) -> Figure:
    """Draw panels of lines, each line named at its right end. Save the figure with `save`."""
    num_columns = min(2, len(panels))
    num_rows = -(-len(panels) // num_columns)
    named = max(len({line.name for line in panel.lines}) for panel in panels)
    height = max(_PANEL_HEIGHT_IN, 1.3 * _LABEL_LINE_IN * named)
    with styled():
        width = TEXT_WIDTH_IN if num_columns > 1 else 0.8 * TEXT_WIDTH_IN
        figure = Figure(figsize=(width, num_rows * height + 0.3), layout="constrained")
        grid = figure.subplots(num_rows, num_columns, squeeze=False).flat
        styles = looks([line.name for panel in panels for line in panel.lines])
        for number, axes in enumerate(grid):
            if number < len(panels):
                _draw_panel(axes, panels[number], styles, height)
            else:
                axes.set_axis_off()
        figure.supxlabel(x_title, fontsize=8)
    return figure


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, Look], height_in: float) -> None:
    axes.grid(axis="y")
    if panel.log:
        axes.set_yscale("log")
    if panel.zero:
        axes.axhline(0, color="#555555", linewidth=0.8)
    for low, high in panel.shaded:
        axes.axvspan(low, high, color="#ececec", linewidth=0, zorder=0)
    order = list(dict.fromkeys(line.name for line in panel.lines))
    ends: dict[str, tuple[float, float]] = {}
    for line in panel.lines:
        # Side by side, so that systems with equal scores do not hide each other.
        nudge = _NUDGE * (order.index(line.name) - (len(order) - 1) / 2) if panel.places else 0.0
        points = _draw_line(axes, line, styles[line.name], nudge)
        if points:
            ends.setdefault(line.name, points[-1])
    if panel.places:
        axes.set_xticks(range(len(panel.places)), panel.places)
        axes.set_xlim(-0.5, len(panel.places) - 0.5)
    else:
        if min(x for line in panel.lines for x in line.xs) > 0:
            axes.set_xlim(0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    _set_heights(axes, panel)
    axes.set_title(panel.title, loc="left")
    axes.set_ylabel(panel.y_title + _num_seeds(panel.lines))
    if len(order) > 1:
        _write_names(axes, ends, styles, height_in)


def _draw_line(axes: Axes, line: Line, style: Look, nudge: float) -> list[tuple[float, float]]:
    """Draw a line and return its points."""
    xs = [x + nudge for x in line.xs]
    ys = [fmean(values) if values else math.nan for values in line.values]
    axes.plot(
        xs,
        ys,
        color=style.colour,
        marker=style.marker,
        linestyle=style.dash,
        markeredgecolor="white",
        label=line.name,
    )
    several = [place for place, values in enumerate(line.values) if len(values) > 1]
    if several:
        axes.errorbar(
            [xs[place] for place in several],
            [ys[place] for place in several],
            [stdev(line.values[place]) for place in several],
            fmt="none",
            ecolor=style.colour,
            elinewidth=0.8,
            capsize=2,
        )
        axes.plot(
            [xs[place] for place in several for _ in line.values[place]],
            [value for place in several for value in line.values[place]],
            linestyle="none",
            marker=".",
            markersize=2.5,
            markeredgewidth=0,
            color=style.colour,
            alpha=0.6,
        )
    axes.plot(
        [xs[place] for place in line.hollow],
        [ys[place] for place in line.hollow],
        linestyle="none",
        color=style.colour,
        marker=style.marker,
        markerfacecolor="white",
    )
    return [(x, y) for x, y in zip(xs, ys, strict=True) if not math.isnan(y)]


def _set_heights(axes: Axes, panel: Panel) -> None:
    """Set the vertical limits, and the ticks of a logarithmic axis."""
    axes.margins(y=0.1)
    low, high = axes.get_ylim()
    if panel.log:
        if panel.min_span and high / low < panel.min_span:
            middle = (low * high) ** 0.5
            low, high = middle / panel.min_span**0.5, middle * panel.min_span**0.5
        steps = (1, 2, 5) if high / low > 4 else tuple(range(1, 10))
        axes.yaxis.set_major_locator(LogLocator(10, subs=steps))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.minorticks_off()
    elif high - low < panel.min_span:
        middle = (low + high) / 2
        low, high = middle - panel.min_span / 2, middle + panel.min_span / 2
    seeds = [value for line in panel.lines for values in line.values for value in values]
    if low < 0 <= min(seeds, default=-1.0):  # what cannot be negative has no room below 0
        low, high = 0.0, max(high, panel.min_span)
    axes.set_ylim(low, high)


def bars_note(lines: Iterable[Line]) -> str:
    """Return what bars and dots are, to stand behind a caption; empty where there are none."""
    if all(len(values) < 2 for line in lines for values in line.values):
        return ""
    return "; bars are one standard deviation over seeds, small dots single seeds"


def _num_seeds(lines: Sequence[Line]) -> str:
    """Return how many seeds the points of the lines are means of, to stand in a title."""
    counts = {len(values) for line in lines for values in line.values if values}
    if not counts or len({line.name for line in lines}) < len(lines):  # a line for each run
        return ""
    if max(counts) == 1:
        return " (one seed)"
    return f" (mean of {'–'.join(map(str, sorted({min(counts), max(counts)})))} seeds)"


def _write_names(
    axes: Axes,
    ends: Mapping[str, tuple[float, float]],
    styles: Mapping[str, Look],
    height_in: float,
) -> None:
    """Write each name right of the panel, behind a sample of its line, level with the line's end or
    as near as there is room: names are kept a line apart, and a thin line leads to one that has
    moved."""
    to_axes = axes.transData + axes.transAxes.inverted()
    places = [to_axes.transform(end) for end in ends.values()]
    gap = _LABEL_LINE_IN / (0.8 * height_in)  # the panel is some four fifths of its room
    heights = spread([float(y) for _, y in places], gap)
    left = 1.04
    width = _SAMPLE_IN / axes.get_window_extent().width * axes.figure.dpi
    right = left + width
    for (name, end), (x, y), height in zip(ends.items(), places, heights, strict=True):
        style = styles[name]
        axes.plot(
            [left, right - 0.005 - width / 2, right - 0.01],
            [height] * 3,
            color=style.colour,
            linestyle=style.dash,
            marker=style.marker,
            markevery=[1],
            markeredgecolor="white",
            transform=axes.transAxes,
            clip_on=False,
            scalex=False,
            scaley=False,
        )
        axes.text(
            right,
            height,
            name,
            transform=axes.transAxes,
            va="center",
            color=style.colour,
            fontsize=_LABEL_PT,
        )
        if abs(height - float(y)) > gap / 2 or x < 0.8:
            axes.annotate(
                "",
                end,
                xytext=(left - 0.01, height),
                textcoords="axes fraction",
                arrowprops={
                    "arrowstyle": "-",
                    "color": _GREY,
                    "linewidth": 0.4,
                    "shrinkA": 0,
                    "shrinkB": 2,
                },
                annotation_clip=False,
            )


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Return places from 0 to 1 in the order of `wanted`, near them, no two nearer than `gap`, and
    the outer ones half a gap from the ends."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    heights = [wanted[number] for number in order]
    # Those that overlap are moved up, and moved down; halfway they are around what they want.
    up = list(accumulate(heights, lambda below, y: max(y, below + gap)))
    down = list(accumulate(reversed(heights), lambda above, y: min(y, above - gap)))[::-1]
    places = [0.0] * len(wanted)
    for rank, number in enumerate(order):
        lowest, highest = (rank + 0.5) * gap, 1 - (len(order) - rank - 0.5) * gap
        places[number] = min(max((up[rank] + down[rank]) / 2, lowest), highest)
    return places


def save(figure: Figure, stem: str | Path) -> list[Path]:
    """Write a figure once for each of `FORMATS`, reproducibly: no dates inside; each file whole or
    not at all.

    Returns:
        The files, in the order of `FORMATS`.

    Raises:
        ShapeshiftError: a file cannot be written.
    """
    paths = []
    with styled():
        for name, undated in FORMATS.items():
            buffer = io.BytesIO()
            figure.savefig(buffer, format=name, metadata=undated)
            path = Path(stem)
            paths.append(path.with_name(f"{path.name}.{name}"))
            disk.save(paths[-1], buffer.getbuffer())
    return paths
