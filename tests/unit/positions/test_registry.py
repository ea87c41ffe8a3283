"""What is written in shapeshift.positions is registered, so that the contract tests run over it."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from torch import nn

import shapeshift.positions
from shapeshift.positions import (
    KINDS,
    POSITION_IDS,
    Absolute,
    Chain,
    Encoding,
    Graph,
    Representation,
)
from shapeshift.positions.registry import KINDS_WITH_AXES

NO_KINDS = {Chain, Encoding, Graph}
"""Several at one place, a base, and one whose edges come from Python."""


def written(base: type[nn.Module]) -> Iterator[type[nn.Module]]:
    """Yield `base` and its subclasses in the package's files, also in those that nobody imports."""
    package = shapeshift.positions
    for file in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(file.name)
    found = [base]
    for each in found:
        found += each.__subclasses__()
        if each.__module__.startswith(f"{package.__name__}.") and each not in NO_KINDS:
            yield each


@pytest.mark.parametrize(
    ("base", "registry"),
    [(Representation, KINDS | KINDS_WITH_AXES), (Absolute, POSITION_IDS)],
    ids=["kinds", "position ids"],
)
def test_every_kind_and_way_of_numbering_is_registered(base, registry):
    assert set(written(base)) <= {entry.build for entry in registry.values()}
