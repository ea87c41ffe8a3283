"""Settings of decoding: beam, length penalty, length limits, batch size.

The penalties divide the log-probability of a hypothesis y: score(y) = log p(y | x) / lp(n), where
n = |y| counts the generated tokens with the final `</s>`.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from shapeshift._system.schema import Strict

MAX_SOURCE_LENGTH = 4_096
"""Most subwords of a line without `max_source_length`. Attention takes time with their square."""


class NoPenalty(Strict):
    """lp(n) = 1: the score is the log-probability itself, which favours short output."""

    name: Literal["none"] = "none"

    def __call__(self, length: int) -> float:
        return 1.0


class GnmtPenalty(Strict):
    """lp(n) = ((5 + n) / 6)^alpha (Wu et al. 2016, section 7); alpha = 0 is no penalty."""

    name: Literal["gnmt"] = "gnmt"
    alpha: float = Field(default=0.6, ge=0.0, le=10.0, allow_inf_nan=False)

    def __call__(self, length: int) -> float:
        return float(((5 + length) / 6) ** self.alpha)


class AveragePenalty(Strict):
    """lp(n) = n: the score is the mean log-probability of a token."""

    name: Literal["average"] = "average"

    def __call__(self, length: int) -> float:
        return float(length)


LengthPenalty = Annotated[NoPenalty | GnmtPenalty | AveragePenalty, Field(discriminator="name")]


def exponent(penalty: LengthPenalty) -> float:
    """Return the exponent of the length penalty in other engines, which divide by a power of the
    length (with `gnmt`, of another base)."""
    if isinstance(penalty, NoPenalty):
        return 0.0
    return penalty.alpha if isinstance(penalty, GnmtPenalty) else 1.0


class DecodingConfig(Strict):
    """How to search for a translation. The defaults are those of Vaswani et al. (2017) and
    Shaw et al. (2018), beam 4 and alpha 0.6, except for the length limit.

    Args:
        beam: number of hypotheses for each sentence; 1 is greedy search.
        length_penalty: what divides log-probabilities; see the classes above.
        max_length_a: see `max_length_b`.
        max_length_b: a translation has at most floor(a · S + b) tokens with its `</s>`, and at
            least one, where S counts source subwords without `</s>`.
        max_tokens: maximum size of a batch: sentences × (longest source with `</s>`). A longer
            sentence is a batch by itself.
        max_sentences: largest number of sentences in a batch. The decoder has `beam` times as
            many rows.
        buffer_size: number of sentences that are read and sorted by length before the first is
            translated. A larger buffer needs less padding but answers later.
        max_source_length: a line of more subwords is too long, as is one that the model has no
            positions for; null stands for 4,096, beyond which time and memory run out.
        on_long: what to do with a line that is too long: `error` stops, `split` cuts it at the ends
            of sentences or words and joins the translations of its pieces, and `skip` gives an
            empty line.
        batch_invariant: a translation does not depend on the other sentences, bit for bit, on a
            CPU with the same number of threads; `shapeshift.decoding.invariance` explains how, and
            its cost.
    """

    beam: int = Field(default=4, ge=1, le=10_000)
    length_penalty: LengthPenalty = GnmtPenalty()
    max_length_a: float = Field(default=1.2, ge=0.0, le=100.0, allow_inf_nan=False)
    max_length_b: float = Field(default=10.0, ge=0.0, le=10_000.0, allow_inf_nan=False)
    max_tokens: int = Field(default=4096, ge=1)
    max_sentences: int = Field(default=128, ge=1)
    buffer_size: int = Field(default=1000, ge=1, le=10**9)
    max_source_length: int | None = Field(default=None, ge=1)
    on_long: Literal["error", "split", "skip"] = "error"
    batch_invariant: bool = False

    @property
    def most_source_subwords(self) -> int:
        """Limit on the subwords of a line, in addition to the model's positions."""
        return self.max_source_length or MAX_SOURCE_LENGTH

    def length_limit(self, source_length: int) -> int:
        """Return the most tokens, `</s>` included, for a source of `source_length` subwords."""
        return max(1, math.floor(self.max_length_a * source_length + self.max_length_b))
