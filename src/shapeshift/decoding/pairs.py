"""Forced scoring of many pairs: log p(target | source) of each, in batches, in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from shapeshift.data.batching import Batch, make_batch
from shapeshift.data.subwords import PAD
from shapeshift.decoding.batches import batches
from shapeshift.decoding.config import DecodingConfig
from shapeshift.decoding.invariance import Frame, fill
from shapeshift.decoding.running import Runner
from shapeshift.decoding.scoring import score_references

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class PairScore:
    """What a model thinks of one target: log p(y | x), natural logarithm, and the tokens it sums
    over, with the `</s>`."""

    log_prob: float
    num_tokens: int


def score_pairs(
    runner: Runner, sources: Ids, targets: Ids, config: DecodingConfig
) -> list[PairScore]:
    """Return log p(target | source) of each pair, in order.

    Args:
        runner: the model.
        sources, targets: as many sequences of ids each, without special ones.
        config: the size of batches, and whether a pair's score may depend on the others.
    """
    sides = [(len(x) + 1, len(y) + 1) for x, y in zip(sources, targets, strict=True)]
    frames = None
    if config.batch_invariant:
        frames = [(runner.source_frame(x), runner.target_frame(y)) for x, y in sides]
    scores = [PairScore(0.0, y) for _, y in sides]
    for numbers in batches([max(side) for side in sides], config, frames):
        batch = make_batch([sources[n] for n in numbers], [targets[n] for n in numbers])
        if frames is not None:
            batch = _framed(batch, *frames[numbers[0]])
        with runner.ready():
            (found,) = score_references(runner.model, [batch.to(runner.device)])
        for number, tokens in zip(numbers, found.tokens.tolist(), strict=False):
            num_tokens = sides[number][1]
            # Summed exactly: the order in which a tensor is summed depends on its shape.
            scores[number] = PairScore(math.fsum(tokens[:num_tokens]), num_tokens)
    return scores


def _framed(batch: Batch, source: Frame, target: Frame) -> Batch:
    rows = min(source.rows, target.rows)
    ids = [
        fill(side, Frame(rows, frame.width), PAD)
        for side, frame in (
            (batch.source, source),
            (batch.target_input, target),
            (batch.target_output, target),
        )
    ]
    return replace(batch, source=ids[0], target_input=ids[1], target_output=ids[2])
