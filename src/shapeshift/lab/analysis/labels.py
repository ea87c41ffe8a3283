"""Names that stand at the ends of lines, where a legend would send the eye back and forth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

_LINE_PT = 9.5  # from one label to the next, at 8 points


@dataclass(frozen=True)
class End:
    """Where a line ends, in the units of its axis, and what stands there."""

    y: float
    text: str
    colour: str


def label_ends(axes: Axes, ends: Sequence[End], height_in: float) -> None:
    """Write names right of the axes, level with their lines, or as near as they fit.

    Call it when the limits of the axes are final.

    Args:
        axes: the panel.
        ends: one for each line, in any order.
        height_in: height of the panel in inches, to know how close two labels may stand.
    """
    to_axes = axes.transData + axes.transAxes.inverted()
    x = axes.get_xlim()[1]
    wanted = [float(to_axes.transform((x, end.y))[1]) for end in ends]
    for end, place in zip(ends, spread(wanted, _LINE_PT / 72 / height_in), strict=True):
        axes.annotate(
            end.text,
            (1, place),
            xycoords="axes fraction",
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            color=end.colour,
            annotation_clip=False,
        )


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
