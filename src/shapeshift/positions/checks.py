"""Checks that several kinds make of numbers."""

from __future__ import annotations

import math
import operator

import torch
from torch import Tensor

from shapeshift.errors import ShapeshiftError


def can_read(pos: Tensor) -> bool:
    """Return whether the numbers in `pos` are there to be read at no cost.

    On a GPU the host would wait for the device, in every call; in a graph that `torch.compile` or
    `torch.export` captures, and on the meta device, there are no numbers yet.
    """
    return pos.device.type not in ("cuda", "meta") and not torch.compiler.is_compiling()


def check_positive(**numbers: float) -> None:
    """Raise a `ShapeshiftError` for the first number, by its name, that is not positive and
    finite."""
    for name, number in numbers.items():
        if not 0 < number < math.inf:
            raise ShapeshiftError(f"{name} must be positive and finite, got {number}")


def whole_number(name: str, value: int, smallest: int) -> int:
    """Return `value`, which the user gave as `name`, as an int.

    Raises:
        ShapeshiftError: if it is no whole number, or below `smallest`.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise ShapeshiftError(f"{name} must be a whole number, got {value!r}") from None
    if number < smallest:
        raise ShapeshiftError(f"{name} must be at least {smallest}, got {number}")
    return number
