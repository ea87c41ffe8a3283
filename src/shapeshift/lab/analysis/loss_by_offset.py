"""Validation loss under shifted positions, and with the source in random order.

A model is shift invariant if its loss is the same at every offset. A model that ignores word order
is invariant as well, so the loss on shuffled sources is measured too: for a model that uses word
order it is well above the plain loss. The paper (Kiyono et al. 2021) compares encoder states
instead, see `similarity`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import torch

from shapeshift.data.batching import Batch, collate, plan_in_order
from shapeshift.data.config import BatchConfig
from shapeshift.data.prepared import Prepared
from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import PAD
from shapeshift.decoding.scoring import evaluating
from shapeshift.lab.measures import Measurement
from shapeshift.lab.run import Run
from shapeshift.model import Transformer
from shapeshift.model.loss import linear_cross_entropy
from shapeshift.seeds import derive

OFFSETS = (0, 10, 40, 100, 250, 450)


def measure(run: Run, data: Prepared) -> list[Measurement]:
    """Measure the validation loss with all positions shifted (bucket `offset K`), plain, and with
    the source in random order, which shows whether the model is shift invariant and whether it uses
    word order."""
    return compute(run.model(device=run.device), data.valid, batch=run.config.training.batch)


def compute(
    model: Transformer,
    store: TokenStore,
    offsets: Sequence[int] = OFFSETS,
    *,
    batch: BatchConfig | None = None,
    seed: int = 0,
) -> list[Measurement]:
    """Measure a model's loss at each offset (`shifted_loss`), with positions as the model itself
    sets them (`plain_loss`), and on shuffled sources (`shuffled_loss`), in nats a target token.

    Shuffling puts the subwords of each source into a random order, one for each pair; `</s>` stays
    at the end.

    Args:
        model: on any device, in any mode.
        store: validation pairs.
        offsets: in any order; source and target positions are shifted by the same offset.
        batch: size of the batches.
        seed: of the random order of sources.

    Raises:
        ShapeshiftError: a model without positions for an offset.
    """
    device = model.output.weight.device
    shuffled = (_shuffled(x, seed) for x in in_order(store, "cpu", batch))

    def measured(metric: str, loss: float, bucket: str | None = None) -> Measurement:
        return Measurement(metric=metric, value=loss, dataset="valid", bucket=bucket)

    def shifted(offset: int | None) -> float:
        return mean_loss(model, in_order(store, device, batch), offset)

    return [
        *(measured("shifted_loss", shifted(offset), f"offset {offset}") for offset in offsets),
        measured("plain_loss", shifted(None)),
        measured("shuffled_loss", mean_loss(model, shuffled)),
    ]


def in_order(
    store: TokenStore, device: torch.device | str = "cpu", batch: BatchConfig | None = None
) -> Iterable[Batch]:
    """Yield the pairs of a store in batches, shortest first, on a device."""
    plan = plan_in_order(store.source_lengths, store.target_lengths, batch or BatchConfig())
    return (collate(store, pairs).to(device) for pairs in plan)


def mean_loss(model: Transformer, batches: Iterable[Batch], offset: int | None = None) -> float:
    """Return the negative log-likelihood of references in nats a token, `</s>` included.

    This is `valid_loss` of a run's log, except that it has the precision of the weights.

    Args:
        model: in any mode.
        batches: at least one.
        offset: shifts all positions; `None` leaves them to the model.
    """
    device = model.output.weight.device
    total, num_tokens = 0.0, 0
    with evaluating(model):
        for batch in batches:
            batch = batch.to(device)
            memory = model.encode(batch.source, offset=offset)
            hidden = model.decode(batch.target_input, memory, offset=offset)  # (B, T, D)
            real = batch.target_output != PAD
            targets = batch.target_output[real]  # (N,)
            _, nll = linear_cross_entropy(
                hidden[real], model.output.weight, targets, 0.0, model.output_bias
            )
            total += float(nll)
            num_tokens += targets.numel()
    return total / num_tokens


def _shuffled(batch: Batch, seed: int) -> Batch:
    """Return a batch with each source's subwords in an order that depends on seed and pair."""
    source = batch.source.clone()
    lengths = (source != PAD).sum(dim=1) - 1  # without </s>
    for row, length, pair in zip(source, lengths.tolist(), batch.pairs.tolist(), strict=True):
        order = np.random.default_rng(derive(seed, "order", pair)).permutation(length)
        row[:length] = row[:length][torch.from_numpy(order)]
    return replace(batch, source=source)
