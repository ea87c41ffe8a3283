"""Figures: colours and markers, panels of lines, and saving to files.

A position representation has the same colour, marker and dash in every figure. Lines are named at
their right ends; a line of several seeds is their mean, with a bar of one standard deviation and a
dot for each seed.
"""

from __future__ import annotations

import io
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate, count, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, StrMethodFormatter

from shapeshift._system import files
from shapeshift.positions import KINDS, SCHEMES

TEXT_WIDTH_IN = 6.3
"""Width of the text block of an ACL page, in inches."""

# Okabe and Ito (2008): distinct under every common colour blindness. Their yellow is left out: it
# is too pale for a line on white. Shade and marker differ as well, for print in black and white.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_DASHES = ("-", "--", ":", "-.")

_SETTINGS: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "lines.markeredgewidth": 0.7,
    "text.parse_math": False,  # `$` in a name is a dollar
    "savefig.dpi": 300,
    "pdf.fonttype": 42,  # TrueType: publishers refuse matplotlib's default, Type 3
    "svg.hashsalt": "shapeshift",  # the same figure gives the same bytes
}

FORMATS: dict[str, dict[str, None]] = {
    "png": {},
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
}
"""Format → the metadata that leave out the date."""

_PANEL_HEIGHT_IN = 2.3
_NAME_IN = 0.125  # from one name to the next
_GAP_PX = 5  # between two labels; else they are smaller
_NUDGE = 0.05  # of the room of a named place, between one line and the next

Look = dict[str, str]
"""How a line looks in every panel of a figure: matplotlib's options of a line."""


