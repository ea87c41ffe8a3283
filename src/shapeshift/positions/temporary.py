"""Attributes that a module has during one call without being arguments of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn


@contextmanager
def temporarily_set(modules: Sequence[nn.Module], name: str, value: object) -> Iterator[None]:
    """Set the attribute `name` of `modules` to `value` until the block ends.

    The old values come back at the end, also after an exception.
    """
    before = [getattr(module, name) for module in modules]
    try:
        for module in modules:
            setattr(module, name, value)
        yield
    finally:
        for module, old in zip(modules, before, strict=True):
            setattr(module, name, old)
