"""A scatter plot of systems: a named point for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, look, styled

_WIDTH_IN, _HEIGHT_IN = 0.8 * TEXT_WIDTH_IN, 3.0
_LINE_PT = 9.0  # from one name to the next, at 8 points
_ROOM = 0.16  # of the width, right of the last point, for its name


@dataclass(frozen=True)
class Point:
    """A system: where it stands, and whether it is set off from the others."""

    name: str
    x: float
    y: float
    marked: bool = False


@dataclass(frozen=True)
class Tradeoff:
    """The data of the figure.

    Attributes:
        points: one for each system.
        x_title, y_title: of the axes, with units.
        marked: what it means that a point is marked; empty if none is.
        baseline: the system that dotted lines go through, or `None`.
    """

    points: tuple[Point, ...]
    x_title: str
    y_title: str
    marked: str = ""
    baseline: str | None = None


def plot(data: Tradeoff) -> Figure:
    """Draw the figure; marked points are filled, the others hollow. Save it with `style.save`.

    Raises:
        ShapeshiftError: there is no point.
    """
    if not data.points:
        raise ShapeshiftError("no system to draw: expected at least one point")
    with styled():
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), layout="constrained")
        axes = figure.subplots()
        for point in data.points:
            axes.plot(
                point.x,
                point.y,
                marker="o",
                linestyle="none",
                color=look(0).colour,
                markerfacecolor=look(0).colour if point.marked else "white",
            )
            if point.name == data.baseline:
                axes.axvline(point.x, color="#999999", linestyle=":", linewidth=0.8, zorder=0)
                axes.axhline(point.y, color="#999999", linestyle=":", linewidth=0.8, zorder=0)
        _set_limits(axes, data.points)
        _name_points(axes, data.points)
        axes.set_xlabel(data.x_title)
        axes.set_ylabel(data.y_title)
        if data.marked:
            axes.set_title(f"filled: {data.marked}", loc="left", fontsize=8)
    return figure


def _set_limits(axes: Axes, points: Sequence[Point]) -> None:
    """Leave room around the points, right of them most, and keep the limits as they are."""
    for values, set_limits, room in (
        ([point.x for point in points], axes.set_xlim, _ROOM),
        ([point.y for point in points], axes.set_ylim, 0.08),
    ):
        low, high = min(values), max(values)
        width = high - low or 1.0
        set_limits(low - 0.08 * width, high + room * width)


def _inside(heights: Sequence[float], line: float) -> list[float]:
    """Move names that stand below or above the panel into it, and their neighbours with them."""
    moved = list(heights)
    order = sorted(range(len(moved)), key=moved.__getitem__)
    for rank, number in enumerate(order):
        moved[number] = max(moved[number], (rank + 0.5) * line)
    for rank, number in enumerate(reversed(order)):
        moved[number] = min(moved[number], 1 - (rank + 0.5) * line)
    return moved


def spread(wanted: Sequence[float], gap: float) -> list[float]:
    """Return places in the order of `wanted`, near them, no two nearer than `gap`.

    Labels that would overlap form a block around the mean of what they want.
    """
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    blocks: list[list[int]] = []
    for number in order:
        blocks.append([number])
        while len(blocks) > 1 and _top(blocks[-2], wanted, gap) + gap > _bottom(
            blocks[-1], wanted, gap
        ):
            last = blocks.pop()
            blocks[-1] += last
    places = [0.0] * len(wanted)
    for block in blocks:
        for rank, number in enumerate(block):
            places[number] = _bottom(block, wanted, gap) + rank * gap
    return places


def _middle(block: Sequence[int], wanted: Sequence[float]) -> float:
    return sum(wanted[number] for number in block) / len(block)


def _bottom(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return _middle(block, wanted) - gap * (len(block) - 1) / 2


def _top(block: Sequence[int], wanted: Sequence[float], gap: float) -> float:
    return _middle(block, wanted) + gap * (len(block) - 1) / 2


def _name_points(axes: Axes, points: Sequence[Point]) -> None:
    """Write each name right of its point, level with it or as near as there is room: names are
    kept a line apart, whatever their points' x, and a thin line leads to one that has moved."""
    to_axes = axes.transData + axes.transAxes.inverted()
    places = [to_axes.transform((point.x, point.y)) for point in points]
    line = _LINE_PT / 72 / (0.8 * _HEIGHT_IN)  # the panel is some four fifths of the figure
    heights = _inside(spread([float(place[1]) for place in places], line), line)
    for point, place, height in zip(points, places, heights, strict=True):
        moved = abs(height - float(place[1])) > line / 2
        axes.annotate(
            point.name,
            (point.x, point.y),
            xytext=(float(place[0]) + 0.02, height),
            textcoords="axes fraction",
            va="center",
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.5} if moved else None,
        )
