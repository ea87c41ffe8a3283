"""Kinds, places and their numbers of parameters, for the command line and docs/positions.md."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from shapeshift.positions import KINDS, Part, Representation, Scheme

from .build import build
from .config import ModelConfig
from .meta import without_numbers

VOCABULARY = 32000


def cells() -> Iterator[Part]:
    """Yield every kind at every place, with its default options."""
    for kind, entry in KINDS.items():
        for place in entry.build.places:
            stacks = "decoder" if entry.build.causal_only or place == "cross" else "both"
            yield Part(kind, place, stacks)


def count_parameters(*parts: Part) -> int:
    """Return how many parameters these positions have in transformer-base, in all layers."""
    with without_numbers():
        model = build(ModelConfig(size="base"), Scheme(parts=parts), VOCABULARY, VOCABULARY)
    owners = [module for module in model.modules() if isinstance(module, Representation)]
    return sum(p.numel() for p in nn.ModuleList(owners).parameters())  # shared ones once
