"""Greedy and beam search over a step function, for many sentences at once.

For a hypothesis y with n = |y| tokens, its `</s>` counted,

    log p(y | x) = Σ_t log softmax(logits_t)[y_t]        score(y) = log p(y | x) / lp(n)

The softmax is over the whole vocabulary, in float32. `<pad>` and `<s>` are never generated: they
are masked *after* the softmax, so that a hypothesis has the same log-probability here as under
forced scoring (`shapeshift.decoding.scoring`).

Order among equal scores is fixed: the earlier beam first, then the lower token id; a finished
hypothesis comes before one that finishes later.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift._system.errors import ShapeshiftError
from shapeshift.data.subwords import BOS, EOS, PAD
from shapeshift.decoding import recording
from shapeshift.decoding.config import NoPenalty
from shapeshift.kernels.decoding import best_continuations

Penalty = Callable[[int], float]
"""lp(n) for n = 1, 2, …: positive and never decreasing, which is what early stopping rests on."""

NO_PENALTY = NoPenalty()

CHECK_EVERY = 4
"""Steps after which a GPU is asked which sentences have stopped."""

_BLOCK = 64
"""Scores whose maximum is taken first, when the largest of many are searched."""


class Stepper(Protocol):
    """State of a decoder for num_sentences × beam rows; the beams of a sentence are adjacent.

    A stepper with `model` and `reserve`, such as `DecoderState`, is recorded if `recording`
    supports the device, unless its `reserves` is false. Otherwise, one with `begin` computes the
    first step once for all beams of a sentence.
    """

    def step(self, tokens: Tensor) -> Tensor:
        """Feed the last token of every row, `(rows,)` int64; return `(rows, V)` logits of the
        next."""

    def reorder(self, rows: Tensor) -> None:
        """Let new row i continue from old row `rows[i]`. `rows` is `(M,)`, M a multiple of the
        beam, grouped by sentence in the old order; finished sentences are left out."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A finished translation: token ids without `<s>` and `</s>`, log p(y | x), and that divided by
    the length penalty."""

    tokens: list[int]
    log_prob: float
    score: float

    @property
    def length(self) -> int:
        """Number of generated tokens, `</s>` among them: n of the length penalty."""
        return len(self.tokens) + 1


@torch.inference_mode()
def beam_search(
    stepper: Stepper,
    limits: Tensor,
    *,
    beam: int,
    n_best: int = 1,
    penalty: Penalty = NO_PENALTY,
    check_every: int | None = None,
    fixed_rows: bool = False,
) -> list[list[Hypothesis]]:
    """Keep the `beam` most probable unfinished hypotheses at every step; return the best finished.

    At every step the 2 · beam best continuations of a sentence are considered: at most `beam` of
    them end, so that `beam` others always continue. A hypothesis is finished when its `</s>` is
    among the first `beam`; finished ones take no place in the beam. A sentence stops when nothing
    can enter its n best any more: a live hypothesis of log-probability s can reach at most
    s / lp(limit), for its log-probability only falls and lp only grows. So stopping never changes
    the result. At its limit a sentence is closed: each live hypothesis gets `</s>` at its own
    probability. A sentence that stopped leaves the batch (`check_every`).

    A beam of 1 is greedy search: it ends at its first `</s>`, whatever the penalty.

    Args:
        stepper: decoder state with `beam` rows for each sentence.
        limits: `(B,)` int64, the most tokens of each sentence, `</s>` among them, 1 or more.
        beam: live hypotheses of a sentence.
        n_best: finished hypotheses to return, at most `beam`. The more, the later a sentence stops.
        penalty: lp(n).
        check_every: steps after which sentences that stopped leave the batch; the result is the
            same. By default 1 on a CPU; a GPU would wait for each check, and computes stopped
            sentences for a few steps instead. Where steps are recorded, which fixes the number of
            rows, they leave when the cache grows.
        fixed_rows: sentences that stopped keep their rows, so that all steps have one shape.

    Returns:
        For each sentence its hypotheses, best score first: n_best of them, or as many as there are.

    Raises:
        ShapeshiftError: the model gives NaN, or probability zero to every way to end.
    """
    longest = int(limits.max())
    lp = [1.0, *map(penalty, range(1, longest + 1))]  # lp(0) is unused
    divisors = torch.tensor(lp, device=limits.device)
    finished = _Finished(len(limits), n_best, longest, limits.device)
    live = _Live(limits, longest, beam, divisors[limits])
    if check_every is None:
        check_every = 1 if limits.device.type == "cpu" else CHECK_EVERY

    def step(begins: bool = False) -> None:
        live.reorder(stepper)
        live.length += 1
        logits = decoder.begin(live.last[::beam]) if begins else stepper.step(live.last)
        sums, parents, tokens = live.candidates(logits)  # (A, 2·beam) each, best first
        is_eos = tokens == EOS
        if check_every > 1 or is_eos.any():
            ends = sums[:, :beam].masked_fill(~is_eos[:, :beam], -math.inf)
            histories = live.history[parents[:, :beam]]  # (A, beam, L)
            scores = ends / divisors.index_select(0, live.length)
            finished.add(live.sentences, histories, ends, scores, live.length)
            going_on = is_eos.byte().argsort(dim=1, stable=True)[:, :beam]
            sums, parents, tokens = (x.gather(1, going_on) for x in (sums, parents, tokens))
        # A sentence at its limit has nothing but -inf left, so that it is never kept.
        kept = sums[:, 0] / live.best_divisors > finished.scores[live.sentences, -1]  # (A,)
        if beam == 1:
            kept &= ~is_eos[:, 0]
        live.advance(kept, sums[:, :beam], parents[:, :beam], tokens[:, :beam])

    decoder: Any = stepper
    reserves = hasattr(stepper, "reserve") and getattr(stepper, "reserves", True)
    records = recording.serves(limits.device) and reserves
    once_for_all = beam > 1 and hasattr(stepper, "begin")
    run: Callable[[], None] = step
    room = 0
    for length in range(1, longest + 1):
        if records and length > room:
            live.reorder(stepper)
            room = decoder.reserve(length, longest)
            run = recording.Recorded(step, decoder.model)
        if length == 1 and once_for_all and not records:
            step(begins=True)
        else:
            run()
        if length % check_every == 0 or length == longest:
            if not live.kept.any():
                break
            if not fixed_rows and (not records or length == room):  # else shapes have to stay
                live.leave()
    return finished.results()


def _top(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest values of each row and their columns; the lower column wins ties.

    `torch.topk` picks and orders equal values arbitrarily, and half precision makes many of them.
    Over a vocabulary, the k largest are in the k blocks of columns with the largest maxima, which
    takes a quarter of the time.
    """
    num_columns = scores.size(1)
    num_blocks = num_columns // _BLOCK
    if num_blocks <= 4 * k:
        columns = _first(scores, torch.arange(num_columns, device=scores.device), k)
        return scores.gather(1, columns), columns
    end = num_blocks * _BLOCK
    maxima = scores[:, :end].view(-1, num_blocks, _BLOCK).amax(dim=2)
    numbers = torch.arange(num_columns, device=scores.device)
    blocks = _first(maxima, numbers[:num_blocks], k)
    columns = (blocks[:, :, None] * _BLOCK + numbers[:_BLOCK]).flatten(1)  # (A, k · _BLOCK)
    columns = torch.cat([columns, numbers[end:].expand(len(scores), -1)], dim=1)
    values = scores.gather(1, columns)
    chosen = _first(values, columns, k)
    return values.gather(1, chosen), columns.gather(1, chosen)


