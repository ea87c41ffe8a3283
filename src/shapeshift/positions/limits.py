"""Whether a kind has a place for every position that the position ids reach."""

from __future__ import annotations

import inspect

from shapeshift.errors import ShapeshiftError

from .base import Representation
from .position_ids import Absolute, Randomized, Shifted


def check_numbers(position_ids: Absolute, position: Representation) -> None:
    """Raise a `ShapeshiftError` if `position` must meet a number above its `max_position`.

    What is checked is certain before any text is read; the hooks see to the lengths of sequences.

    Args:
        position_ids: number the tokens, in training and at inference.
        position: reads the numbers; all that it consists of is looked at.
    """
    if isinstance(position_ids, Shifted):
        highest, lower = (
            position_ids.max_offset,
            "a smaller max_offset",
        )  # of a sequence of one token
    elif isinstance(position_ids, Randomized):
        highest, lower = position_ids.max_position - 1, "a smaller max_position"
    else:
        return
    for kind in position.kinds():
        limit = kind.max_position()
        if limit is not None and limit < highest:
            ways = [lower, "a kind without a limit, such as 'sinusoidal'"]
            if "num_positions" in inspect.signature(type(kind)).parameters:
                more = (
                    ""
                    if isinstance(position_ids, Randomized)
                    else " and the longest sequence on top"
                )
                ways.insert(0, f"num_positions={highest + 1}{more}")
            raise ShapeshiftError(
                f"position ids go up to {highest}, but {type(kind).__name__} takes positions"
                f" up to {limit}; use {', or '.join(ways)}"
            )
