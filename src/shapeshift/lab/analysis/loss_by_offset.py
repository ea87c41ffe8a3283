"""Validation loss under shifted positions, and with the source in random order.

A whole model is shift invariant if its loss is the same at every offset. That alone proves little:
a model that has not learned word order is invariant as well. So the loss on shuffled sources stands
beside it, which word order must keep well above the plain loss. The paper (Kiyono et al. 2021)
compares encoder states instead, see `similarity`; this asks the same of what the model is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from shapeshift.data.batching import Batch, collate, plan_in_order
from shapeshift.data.config import BatchConfig
from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import PAD
from shapeshift.decoding.scoring import evaluating
from shapeshift.errors import ShapeshiftError
from shapeshift.model import Transformer
from shapeshift.model.loss import linear_cross_entropy
from shapeshift.seeds import derive

OFFSETS = (0, 10, 40, 100, 250, 450)

Side = Literal["both", "source", "target"]

_HEIGHT_IN = 2.6


@dataclass(frozen=True)
class OrderSensitivity:
    """Mean loss in nats a target token, on sources as they are and in random order."""

    plain: float
    shuffled: float

    @property
    def difference(self) -> float:
        """How much a random order costs; about 0 for a bag of words."""
        return self.shuffled - self.plain


@dataclass(frozen=True)
class SystemLosses:
    """One system's validation loss.

    Attributes:
        name: the system.
        losses: nats a target token, one for each offset.
        order: at offset 0, sources plain and shuffled.
    """

    name: str
    losses: tuple[float, ...]
    order: OrderSensitivity


@dataclass(frozen=True)
class LossByOffset:
    """The data of the figure.

    Attributes:
        offsets: what positions were shifted by.
        side: which positions: of `source`, of `target`, or of `both` by the same offset.
        systems: one for each model.
    """

    offsets: tuple[int, ...]
    side: Side
    systems: tuple[SystemLosses, ...]


def compute(
    systems: Mapping[str, Transformer],
    store: TokenStore,
    offsets: Sequence[int] = OFFSETS,
    *,
    side: Side = "both",
    batch: BatchConfig | None = None,
    seed: int = 0,
) -> LossByOffset:
    """Measure the loss of each model at each offset, and on shuffled sources.

    Args:
        systems: name → a model on any device, in any mode.
        store: validation pairs.
        offsets: in any order.
        side: whose positions are shifted.
        batch: size of the batches.
        seed: of the random order of sources; all systems see the same one.

    Raises:
        ShapeshiftError: no systems, offsets or pairs, a store of another vocabulary, or a model
            without positions for an offset.
    """
    if not systems or not offsets:
        raise ShapeshiftError(
            f"{len(systems)} systems and {len(offsets)} offsets: expected one of each at least"
        )
    config = batch or BatchConfig()
    return LossByOffset(
        tuple(offsets),
        side,
        tuple(
            SystemLosses(
                name,
                tuple(
                    mean_loss(
                        model,
                        _batches(model, store, config),
                        source_offset=None if side == "target" else offset,
                        target_offset=None if side == "source" else offset,
                    )
                    for offset in offsets
                ),
                order_sensitivity(model, store, batch=config, seed=seed),
            )
            for name, model in systems.items()
        ),
    )


def order_sensitivity(
    model: Transformer, store: TokenStore, *, batch: BatchConfig | None = None, seed: int = 0
) -> OrderSensitivity:
    """Measure what the order of the source is worth to a model.

    The subwords of each source are put into a random order, one for each pair, `</s>` stays at the
    end. Nothing else changes, so the difference is 0, to the last digits, for a model that sees a
    bag of subwords.

    Args:
        model: on any device, in any mode.
        store: validation pairs.
        batch: size of the batches.
        seed: of the random order.

    Raises:
        ShapeshiftError: no pairs, or a store of another vocabulary.
    """
    config = batch or BatchConfig()
    plain = mean_loss(model, _batches(model, store, config))
    mixed = (_shuffled(x, seed) for x in _batches(model, store, config))
    return OrderSensitivity(plain, mean_loss(model, mixed))


def mean_loss(
    model: Transformer,
    batches: Iterable[Batch],
    *,
    source_offset: int | None = None,
    target_offset: int | None = None,
) -> float:
    """Return the negative log-likelihood of references in nats a token, `</s>` among them.

    The same number as `valid_loss` in a run's log, but for the precision: here that of the weights.

    Args:
        model: in any mode.
        batches: at least one.
        source_offset, target_offset: shift all positions of a side; None leaves it to the model.
    """
    device = model.output.weight.device
    total, num_tokens = 0.0, 0
    with evaluating(model):
        for batch in batches:
            batch = batch.to(device)
            memory = model.encode(batch.source, offset=source_offset)
            hidden = model.decode(batch.target_input, memory, offset=target_offset)  # (B, T, D)
            real = batch.target_output != PAD
            targets = batch.target_output[real]  # (N,)
            _, nll = linear_cross_entropy(hidden[real], model.output.weight, targets, 0.0)
            total += float(nll)
            num_tokens += targets.numel()
    return total / num_tokens


def _batches(model: Transformer, store: TokenStore, config: BatchConfig) -> Iterable[Batch]:
    sizes = (model.source.tokens.num_embeddings, model.target.tokens.num_embeddings)
    if (store.source_size, store.target_size) != sizes:
        raise ShapeshiftError(
            f"has ids of vocabularies of {store.source_size} and {store.target_size} subwords, the"
            f" model {sizes[0]} and {sizes[1]}; name the data that it was trained on",
            path=store.directory,
        )
    if not len(store):
        raise ShapeshiftError("holds no pairs; expected one at least", path=store.directory)
    plan = plan_in_order(store.source_lengths, store.target_lengths, config)
    return (collate(store, pairs) for pairs in plan)


def _shuffled(batch: Batch, seed: int) -> Batch:
    """Return a batch with each source's subwords in an order that depends on seed and pair."""
    source = batch.source.clone()
    lengths = (source != PAD).sum(dim=1) - 1  # without </s>
    for row, length, pair in zip(source, lengths.tolist(), batch.pairs.tolist(), strict=True):
        order = np.random.default_rng(derive(seed, "order", pair)).permutation(length)
        row[:length] = row[:length][torch.from_numpy(order)]
    return replace(batch, source=source)
