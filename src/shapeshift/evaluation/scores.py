"""The scores of one system on one test set, as a JSON document with hashes of both sides."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from shapeshift import __version__
from shapeshift.errors import ShapeshiftError, reason
from shapeshift.evaluation.comet import DEFAULT_MODEL
from shapeshift.evaluation.lengths import LengthBucket, bleu_by_length
from shapeshift.evaluation.metrics import DEFAULT_METRICS, Score, score_corpus, score_sentences
from shapeshift.evaluation.tokenizers import DEFAULT
from shapeshift.schema import Strict


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

    def find(self, name: str) -> Score | None:
        """Return the score with this name (`BLEU`, `chrF2`), or `None`."""
        return next((score for score in self.scores if score.name == name), None)

    def document(self) -> str:
        """Return the document as JSON."""
        return self.model_dump_json(indent=2) + "\n"

    @classmethod
    def load(cls, path: str | Path) -> Scores:
        """Read a file that holds such a document."""
        try:
            return cls.model_validate_json(Path(path).read_bytes())
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
    """Score one system on one test set.

    Args:
        hypotheses: detokenised translations.
        references: detokenised references, one for each hypothesis.
        metrics: names from `metrics.METRICS`.
        tokenizer, sources, comet_model: see `metrics.score_corpus`.
        lengths: source length of each segment, for BLEU by length.
        length_buckets: the bounds between the length buckets, see `bleu_by_length`.
    """
    scores = score_corpus(
        hypotheses,
        references,
        metrics,
        tokenizer=tokenizer,
        sources=sources,
        comet_model=comet_model,
    )
    buckets = None
    if lengths is not None:
        buckets = bleu_by_length(
            hypotheses, references, lengths, length_buckets, tokenizer=tokenizer
        )
    return Scores(
        version=__version__,
        num_segments=len(hypotheses),
        hypotheses_sha256=sha256_lines(hypotheses),
        references_sha256=sha256_lines(references),
        scores=(*scores, *score_sentences(hypotheses, references, metrics, tokenizer=tokenizer)),
        by_length=None if buckets is None else tuple(buckets),
    )


def sha256_lines(lines: Iterable[str]) -> str:
    r"""Return the SHA-256 of the lines in UTF-8, each ended by `\n`, in hexadecimal digits.

    For a text file whose last line is ended, this is what `sha256sum` prints.
    """
    digest = hashlib.sha256()
    for line in lines:
        digest.update(line.encode("utf-8"))
        digest.update(b"\n")
    return digest.hexdigest()
