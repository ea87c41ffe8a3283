"""Forced scoring: what probability a model gives to references that are already there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from shapeshift.data.subwords import PAD

_TOKENS_AT_ONCE = 1024  # bounds the (tokens, V) log-probabilities: 128 MB at V = 32,000


class ScoringModel(Protocol):
    """The part of the translation model that forced scoring calls; also an `nn.Module`."""

    def encode(self, source: Tensor) -> Any:
        """Return the memory of source ids `(B, S)`."""
        ...

    def decode(self, target_input: Tensor, memory: Any) -> Tensor:
        """Return hidden states `(B, T, D)` of target ids `(B, T)` that start with `<s>`."""
        ...

    def project(self, hidden: Tensor) -> Tensor:
        """Return logits `(…, V)` of hidden states `(…, D)`."""
        ...


class ReferenceBatch(Protocol):
    """Sentence pairs as `shapeshift.data.batching.Batch` has them, on the model's device."""

    @property
    def source(self) -> Tensor:
        """`(B, S)`: ids, `</s>`, padding."""
        ...

    @property
    def target_input(self) -> Tensor:
        """`(B, T)`: `<s>`, ids, padding."""
        ...

    @property
    def target_output(self) -> Tensor:
        """`(B, T)`: ids, `</s>`, padding."""
        ...


@dataclass(frozen=True, slots=True)
class ReferenceScores:
    """Log-probabilities of one batch of references, natural logarithm.

    Attributes:
        tokens: `(B, T)` float32, log p of each token of `target_output`, 0 on padding.
        sentences: `(B,)` float32, their sum over each sentence: log p(y | x).
    """

    tokens: Tensor
    sentences: Tensor


def score_references(
    model: ScoringModel, batches: Iterable[ReferenceBatch]
) -> Iterator[ReferenceScores]:
    """Yield the log-probability of every reference token given the source and the tokens before it.

    The softmax is over the whole vocabulary in float32, without label smoothing. A model in
    training mode is put into evaluation mode for the computation only.

    Args:
        model: a translation model.
        batches: its pairs; the results come in the same order.

    Yields:
        The scores of one batch, on the model's device.
    """
    for batch in batches:
        with evaluating(model):
            scores = _score(model, batch)
        yield scores


def _score(model: ScoringModel, batch: ReferenceBatch) -> ReferenceScores:
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
    tokens = torch.cat(log_probs, dim=1).masked_fill(batch.target_output == PAD, 0.0)  # (B, T)
    return ReferenceScores(tokens, tokens.sum(dim=1))


@contextmanager
def evaluating(model: object) -> Iterator[None]:
    """Put every submodule into evaluation mode, without gradients, and back when the block ends.

    An object that is not an `nn.Module` has no modes and is left as it is.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    training = [module for module in modules if module.training]
    for module in training:
        module.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True