def _first(values: Tensor, columns: Tensor, k: int) -> Tensor:
    """Return where the k largest float32 values of each row are, in their order; among equals, that
    of the lower column comes first. `columns` are whole numbers below 2^31 for all values."""
    bits = (values + 0.0).view(torch.int32)  # + 0.0: there is one zero
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # whole numbers in the same order
    keys = (ordered.long() << 32) - columns
    return keys.topk(min(k, values.size(1)), dim=1).indices


class _Live:
    """The unfinished hypotheses: `beam` rows for each of the A sentences still in the search. At
    first, all beams of a sentence are equal, so that only the first has a finite score."""

    def __init__(self, limits: Tensor, longest: int, beam: int, best_divisors: Tensor):
        num_rows = len(limits) * beam
        self.length = limits.new_zeros(1)  # of all hypotheses
        self.limits = limits  # (A,)
        self.best_divisors = best_divisors  # (A,): lp(limit), the largest lp
        self.sentences = torch.arange(len(limits), device=limits.device)  # (A,)
        self.kept = torch.ones_like(limits, dtype=torch.bool)  # (A,): those that go on
        self.first_rows = self.sentences[:, None] * beam  # (A, 1)
        self.sums = torch.full((len(limits), beam), -math.inf, device=limits.device)
        self.sums[:, 0] = 0.0
        self.last = limits.new_full((num_rows,), BOS)
        self.history = limits.new_zeros(num_rows, longest)  # (A·beam, L)
        self._rows = torch.empty_like(self.last)  # (A·beam,): that which each continues
        self._moved = False  # and whether it continues another than its own
        self._buffer: Tensor | None = None

    def reorder(self, stepper: Stepper) -> None:
        """Reorder the stepper's rows to match."""
        if self._moved:
            stepper.reorder(self._rows)
            self._moved = False

    def candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best continuations, best first: log-probability, parent row, token, each
        `(A, 2·beam)`, or `(A, 1)` for a beam of 1. In sentences at their limit only `</s>` follows.
        `logits (A·beam, V)` may be those of the first beams alone, `(A, V)`."""
        beam, vocabulary = self.sums.size(1), logits.size(1)
        one_for_all = len(logits) < self.sums.numel()
        closing = self.limits == self.length
        count = 1 if beam == 1 else 2 * beam
        if kernels.serves(logits):
            forced = torch.full_like(self.sentences, -1).masked_fill_(closing, EOS)
            sums = self.sums[:, :1] if one_for_all else self.sums
            sums, columns = best_continuations(
                logits, sums, forced, min(count, beam * vocabulary), (PAD, BOS)
            )
        else:
            logits = logits.repeat_interleave(beam, 0) if one_for_all else logits
            log_probs = self._log_probs(logits)
            eos = log_probs[:, EOS] + self.sums.flatten()
            sums = self.sums.masked_fill(closing[:, None], -math.inf)
            log_probs.add_(sums.view(-1, 1))[:, EOS] = eos
            sums, columns = _top(log_probs.view(-1, beam * vocabulary), count)
        parents = self.first_rows + columns.div(vocabulary, rounding_mode="floor")
        return sums, parents, columns.remainder(vocabulary)

    def _log_probs(self, logits: Tensor) -> Tensor:
        """Return `(A·beam, V)` float32 log-probabilities, -inf for what is never generated. (They
        overwrite those of the last step: a new tensor would cost as much as the softmax.)"""
        if self._buffer is None:
            self._buffer = torch.empty_like(logits, dtype=torch.float32)
        out = self._buffer[: len(logits)]
        if logits.dtype != torch.float32:
            logits = out.copy_(logits)
        torch.log_softmax(logits, -1, out=out)
        out[:, PAD] = -math.inf
        out[:, BOS] = -math.inf
        return out

    def advance(self, kept: Tensor, sums: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Append a token to every hypothesis, and drop the sentences that are not `kept`,
        `(A,)`."""
        self.kept.copy_(kept)
        self.sums.copy_(sums.masked_fill(~kept[:, None], -math.inf))
        self.last.copy_(tokens.flatten())
        if self.sums.size(1) > 1:  # in greedy search each row continues itself
            self._rows.copy_(parents.flatten())
            self._moved = True
            self.history.copy_(self.history.index_select(0, self._rows))
        self.history.index_copy_(1, self.length - 1, self.last[:, None])

    def leave(self) -> None:
        """Drop all sentences that are not in `kept`."""
        if self.kept.all():
            return
        rows = self.kept.repeat_interleave(self.sums.size(1)).nonzero().squeeze(1)
        self.last, self.history = self.last[rows], self.history[rows]
        self._rows = self._rows[rows] if self._moved else rows
        self._moved = True
        self.limits, self.best_divisors, self.sentences, self.sums, self.kept = (
            x[self.kept]
            for x in (self.limits, self.best_divisors, self.sentences, self.sums, self.kept)
        )
        self.first_rows = self.first_rows[: len(self.limits)]


