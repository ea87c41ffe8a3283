"""What there is to choose from and what it costs, for the command line and docs/positions.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from shapeshift.positions import KINDS, PRESETS, Part, Scheme

from .build import build
from .config import ModelConfig
from .cost import BatchShape, count_parameters, forward_flops

VOCABULARY = 32000
SHAPE = BatchShape(num_pairs=1, source_length=32, target_length=32)

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
        flops: of its own products, as a share of the model's forward pass over a pair of 32 and 32
            subwords with a vocabulary of 32,000.
    """

    kind: str
    place: str
    stacks: str
    num_parameters: int
    flops: float


def cells() -> Iterator[Cell]:
    """Yield every cell that a scheme can name."""
    for kind, entry in KINDS.items():
        for place in entry.build.places:
            stacks = "decoder" if entry.build.causal_only or place == "cross" else "both"
            num_parameters, flops = cost(Scheme(parts=(Part(kind, place, stacks),)))
            yield Cell(kind, place, stacks, num_parameters, flops)


def preset_costs() -> dict[str, tuple[int, float]]:
    """Return parameters and share of FLOPs, as in `Cell`, of each preset."""
    return {name: cost(scheme) for name, scheme in PRESETS.items()}


def cost(scheme: Scheme) -> tuple[int, float]:
    """Return parameters and share of FLOPs, as in `Cell`, of a scheme."""
    config = ModelConfig(size="base")
    with torch.device("meta"):
        model = build(config, scheme, VOCABULARY, VOCABULARY)
    flops = forward_flops(config, scheme, VOCABULARY, SHAPE)
    return count_parameters(model).positions, flops.positions / (flops.total - flops.positions)
