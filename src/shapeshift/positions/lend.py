"""What a model is given for a while, and not by the arguments of its call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn


@contextmanager
def lend(modules: Sequence[nn.Module], name: str, value: object) -> Iterator[None]:
    """Set the attribute `name` of `modules` to `value` until the block ends.

    What was there before comes back, also after an exception.
    """
    before = [getattr(module, name) for module in modules]
    try:
        for module in modules:
            setattr(module, name, value)
        yield
    finally:
        for module, old in zip(modules, before, strict=True):
            setattr(module, name, old)
