"""What the items of the SHAPE paper share: its grid, pairs of runs, speeds."""

from __future__ import annotations

from shapeshift.data.config import Extrapolate
from shapeshift.lab.grid import Cell
from shapeshift.papers.study import Study

GRID = "shape-table2"
BASELINE = "ape"

PAIR = (BASELINE, "shape")
"""The positions that most items compare."""

JOINED = (
    "interpolate: BLEU of joined sentences, as the paper seems to report it, in which each"
    " ` <sep> ` counts as three correct tokens; by sentence: translation and reference split at"
    " ` <sep> `"
)
"""A note for tables with BLEU of Interpolate."""


def positions(study: Study, dataset: str) -> list[str]:
    """Return the positions that a dataset has cells of, in the grid's order."""
    cells = study.cells(GRID, {"dataset": dataset})
    return list({cell.axes["position"]: None for cell in cells})


def paired(study: Study, dataset: str) -> dict[int, tuple[Cell, Cell]]:
    """Return seed → the finished runs of APE and of SHAPE, where both are there."""
    ape, shape = (
        {cell.seed: cell for cell in study.finished(GRID, {"dataset": dataset, "position": name})}
        for name in PAIR
    )
    return {seed: (ape[seed], shape[seed]) for seed in sorted(ape.keys() & shape.keys())}


def longest_trained(study: Study, grid: str = GRID) -> int:
    """Return the most subwords of a training sentence in Extrapolate."""
    [longest] = {
        cell.config.data.dataset.max_length
        for cell in study.cells(grid, {"dataset": "extrapolate"})
        if isinstance(cell.config.data.dataset, Extrapolate)
    }
    return longest
