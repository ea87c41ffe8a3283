"""How long a sentence may be before a model has no position for its next token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torch import nn

from shapeshift.decoding.scoring import evaluating
from shapeshift.model import Transformer
from shapeshift.model.layers import Embedding
from shapeshift.positions import Coupled, Randomized, Representation, Shifted


class Capacity(NamedTuple):
    """The most tokens that a model has positions for; None means no limit.

    Attributes:
        source: subwords and `</s>`.
        target: `<s>` and subwords, or generated tokens with the `</s>`.
    """

    source: int | None = None
    target: int | None = None

    @property
    def source_subwords(self) -> int | None:
        """The most subwords of a source, without `</s>`."""
        return None if self.source is None else self.source - 1


def capacity(model: object, *, training: bool = False) -> Capacity:
    """Return the limits of a model's kinds (`Representation.max_position`) and of randomized
    position ids, at inference or in training, where the largest offset that may be drawn counts.

    Anything other than a `Transformer` has the limits of its attribute `capacity`, or none.
    """
    if not isinstance(model, Transformer):
        own: Capacity = getattr(model, "capacity", Capacity())
        return own
    layers = model.decoder.named_modules()
    cross = [part for name, part in layers if name.endswith(".cross_attention")]
    with evaluating(model):
        return Capacity(
            _most_tokens(model.source, [model.encoder, *cross], training),
            _most_tokens(model.target, [model.decoder], training),
        )


def _most_tokens(side: Embedding, others: Iterable[nn.Module], training: bool) -> int | None:
    position_ids, parts = side.position_ids, (side, *others)
    if training and isinstance(position_ids, Randomized):
        return position_ids.max_position  # no table is smaller, see `positions.placement`
    kinds = [kind for part in parts for kind in part.modules() if isinstance(kind, Representation)]
    limits = [limit for kind in kinds if (limit := kind.max_position()) is not None]
    longest = position_ids.max_length if isinstance(position_ids, Randomized) else None
    if not limits:
        return longest
    if position_ids.reads_tokens:  # at most as many as the tokens so far
        drawn = position_ids.max_offset if training and isinstance(position_ids, Coupled) else 0
        return min(limits) - drawn
    # Positions only grow, so that no more of them than there are numbers lie within the limit.
    offset = None
    if training and isinstance(position_ids, Shifted):
        offset = position_ids.max_offset - position_ids.authors
    positions = position_ids(1, min(limits) + 1 if longest is None else longest, offset=offset)
    return int((positions <= min(limits)).sum())
