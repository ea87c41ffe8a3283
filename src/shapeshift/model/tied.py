"""Parameters with several names in a model, such as a table that both sides share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from operator import attrgetter

from torch import nn

from shapeshift.positions.base import tied_names


def separate_modules(module: nn.Module, seen: set[nn.Module] | None = None) -> None:
    """Replace each module that stands in several places by copies that share its parameters and
    buffers.

    `torch.func.functional_call` exchanges tensors place by place. Of one module in two places, it
    would take the new tensor of the first for the old one of the second, and leave it there.
    """
    seen = set() if seen is None else seen
    for name, child in [*module._modules.items()]:
        if child in seen:
            shared = {id(x): x for x in chain(child.parameters(), child.buffers())}
            module.register_module(name, deepcopy(child, shared))
        elif child is not None:
            seen.add(child)
            separate_modules(child, seen)


@contextmanager
def keeping_ties(module: nn.Module) -> Iterator[None]:
    """Context: at the end, restore the ties between names that shared one tensor. `to_empty`
    replaces the tensors of each module separately, which breaks ties."""
    tied = tied_names(module)
    yield
    tie(module, tied)


def tie(module: nn.Module, tied: Mapping[str, str]) -> None:
    """Assign the tensor of each first name to its further names; see `tied_names`."""
    for name, first in tied.items():
        owner, _, last = name.rpartition(".")
        setattr(module.get_submodule(owner), last, attrgetter(first)(module))
