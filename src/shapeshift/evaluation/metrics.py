"""Corpus-level BLEU and chrF of detokenised text, computed by sacreBLEU, each with its signature.

A number without the tokenisation and smoothing that made it compares with nothing (Post 2018, "A
Call for Clarity in Reporting BLEU Scores"), so no function here returns a bare number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.base import Score as SacrebleuScore
from sacrebleu.metrics.bleu import BLEU, BLEUScore
from sacrebleu.metrics.chrf import CHRF, CHRFScore

from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.schema import Strict

METRICS: dict[str, Callable[[], Metric]] = {
    "bleu": BLEU,
    "chrf": CHRF,
    "chrf++": partial(CHRF, word_order=2),
}
"""The metrics by name. All have sacreBLEU's default settings; the signature spells them out."""

DEFAULT_METRICS = ("bleu", "chrf")


class Score(Strict):
    """The value of one metric over a corpus.

    Attributes:
        name: the metric's own name: `BLEU`, `chrF2` (the 2 is its beta), `chrF2++`.
        value: from 0 to 100; higher is better.
        signature: sacreBLEU's signature: references, case, tokenisation, smoothing, version.
        details: what the value is made of. BLEU: `brevity_penalty`, `precisions` in percent (one
            for each n-gram order), `hypothesis_length`, `reference_length` in tokens and their
            `length_ratio`. chrF: `char_order`, `word_order`, `beta`.
    """

    name: str
    value: float
    signature: str
    details: dict[str, int | float | tuple[float, ...]]


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str] = DEFAULT_METRICS,
) -> list[Score]:
    """Score translations against one reference each, over the whole corpus.

    Args:
        hypotheses: detokenised translations.
        references: detokenised references; `references[i]` belongs to `hypotheses[i]`.
        metrics: names from `METRICS`.

    Returns:
        One score for each metric, in the order of `metrics`.

    Raises:
        ShapeshiftError: unequal counts, nothing to score, or an unknown metric.
    """
    makers = [_lookup(name) for name in metrics]
    check_parallel(len(hypotheses), len(references))
    return [_score(make(), hypotheses, references) for make in makers]


def check_parallel(num_hypotheses: int, num_references: int) -> None:
    """Raise `ShapeshiftError` unless both counts are the same and not zero."""
    if num_hypotheses != num_references:
        raise ShapeshiftError(
            f"{num_hypotheses} hypotheses but {num_references} references: expected one "
            "reference for each hypothesis; score the file that was translated, whole"
        )
    if num_hypotheses == 0:
        raise ShapeshiftError("nothing to score: expected at least one segment, got none")


def _lookup(name: str) -> Callable[[], Metric]:
    if name not in METRICS:
        raise ShapeshiftError(
            f"unknown metric {name!r}: expected one of {', '.join(METRICS)}"
            + nearest(name, METRICS)
        )
    return METRICS[name]


def _score(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    result = metric.corpus_score(hypotheses, [references])
    return Score(
        name=result.name,
        value=result.score,
        # sacreBLEU knows the number of references, a part of the signature, only after scoring.
        signature=str(metric.get_signature()),
        details=_details(result),
    )


def _details(result: SacrebleuScore) -> dict[str, Any]:
    match result:
        case BLEUScore():
            return {
                "brevity_penalty": result.bp,
                "precisions": tuple(result.precisions),
                "hypothesis_length": result.sys_len,
                "reference_length": result.ref_len,
                "length_ratio": result.ratio,
            }
        case CHRFScore():
            return {
                "char_order": result.char_order,
                "word_order": result.word_order,
                "beta": result.beta,
            }
        case _:
            return {}
