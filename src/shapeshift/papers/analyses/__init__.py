"""Analyses that items name: each takes the study and returns a `Content`."""

from __future__ import annotations

from collections.abc import Mapping

from shapeshift.lab.grid import Cell
from shapeshift.papers.study import Study

PAIR = ("ape", "shape")
"""The positions that most items of the SHAPE paper compare."""


def paired(study: Study, axes: Mapping[str, str]) -> dict[int, tuple[Cell, Cell]]:
    """Return seed → the finished runs of APE and of SHAPE, where both are there."""
    ape, shape = (
        {cell.seed: cell for cell in study.finished({**axes, "position": name})} for name in PAIR
    )
    return {seed: (ape[seed], shape[seed]) for seed in sorted(ape.keys() & shape.keys())}
