"""Forced scoring: the probability that a model gives to references that already exist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shapeshift.data.batching import Batch
from shapeshift.data.subwords import PAD
from shapeshift.model import Transformer
from shapeshift.positions.base import temporarily_set

_TOKENS_AT_ONCE = 1024  # bounds the (tokens, V) log-probabilities: 128 MB at V = 32,000


def score_references(model: Transformer, batch: Batch) -> Tensor:
    """Return log p of every reference token given the source and the tokens before it.

    The softmax is over the whole vocabulary in float32, without label smoothing. A model in
    training mode is put into evaluation mode for the computation only.

    Args:
        model: a translation model.
        batch: pairs, on the model's device.

    Returns:
        `(B, T)` float32, natural logarithm, 0 on padding. The sum of a row is log p(y | x).
    """
    with evaluating(model):
        hidden = model.decode(batch.target_input, model.encode(batch.source))  # (B, T, D)
        # All tokens, padding too: a product of the real ones alone would have a shape, and so bits,
        # that depend on the lengths of the neighbours.
        columns = max(1, _TOKENS_AT_ONCE // len(hidden))
        pieces = zip(
            torch.split(hidden, columns, dim=1),
            torch.split(batch.target_output, columns, dim=1),
            strict=True,
        )
        log_probs = [
            model.project(states)  # (B, columns, V)
            .log_softmax(dim=-1, dtype=torch.float32)
            .gather(2, targets[:, :, None])
            .squeeze(2)
            for states, targets in pieces
        ]
        return torch.cat(log_probs, dim=1).masked_fill(batch.target_output == PAD, 0.0)


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Put every submodule into evaluation mode, without gradients, and back when the block ends.

    An object that is not an `nn.Module` has no modes and is left as it is.
    """
    modules = model.modules() if isinstance(model, nn.Module) else ()
    training = [module for module in modules if module.training]
    with temporarily_set(training, "training", False), torch.inference_mode():
        yield
