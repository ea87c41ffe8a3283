"""Validation loss under shifted positions: the same at every offset if a model is shift invariant.
(Kiyono et al. 2021 compare encoder states instead, see `similarity`.)"""

from __future__ import annotations

from collections.abc import Iterable

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

OFFSETS = (0, 10, 40, 100, 250, 450)


def measure(run: Run, data: Prepared) -> list[Measurement]:
    """Measure the validation loss with all positions, of source and target, shifted by an offset
    (`shifted_loss`, bucket `offset K`)."""
    model, batch = run.model(device=run.device), run.config.training.batch
    return [
        Measurement(
            metric="shifted_loss",
            value=mean_loss(model, in_order(data.valid, run.device, batch), offset),
            dataset="valid",
            bucket=f"offset {offset}",
        )
        for offset in OFFSETS
    ]


def in_order(
    store: TokenStore, device: torch.device | str = "cpu", batch: BatchConfig | None = None
) -> Iterable[Batch]:
    """Yield the pairs of a store in batches, shortest first, on a device."""
    plan = plan_in_order(store.source_lengths, store.target_lengths, batch or BatchConfig())
    return (collate(store, pairs).to(device) for pairs in plan)


def mean_loss(model: Transformer, batches: Iterable[Batch], offset: int) -> float:
    """Return the negative log-likelihood of references in nats a token, `</s>` included.

    This is `valid_loss` of a run's log, except that it has the precision of the weights.

    Args:
        model: in any mode.
        batches: at least one, on the model's device.
        offset: shifts all positions.

    Raises:
        ShapeshiftError: a model without positions for the offset.
    """
    total, num_tokens = 0.0, 0
    with evaluating(model):
        for batch in batches:
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