def look(number: int, variant: int = 0) -> Look:
    """Return the look of line number `number`, from 0; 196 of them differ."""
    size = len(_COLOURS)
    return {
        "color": _COLOURS[number % size],
        "marker": _MARKERS[(number + variant + number // (size * len(_DASHES))) % size],
        "linestyle": _DASHES[(number // size + variant) % len(_DASHES)],
    }


def looks(names: Sequence[str]) -> dict[str, Look]:
    """Return name → look. Each scheme and kind has its own in every figure, the SHAPE paper's three
    the first; `shape-10` and the like look like variants of the scheme; the others take the
    remaining looks in order."""
    known = dict.fromkeys(("ape", "rpe", "shape", *SCHEMES, *KINDS))
    numbers = {name: number for number, name in enumerate(known)}
    variants: dict[str, int] = {}
    styles: dict[str, Look | None] = {}
    for name in dict.fromkeys(names):
        own = [each for each in known if f"{name.lower()}-".startswith(f"{each}-")]
        scheme = max(own, key=len, default=None)
        if scheme is None:
            styles[name] = None
            continue
        variants[scheme] = variants.get(scheme, -1) + 1
        styles[name] = look(numbers[scheme], variants[scheme])
    free = (number for number in count() if look(number) not in styles.values())
    return {name: each or look(next(free)) for name, each in styles.items()}


def styled() -> AbstractContextManager[None]:
    """Context: apply the matplotlib settings of all figures, and restore the old ones
    afterwards."""
    return mpl.rc_context(_SETTINGS)


@dataclass(frozen=True)
class Line:
    """A line in a panel.

    Attributes:
        name: decides its look.
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
        y_title: of the vertical axis.
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
    with styled():
        styles = looks([line.name for panel in panels for line in panel.lines])
        height = max(_PANEL_HEIGHT_IN, 1.3 * _NAME_IN * len(styles))
        width = TEXT_WIDTH_IN if num_columns > 1 else 0.8 * TEXT_WIDTH_IN
        figure = Figure(figsize=(width, num_rows * height + 0.3), layout="constrained")
        grid = [*figure.subplots(num_rows, num_columns, squeeze=False).flat]
        for axes, panel in zip(grid, panels, strict=False):
            _draw_panel(axes, panel, styles)
            if len({line.name for line in panel.lines}) > 1:
                _name_lines(axes, panel, styles, _NAME_IN / (0.7 * height))
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel(x_title, fontsize=8)
        figure.draw_without_rendering()
        for axes, panel in zip(grid, panels, strict=False):
            boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
            room = [
                (right.x0 + right.x1 - left.x0 - left.x1) / (left.width + right.width + 2 * _GAP_PX)
                for left, right in pairwise(boxes)
            ]
            if panel.places and min(room, default=1.0) < 1:
                axes.tick_params(axis="x", labelsize=_SETTINGS["xtick.labelsize"] * min(room))
    return figure


def _draw_panel(axes: Axes, panel: Panel, styles: Mapping[str, Look]) -> None:
    axes.grid(axis="y")
    if panel.log:
        axes.set_yscale("log")
    if panel.zero:
        axes.axhline(0, color="#555555", linewidth=0.8)
    for low, high in panel.shaded:
        axes.axvspan(low, high, color="#ececec", linewidth=0, zorder=0)
    order = list(dict.fromkeys(line.name for line in panel.lines))
    for line in panel.lines:
        # Side by side, so that lines with equal scores do not hide each other.
        nudge = _NUDGE * (order.index(line.name) - (len(order) - 1) / 2) if panel.places else 0.0
        _draw_line(axes, line, styles[line.name], nudge)
    if panel.places:
        axes.set_xticks(range(len(panel.places)), panel.places)
        axes.set_xlim(-0.5, len(panel.places) - 0.5)
    else:
        if min(x for line in panel.lines for x in line.xs) > 0:
            axes.set_xlim(0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    _set_heights(axes, panel)
    axes.set_title(panel.title, loc="left")
    axes.set_ylabel(panel.y_title)


def _draw_line(axes: Axes, line: Line, style: Look, nudge: float) -> None:
    xs = [x + nudge for x in line.xs]
    ys = [fmean(values) if values else math.nan for values in line.values]
    bars = [stdev(values) if len(values) > 1 else math.nan for values in line.values]
    options: dict[str, Any] = {**style}
    axes.errorbar(
        xs,
        ys,
        None if all(map(math.isnan, bars)) else bars,
        markeredgecolor="white",
        elinewidth=0.8,
        capsize=2,
        label=line.name,
        **options,
    )
    options |= {"linestyle": "none", "markerfacecolor": "white", "zorder": 3}
    axes.plot([xs[n] for n in line.hollow], [ys[n] for n in line.hollow], **options)
    several = [(x, y) for x, ys in zip(xs, line.values, strict=True) if len(ys) > 1 for y in ys]
    if several:
        axes.plot(*zip(*several, strict=True), ".", color=style["color"], markersize=2.5, alpha=0.6)


def _name_lines(axes: Axes, panel: Panel, styles: Mapping[str, Look], gap: float) -> None:
    """Write each name right of the panel behind a sample of its line, level with the line's last
    point or as near as there is room; a thin line leads to the point.

    Args:
        gap: between names, as a part of the panel's height.
    """
    ends: dict[str, tuple[float, float]] = {}
    for line in panel.lines:
        points = [(x, fmean(y)) for x, y in zip(line.xs, line.values, strict=True) if y]
        for point in points[-1:]:
            ends.setdefault(line.name, point)
    to_axes = axes.transData + axes.transAxes.inverted()
    wanted = {name: float(to_axes.transform(end)[1]) for name, end in ends.items()}
    order = sorted(wanted, key=wanted.__getitem__)
    up = accumulate([wanted[name] for name in order], lambda below, y: max(y, below + gap))
    heights = accumulate([*up][::-1], lambda above, y: min(y, above - gap), initial=1 + gap)
    for name, height in zip(order[::-1], [*heights][1:], strict=True):
        sample: dict[str, Any] = {**styles[name], "markevery": [1], "markeredgecolor": "white"}
        sample |= {"clip_on": False, "transform": axes.transAxes}
        axes.plot([1.05, 1.09, 1.13], [height] * 3, scalex=False, scaley=False, **sample)
        colour = styles[name]["color"]
        axes.text(
            1.15, height, name, color=colour, fontsize=7, va="center", transform=axes.transAxes
        )
        axes.annotate(
            "",
            ends[name],
            (1.05, height),
            textcoords="axes fraction",
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.4, "shrinkB": 2},
            annotation_clip=False,
        )


def _set_heights(axes: Axes, panel: Panel) -> None:
    """Set the vertical limits, and the ticks of a logarithmic axis."""
    axes.margins(y=0.1)
    low, high = map(math.log, axes.get_ylim()) if panel.log else axes.get_ylim()
    missing = (math.log(panel.min_span or 1) if panel.log else panel.min_span) - (high - low)
    low, high = low - max(0.0, missing) / 2, high + max(0.0, missing) / 2
    if panel.log:
        low, high = math.exp(low), math.exp(high)
        steps = (1, 2, 5) if high / low > 4 else tuple(range(1, 10))
        axes.yaxis.set_major_locator(LogLocator(10, subs=steps))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axes.minorticks_off()
    seeds = [value for line in panel.lines for values in line.values for value in values]
    if low < 0 <= min(seeds, default=-1.0):  # what cannot be negative has no room below 0
        low, high = 0.0, max(high, panel.min_span)
    axes.set_ylim(low, high)


def bars_note(lines: Iterable[Line]) -> str:
    """Return the explanation of points, bars and dots for a caption; empty if each run has its own
    line."""
    every = [*lines]
    counts = {len(values) for line in every for values in line.values if values}
    if not counts or len({line.name for line in every}) < len(every):
        return ""
    if max(counts) == 1:
        return "; one seed"
    number = "–".join(map(str, sorted({min(counts), max(counts)})))
    return f"; points are means of {number} seeds, bars one standard deviation, dots single seeds"


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
            paths.append(Path(f"{stem}.{name}"))
            files.save(paths[-1], buffer.getbuffer())
    return paths
