"""A check that an exported model computes what the trained one does, and reads positions.

Sentences are random ids of those lengths at which positions may go wrong: 1, a clipping distance
and one more, the longest of training, and beyond it. Compared are log p of every target token, in
one padded batch and sentence by sentence, and beam search. A model that ignores positions would
agree with an export that lost them, so taking our model's positions away must make a difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.batching import make_batch
from shapeshift.data.subwords import BOS, EOS, PAD, SPECIAL_PIECES
from shapeshift.decoding.capacity import Capacity
from shapeshift.decoding.scoring import evaluating, score_references
from shapeshift.decoding.search import Stepper, beam_search
from shapeshift.model import Transformer
from shapeshift.positions import Representation
from shapeshift.positions.base import temporarily_set

from .support import STACKS, acting, reach, self_attentions

TOLERANCE = 1e-4
"""Of the log-probability of a token, natural logarithm."""

BEAM = 4
MAX_STEPS = 32  # of beam search
BEYOND = 8  # subwords more than the longest sentence of training

MAX_LENGTH = 1024
"""Tokens of a sentence, where an engine needs a number and the model has no limit of its own."""

Ids = list[list[int]]
LogProbs = list[list[float]]


class ParityError(ShapeshiftError):
    """An exported model computes something else, or the check could not tell."""


@dataclass(frozen=True)
class Parity:
    """Result of the check of an exported model, with the largest differences.

    Attributes:
        lengths: subwords of each source and target.
        log_prob: difference of the log-probability of a token, in one padded batch.
        alone: the same, each pair by itself.
        beam_score: difference of the score of the best hypothesis of beam search, a token.
        effects: stack → how much a log-probability changes when the positions of this stack are
            taken out of our model.
        num_tokens: of the outputs of beam search.
        num_mismatches: how many of them differ from ours.
    """

    lengths: list[tuple[int, int]]
    log_prob: float
    alone: float
    beam_score: float
    effects: dict[str, float] = field(default_factory=dict)
    num_tokens: int = 0
    num_mismatches: int = 0

    def __str__(self) -> str:
        """Return a line for people."""
        return (
            f"{len(self.lengths)} pairs: log p of a token differs by"
            f" {max(self.log_prob, self.alone):.1e}, {self.num_mismatches} of {self.num_tokens}"
            " tokens of beam search differ"
        )


class Engine(Protocol):
    """Interface to an exported model in its engine."""

    def score(self, sources: Ids, targets: Ids) -> LogProbs:
        """Return log p of each target token and the `</s>`, all pairs in one batch."""
        ...

    def search(self, sources: Ids, max_steps: int) -> list[tuple[list[int], float]]:
        """Return the best hypothesis of each source, of exactly `max_steps` tokens, and its
        log-probability. The beam is `BEAM`. `<pad>`, `<s>` and `</s>` are masked before the
        softmax, so that every step reads the keys that earlier steps cached."""
        ...


class OwnEngine:
    """A model with the methods of `Transformer`, in our own search."""

    def __init__(self, model: Any):
        self._model = model

    def score(self, sources: Ids, targets: Ids) -> LogProbs:
        rows = score_references(self._model, make_batch(sources, targets)).tolist()
        return [row[: len(ids) + 1] for row, ids in zip(rows, targets, strict=True)]

    def search(self, sources: Ids, max_steps: int) -> list[tuple[list[int], float]]:
        with evaluating(self._model):
            stepper = self._model.start(make_batch(sources, sources).source, BEAM)
            limits = torch.full((len(sources),), max_steps + 1)
            found = beam_search(_Endless(stepper, max_steps), limits, beam=BEAM)
        return [(best.tokens, best.log_prob) for best, *_ in found]


def sample(model: Transformer, limits: Capacity, longest: tuple[int, int]) -> tuple[Ids, Ids]:
    """Return sources and targets of random ids, within the limits of the exported model; `longest`
    gives the longest lengths in training."""
    turns = {1, 2}
    for kind in model.modules():
        if isinstance(kind, Representation) and (k := reach(kind)) is not None:
            turns |= {k, k + 1}
    sizes = (model.source.tokens.num_embeddings, model.target.tokens.num_embeddings)
    generator = torch.Generator().manual_seed(0)
    lengths, sides = [], []
    for limit, most in zip(limits, longest, strict=True):
        chosen = {max(1, n) for n in (*turns, most, most + BEYOND)}
        lengths.append(sorted(chosen if limit is None else {min(n, limit - 1) for n in chosen}))
    num_pairs = max(map(len, lengths))
    for side, (known, size) in enumerate(zip(lengths, sizes, strict=True)):
        # Turned by one, so that a short source meets a long target and the other way round.
        turned = [known[(n - side) % len(known)] for n in range(num_pairs)]
        first = len(SPECIAL_PIECES)
        sides.append(
            [torch.randint(first, size, (n,), generator=generator).tolist() for n in turned]
        )
    return sides[0], sides[1]


def check(model: Transformer, engine: Engine, limits: Capacity, longest: tuple[int, int]) -> Parity:
    """Compare an exported model in fp32 with ours; see `sample` for `limits` and `longest`.

    Raises:
        ParityError: they differ, or positions change nothing.
    """
    (sources, targets), own = sample(model, limits, longest), OwnEngine(model)
    ours, theirs = own.score(sources, targets), engine.score(sources, targets)
    alone = [engine.score([x], [y])[0] for x, y in zip(sources, targets, strict=True)]
    log_prob, worst_alone = _largest(ours, theirs), _largest(ours, alone)
    if not max(log_prob, worst_alone) <= TOLERANCE:  # also for NaN
        raise _failed(
            f"a token's log-probability differs by {max(log_prob, worst_alone):.2g}, expected at"
            f" most {TOLERANCE:g}"
        )
    steps = min(MAX_STEPS, max(map(len, targets)), limits.target or MAX_STEPS)
    found, expected = engine.search(sources, steps), own.search(sources, steps)
    beam_score = max(
        abs(a - b) / (len(ids) + 1) for (ids, a), (_, b) in zip(found, expected, strict=True)
    )
    outputs = [(ids, ours) for (ids, _), (ours, _) in zip(found, expected, strict=True)]
    differ = sum(a != b for ids, ours in outputs for a, b in zip(ids, ours, strict=True))
    # Different hypotheses of one score are a tie.
    if not beam_score <= TOLERANCE:
        raise _failed(f"beam search finds another output, whose score differs by {beam_score:.2g}")
    effects = {}
    for stack, embedding in zip(STACKS, (model.source, model.target), strict=True):
        attentions = self_attentions(model, stack)
        acts = any(acting(attention.position) for attention in attentions)
        if not acts and not embedding.position.acts("embed"):
            continue
        with temporarily_set([embedding, *attentions], "position", Representation()):
            effects[stack] = _largest(own.score(sources, targets), theirs)
        if not effects[stack] > TOLERANCE:
            raise ParityError(
                f"the positions of the {stack} change no log-probability by more than"
                f" {TOLERANCE:g}, so the check would not see if the export lost them; train the"
                " model longer, or train it with position=nope"
            )
    lengths = [(len(x), len(y)) for x, y in zip(sources, targets, strict=True)]
    num_tokens = sum(len(ids) for ids, _ in outputs)
    return Parity(lengths, log_prob, worst_alone, beam_score, effects, num_tokens, differ)


def _failed(what: str) -> ParityError:
    return ParityError(
        f"the exported model does not compute what the trained one does: {what}; nothing is"
        " written, translate with `shapeshift translate`, and please report it"
    )


def _largest(ours: LogProbs, theirs: LogProbs) -> float:
    rows = zip(ours, theirs, strict=True)
    differences = [abs(a - b) for row in rows for a, b in zip(*row, strict=True)]
    return float(torch.tensor(differences, dtype=torch.float64).max())  # NaN stays


class _Endless:
    """A stepper with the rules of `Engine.search`: every hypothesis ends at the limit, and its
    `</s>` has log-probability 0."""

    def __init__(self, stepper: Stepper, max_steps: int):
        self._stepper, self._left = stepper, max_steps
        self._logits: Tensor

    def step(self, tokens: Tensor) -> Tensor:
        if self._left:
            self._left -= 1
            self._logits = self._stepper.step(tokens)
            self._logits[:, [PAD, BOS, EOS]] = -math.inf
            return self._logits
        logits = self._logits.new_full((len(tokens), self._logits.shape[1]), -math.inf)
        logits[:, EOS] = 0.0
        return logits

    def reorder(self, rows: Tensor) -> None:
        self._stepper.reorder(rows)
