"""BLEU by source length: does a model translate lengths that it was not trained on?

SHAPE (Kiyono et al. 2021), figures 3 and 7, and Figure 3 of the NHK study of positional encodings
(LREC-COLING 2024) show these numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from shapeshift.evaluation.metrics import Score, check_parallel, score_corpus
from shapeshift.evaluation.tokenizers import DEFAULT
from shapeshift.schema import Strict

FEW_SEGMENTS = 10
"""BLEU over fewer segments than this is marked: one sentence can change it by points."""


class LengthBucket(Strict):
    """BLEU over the segments whose source length lies in `[low, high)`.

    Attributes:
        low: the shortest length inside.
        high: the shortest length above it; `None` for the last bucket.
        num_segments: segments of the corpus in the bucket.
        score: their corpus BLEU; `None` if there are none.
    """

    low: int
    high: int | None
    num_segments: int
    score: Score | None

    @property
    def bleu(self) -> float | None:
        """The BLEU value alone, `None` for an empty bucket."""
        return None if self.score is None else self.score.value

    @property
    def is_small(self) -> bool:
        """Whether there are segments, but too few (`FEW_SEGMENTS`) for a stable BLEU."""
        return 0 < self.num_segments < FEW_SEGMENTS

    @property
    def label(self) -> str:
        """The lengths inside, for people: `0–9`, `10`, `≥ 50`."""
        if self.high is None:
            return f"≥ {self.low}"
        return str(self.low) if self.high == self.low + 1 else f"{self.low}–{self.high - 1}"


def bleu_by_length(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lengths: Sequence[int],
    length_buckets: Sequence[int],
    *,
    tokenizer: str = DEFAULT,
) -> list[LengthBucket]:
    """Compute corpus BLEU separately for each bucket of source lengths.

    Args:
        hypotheses: detokenised translations.
        references: detokenised references, one for each hypothesis.
        lengths: source length of each segment, in the unit of `length_buckets` (the papers count
            subwords).
        length_buckets: the bounds between buckets, ascending and positive. `(10, 20)` makes
            `[0, 10)`, `[10, 20)` and `[20, ∞)`: every segment falls into exactly one bucket.
        tokenizer: of BLEU, see `evaluation.tokenizers`.

    Returns:
        `len(length_buckets) + 1` buckets, shortest first.

    Raises:
        ShapeshiftError: unequal counts, nothing to score, or a tokenizer that cannot be used.
    """
    check_parallel(len(hypotheses), len(references))
    check_parallel(len(hypotheses), len(lengths), "source lengths")
    members: list[list[int]] = [[] for _ in range(len(length_buckets) + 1)]
    for segment, length in enumerate(lengths):
        members[bisect_right(length_buckets, length)].append(segment)
    buckets = []
    bounds = zip([0, *length_buckets], [*length_buckets, None], strict=True)
    for (low, high), segments in zip(bounds, members, strict=True):
        score = None
        if segments:
            own, wanted = ([texts[i] for i in segments] for texts in (hypotheses, references))
            [score] = score_corpus(own, wanted, ("bleu",), tokenizer=tokenizer)
        buckets.append(LengthBucket(low=low, high=high, num_segments=len(segments), score=score))
    return buckets
