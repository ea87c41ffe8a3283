"""Analyses that studies name: each takes the study and returns a `Content`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from shapeshift.study.grid import PlannedRun
from shapeshift.study.measured import Measured

PAIR = ("ape", "shape")
"""The positions that most studies of the SHAPE paper compare."""


def paired(measured: Measured, axes: Mapping[str, str]) -> dict[int, tuple[PlannedRun, PlannedRun]]:
    """Return seed → the runs of APE and of SHAPE, for seeds with both runs finished."""
    ape, shape = (
        {planned.seed: planned for planned in measured.finished({**axes, "position": name})}
        for name in PAIR
    )
    return {seed: (ape[seed], shape[seed]) for seed in sorted(ape.keys() & shape.keys())}


def draw_matrix(
    axes: Axes,
    matrix: NDArray[np.float64],
    show: Callable[[float], str],
    colours: str,
    scale: Normalize,
    font_pt: float = 6.0,
) -> AxesImage:
    """Draw a heat map with a number in each cell; NaN stays blank."""
    image = axes.imshow(np.ma.masked_invalid(matrix), cmap=colours, norm=scale, origin="lower")
    lightness = image.to_rgba(matrix)[..., :3] @ (0.3, 0.6, 0.1)
    for (row, column), value in np.ndenumerate(matrix):
        if not np.isnan(value):
            axes.text(
                column,
                row,
                show(value),
                ha="center",
                va="center",
                fontsize=font_pt,
                color="black" if lightness[row, column] > 0.5 else "white",
            )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image
