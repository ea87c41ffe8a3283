"""Corpus-level BLEU, chrF and COMET of detokenised text, each with its signature.

sacreBLEU computes BLEU and chrF, `evaluation.comet` COMET.

A BLEU score cannot be compared without its tokenisation and smoothing (Post 2018, "A Call for
Clarity in Reporting BLEU Scores"), so every score has a signature.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, get_args

from pydantic import Field
from sacrebleu.metrics.base import Metric as SacrebleuMetric
from sacrebleu.metrics.chrf import CHRF

from shapeshift._system.errors import ShapeshiftError, nearest
from shapeshift._system.schema import Strict
from shapeshift.data.subwords import SEPARATOR
from shapeshift.evaluation import comet
from shapeshift.evaluation.tokenizers import DEFAULT, make_bleu
from shapeshift.training.config import MetricName

SACREBLEU: dict[str, Callable[[str], SacrebleuMetric]] = {
    "bleu": make_bleu,
    "chrf": lambda _: CHRF(),
    "chrf++": lambda _: CHRF(word_order=2),
}
"""Name → sacreBLEU's metric for one of its tokenizers, which chrF ignores. Other settings are
sacreBLEU's defaults, which the signature lists."""

METRICS = get_args(MetricName)
DEFAULT_METRICS = ("bleu", "chrf")
BY_SENTENCE = " by sentence"
"""After the name of a metric whose joined texts are scored sentence by sentence."""

_DETAILS = ("bp", "precisions", "sys_len", "ref_len", "ratio")
_SEPARATOR = re.compile(rf"(?:^|\s){SEPARATOR.strip()}(?=\s|$)")


class Score(Strict):
    """The value of one metric over a corpus.

    Attributes:
        name: the metric's own name: `BLEU`, `chrF2` (the 2 is its beta), `chrF2++`, `COMET`; or
            `BLEU by sentence`, see `score_sentences`.
        value: from 0 to 100 (COMET may exceed both); higher is better.
        signature: settings that the value depends on. sacreBLEU's: references, case, tokenisation,
            smoothing, version; COMET's: see `evaluation.comet`.
        details: parts of the value, as sacreBLEU names them. BLEU: `bp`, `precisions` in percent
            (one for each n-gram order), `sys_len`, `ref_len` in tokens and their `ratio`.
        examples: the value of each segment, where the score is their mean; not in documents.
    """

    name: str
    value: float
    signature: str
    details: dict[str, int | float | tuple[float, ...]]
    examples: tuple[float, ...] = Field(default=(), exclude=True, repr=False)


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    tokenizer: str = DEFAULT,
    sources: Sequence[str] | None = None,
    comet_model: str = comet.DEFAULT_MODEL,
) -> list[Score]:
    """Score translations against one reference each, over the whole corpus.

    Args:
        hypotheses: detokenised translations.
        references: detokenised references; `references[i]` belongs to `hypotheses[i]`.
        metrics: names from `METRICS`.
        tokenizer: of BLEU, see `evaluation.tokenizers`.
        sources: the text that was translated, line by line, for COMET.
        comet_model: of the metric `comet`, see `evaluation.comet`.

    Returns:
        One score for each metric, in the order of `metrics`.

    Raises:
        ShapeshiftError: unequal counts, nothing to score, an unknown metric or tokenizer, COMET
            without sources or its package.
    """
    for name in metrics:
        if name not in METRICS:
            known = f"{', '.join(METRICS)}{nearest(name, METRICS)}"
            raise ShapeshiftError(f"unknown metric {name!r}: expected one of {known}")
    check_parallel(len(hypotheses), len(references))
    if sources is not None:
        check_parallel(len(hypotheses), len(sources), "sources")
    scores = []
    for name in metrics:
        if name in SACREBLEU:
            metric = SACREBLEU[name](tokenizer)
            result = metric.corpus_score(hypotheses, [references])
            # sacreBLEU knows the number of references, a part of the signature, only now.
            own = {"name": result.name, "signature": str(metric.get_signature())}
            details: dict[str, Any] = {x: y for x, y in vars(result).items() if x in _DETAILS}
            scores.append(Score(**own, value=result.score, details=details))
        elif sources is None:
            raise ShapeshiftError(
                "COMET needs the sources: give the file that was translated (`shapeshift score"
                " --source FILE`)"
            )
        else:
            value, signature, own_scores = comet.score(sources, hypotheses, references, comet_model)
            own = {"name": "COMET", "signature": signature, "examples": own_scores}
            scores.append(Score(**own, value=value, details={}))
    return scores


def score_sentences(
    hypotheses: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    tokenizer: str = DEFAULT,
) -> list[Score]:
    """Score joined texts (Interpolate) sentence by sentence. `score_corpus` scores them as they
    are, and BLEU counts each ` <sep> ` as three correct tokens.

    A translation is split at its separators, like its reference. If it has fewer sentences than
    the reference, the missing ones are empty; if it has more, the last one gets the rest.

    Returns:
        A score named `BLEU by sentence` and so on for each of sacreBLEU's metrics, with
        `num_sentences` and `num_misparted`, the texts whose translation has another number of
        sentences, in its details. Nothing if no reference is joined.
    """
    texts = [_SEPARATOR.split(text) for text in references]
    chosen = [name for name in metrics if name in SACREBLEU]
    if not chosen or all(len(text) == 1 for text in texts):
        return []
    split: list[str] = []
    num_misparted = 0
    for hypothesis, text in zip(hypotheses, texts, strict=True):
        parts = _SEPARATOR.split(hypothesis)
        num_misparted += len(parts) != len(text)
        parts += [""] * (len(text) - len(parts))
        split += [*parts[: len(text) - 1], " ".join(parts[len(text) - 1 :])]
    sentences = [sentence for text in texts for sentence in text]
    counts = {"num_sentences": len(sentences), "num_misparted": num_misparted}
    scores = score_corpus(split, sentences, chosen, tokenizer=tokenizer)
    own = [{"name": x.name + BY_SENTENCE, "details": x.details | counts} for x in scores]
    return [score.model_copy(update=each) for score, each in zip(scores, own, strict=True)]


def check_parallel(num_hypotheses: int, num_others: int, others: str = "references") -> None:
    """Raise `ShapeshiftError` unless both counts are the same and not zero."""
    if num_hypotheses != num_others:
        raise ShapeshiftError(
            f"{num_hypotheses} hypotheses but {num_others} {others}: expected one for each; score"
            " the file that was translated, whole"
        )
    if num_hypotheses == 0:
        raise ShapeshiftError("nothing to score: expected at least one segment, got none")