class _Finished:
    """The n best finished hypotheses of all B sentences."""

    def __init__(self, num_sentences: int, n_best: int, longest: int, device: torch.device):
        self.n_best = n_best
        # Best first, and -inf while there are fewer: the last is what another has to beat.
        self.scores = torch.full((num_sentences, n_best), -math.inf, device=device)
        self.sums = torch.zeros_like(self.scores)
        self.lengths = torch.zeros_like(self.scores, dtype=torch.long)
        self.tokens = torch.zeros(num_sentences, n_best, longest, dtype=torch.long, device=device)

    def add(
        self, sentences: Tensor, tokens: Tensor, sums: Tensor, scores: Tensor, length: Tensor
    ) -> None:
        """Add C finished hypotheses of `length (1,)` tokens for each of some sentences: `tokens
        (some, C, L)`, `sums` and `scores (some, C)`; a score of -inf marks a missing hypothesis."""
        scores = torch.cat([self.scores[sentences], scores], dim=1)  # (some, n_best + C)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        order = order[:, : self.n_best]
        self.scores[sentences] = scores[:, : self.n_best]
        lengths = length.expand(sums.shape)
        for kept, new in ((self.sums, sums), (self.lengths, lengths)):
            kept[sentences] = torch.cat([kept[sentences], new], dim=1).gather(1, order)
        tokens = torch.cat([self.tokens[sentences], tokens], dim=1)
        order = order[:, :, None].expand(-1, -1, tokens.size(2))
        self.tokens[sentences] = tokens.gather(1, order)

    def results(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first."""
        if not self.scores[:, 0].isfinite().all():
            raise ShapeshiftError(
                "the model gives NaN or probability zero to every translation of a sentence; "
                "expected finite logits: take another checkpoint or a wider number format"
            )
        columns = (self.tokens, self.lengths, self.sums, self.scores)
        return [
            [
                Hypothesis(tokens[: length - 1], log_prob, score)
                for tokens, length, log_prob, score in zip(*sentence, strict=True)
                if score > -math.inf
            ]
            for sentence in zip(*(column.tolist() for column in columns), strict=True)
        ]
