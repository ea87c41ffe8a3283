"""Whether a kind has a place for every number that the indices give."""

from __future__ import annotations

import torch

from shapeshift.errors import ShapeshiftError

from .base import Representation
from .indices import Absolute, Randomized, Shifted
from .learned import Learned
from .tupe import TUPE
from .xpos import XPos


def check_numbers(indices: Absolute, position: Representation) -> None:
    """Raise a `ShapeshiftError` if `position` must meet a number that it cannot take.

    What is checked is certain before any text is read; the hooks see to the lengths of sequences.

    Args:
        indices: number the tokens, in training and at inference.
        position: reads the numbers; all that it consists of is looked at.
    """
    of_tupe = {module.vectors for module in position.modules() if isinstance(module, TUPE)}
    for module in position.modules():
        if isinstance(module, Learned):
            within = "vectors=sinusoidal" if module in of_tupe else "kind 'sinusoidal'"
            _check_table(indices, module, f"{within}, which has no limit")
        elif isinstance(module, XPos):
            _check_reach(indices, module)


def _check_table(indices: Absolute, learned: Learned, unlimited: str) -> None:
    highest, rows = _highest(indices), learned.weight.shape[0]
    if highest < rows:
        return
    more = "" if isinstance(indices, Randomized) else " and the longest sequence on top"
    ways = [
        f"num_positions={highest + 1}{more}",
        *_lower(indices),
        unlimited,
    ]
    raise ShapeshiftError(
        f"indices give numbers up to {highest}, but with num_positions={rows} learned vectors end"
        f" at {rows - 1}; use {', or '.join(ways)}"
    )


def _check_reach(indices: Absolute, xpos: XPos) -> None:
    highest, reach = _highest(indices), xpos._limits[torch.float32]
    if max(xpos.centre, highest - xpos.centre) <= reach:
        return
    middle = highest // 2
    centred = [f"centre={middle} (which changes no score)"] if middle < reach else []
    ways = [*centred, *_lower(indices), "kind 'rotary'"]
    raise ShapeshiftError(
        f"indices give numbers from 0 to {highest}, but xpos reaches {reach} positions on either"
        f" side of centre={xpos.centre}; use {', or '.join(ways)}"
    )


def _highest(indices: Absolute) -> int:
    """Return the highest number that a sequence may get, however short it is."""
    if isinstance(indices, Shifted):
        return indices.max_offset
    return indices.max_position - 1 if isinstance(indices, Randomized) else 0


def _lower(indices: Absolute) -> list[str]:
    """Return what would lower it."""
    if isinstance(indices, Shifted):
        return ["a smaller max_offset"]
    return ["a smaller max_position"] if isinstance(indices, Randomized) else []
