"""What there is to choose from and what it costs, for the command line and docs/positions.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from shapeshift.positions import KINDS, PRESETS, Part, Representation, Scheme

from .build import build
from .config import ModelConfig

VOCABULARY = 32000

EXPORTS = ("torch.compile", "torch.export")
"""What every cell goes through as one graph for all batches and lengths, with equal results: the
contract tests `test_compile.py` and `test_export.py` hold them to that, all together by default and
cell by cell in `make test-slow`."""


@dataclass(frozen=True)
class Cell:
    """One kind at one place of transformer-base, with its default options.

    Attributes:
        kind, place: the cell.
        stacks: where it stands: `both`, or the `decoder` alone.
        num_parameters: that it has, in all layers together.
    """

    kind: str
    place: str
    stacks: str
    num_parameters: int


def cells() -> Iterator[Cell]:
    """Yield every cell that a scheme can name."""
    for kind, entry in KINDS.items():
        for place in entry.build.places:
            stacks = "decoder" if entry.build.causal_only or place == "cross" else "both"
            scheme = Scheme(parts=(Part(kind, place, stacks),))
            yield Cell(kind, place, stacks, count_parameters(scheme))


def preset_parameters() -> dict[str, int]:
    """Return the parameters of each preset, as in `Cell`."""
    return {name: count_parameters(scheme) for name, scheme in PRESETS.items()}


def count_parameters(scheme: Scheme) -> int:
    """Return the parameters of a scheme's positions, as in `Cell`."""
    with torch.device("meta"):
        model = build(ModelConfig(size="base"), scheme, VOCABULARY, VOCABULARY)
    owners = [module for module in model.modules() if isinstance(module, Representation)]
    own = {id(p): p.numel() for module in owners for p in module.parameters()}
    return sum(own.values())
