"""Scores of a set of translations as a JSON document: over the whole test set and by source length,
with hashes of both sides.

Does a model translate lengths that it was not trained on? SHAPE (Kiyono et al. 2021), figures 3 and
7, and Figure 3 of the NHK study of positional encodings (LREC-COLING 2024) show this.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from shapeshift import __version__
from shapeshift._system.errors import ShapeshiftError, reason
from shapeshift._system.files import read
from shapeshift._system.schema import Strict
from shapeshift.evaluation.comet import DEFAULT_MODEL
from shapeshift.evaluation.metrics import (
    DEFAULT_METRICS,
    Score,
    check_parallel,
    score_corpus,
    score_sentences,
)
from shapeshift.evaluation.tokenizers import DEFAULT

FEW_SEGMENTS = 10
"""BLEU over fewer segments than this is marked: one sentence can change it by points."""


class LengthBucket(Strict):
    """BLEU over the segments whose source length lies in `[low, high)`.

    Attributes:
        low: the shortest length inside.
        high: the shortest length above it; `None` for the last bucket.
        num_segments: segments of the corpus in the bucket.
        score: their corpus BLEU; `None` if there are none, or none whose reference has the four
            words without which BLEU is 0 whatever the translation.
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
        """The bucket's lengths as shown to people: `0–9`, `10`, `≥ 50`."""
        if self.high is None:
            return f"≥ {self.low:,}"
        last = self.high - 1
        return f"{last:,}" if last == self.low else f"{self.low:,}–{last:,}"


def up_to_longest(buckets: Sequence[LengthBucket]) -> Sequence[LengthBucket]:
    """Return the buckets without those that are longer than every segment."""
    filled = [number for number, bucket in enumerate(buckets, start=1) if bucket.num_segments]
    return buckets[: max(filled, default=0)]


class Scores(Strict):
    """Scores of one set of hypotheses, with the hashes that allow comparing them.

    Attributes:
        version: the version of Shapeshift that computed them.
        num_segments: number of hypotheses.
        hypotheses_sha256: `sha256_lines` of the hypotheses.
        references_sha256: `sha256_lines` of the references. Two documents with the same hash and
            the same signatures compare.
        scores: over the whole corpus; for joined texts also by sentence, see `score_sentences`.
        by_length: BLEU by source length, shortest first; `None` if lengths were not given.
        weights_sha256: of the file of weights that translated, where a run was scored.
    """

    version: str
    num_segments: int
    hypotheses_sha256: str
    references_sha256: str
    scores: tuple[Score, ...]
    by_length: tuple[LengthBucket, ...] | None = None
    weights_sha256: str | None = None

    def document(self) -> str:
        """Return the document as JSON."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Scores:
        """Read scores from a JSON file."""
        try:
            return cls.model_validate_json(read(path))
        except (OSError, ValidationError) as error:
            raise ShapeshiftError(
                f"no scores can be read ({reason(error)}); write them again with"
                " `shapeshift score --json`",
                path=path,
            ) from error


def evaluate(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    metrics: Sequence[str] = DEFAULT_METRICS,
    tokenizer: str = DEFAULT,
    sources: Sequence[str] | None = None,
    comet_model: str = DEFAULT_MODEL,
    lengths: Sequence[int] | None = None,
    length_buckets: Sequence[int] = (),
) -> Scores:
    """Score one system on one test set: see `metrics.score_corpus` and, where the source length of
    each segment is given, `bleu_by_length`."""
    texts, buckets = (hypotheses, references), None
    scores = score_corpus(
        *texts, metrics, tokenizer=tokenizer, sources=sources, comet_model=comet_model
    )
    if lengths is not None:
        buckets = tuple(bleu_by_length(*texts, lengths, length_buckets, tokenizer=tokenizer))
    return Scores(
        version=__version__,
        num_segments=len(hypotheses),
        hypotheses_sha256=sha256_lines(hypotheses),
        references_sha256=sha256_lines(references),
        scores=(*scores, *score_sentences(*texts, metrics, tokenizer=tokenizer)),
        by_length=buckets,
    )


def bleu_by_length(
    hypotheses: Sequence[str],
    references: Sequence[str],
    lengths: Sequence[int],
    length_buckets: Sequence[int],
    *,
    metric: str = "bleu",
    tokenizer: str = DEFAULT,
) -> list[LengthBucket]:
    """Compute corpus BLEU, or another metric of sacreBLEU, separately for each bucket of source
    lengths, shortest first; see `metrics.score_corpus`. A bucket in which BLEU would be 0 also for
    the references has no score.

    Args:
        lengths: source length of each segment, in the unit of `length_buckets` (the papers count
            subwords).
        length_buckets: the bounds between buckets, ascending and positive. `(10, 20)` makes
            `[0, 10)`, `[10, 20)` and `[20, ∞)`: every segment falls into exactly one bucket.

    Raises:
        ShapeshiftError: unequal counts, nothing to score, or a tokenizer that cannot be used.
    """
    check_parallel(len(hypotheses), len(references))
    check_parallel(len(hypotheses), len(lengths), "source lengths")

    def score(segments: Sequence[int]) -> Score | None:
        own, wanted = ([texts[i] for i in segments] for texts in (hypotheses, references))
        is_short = metric == "bleu" and all(len(text.split()) < 4 for text in wanted)
        if is_short and not score_corpus(wanted, wanted, (metric,), tokenizer=tokenizer)[0].value:
            return None
        return score_corpus(own, wanted, (metric,), tokenizer=tokenizer)[0]

    return by_length(lengths, length_buckets, score)


def by_length(
    lengths: Sequence[int],
    length_buckets: Sequence[int],
    score: Callable[[Sequence[int]], Score | None],
) -> list[LengthBucket]:
    """Return the score of the segments of each bucket of lengths, which `score` computes from their
    numbers, or None; see `bleu_by_length`."""
    members: list[list[int]] = [[] for _ in range(len(length_buckets) + 1)]
    for segment, length in enumerate(lengths):
        members[bisect_right(length_buckets, length)].append(segment)
    buckets: list[LengthBucket] = []
    lows, highs = (0, *length_buckets), (*length_buckets, None)
    for low, high, segments in zip(lows, highs, members, strict=True):
        found = score(segments) if segments else None
        buckets.append(LengthBucket(low=low, high=high, num_segments=len(segments), score=found))
    return buckets


def sha256_lines(lines: Iterable[str]) -> str:
    r"""Return the SHA-256 of the lines in UTF-8, each ended by `\n`, in hexadecimal digits.

    For a text file whose last line is ended, this is what `sha256sum` prints.
    """
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
