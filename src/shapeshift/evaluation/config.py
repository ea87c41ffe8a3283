"""Settings of evaluation: metrics, length buckets, tokenizer, detokeniser, COMET."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from pydantic import Field, field_validator

from shapeshift._system.schema import Strict, added
from shapeshift.evaluation.comet import DEFAULT_MODEL
from shapeshift.evaluation.tokenizers import AUTO, check_name
from shapeshift.training.config import MetricNames


class EvaluationConfig(Strict):
    """How translations of the test set are scored after training.

    Attributes:
        metrics: names from `evaluation.metrics.METRICS`.
        length_buckets: bounds between the length buckets, in source subwords, ascending.
        tokenize: sacreBLEU's tokenizer for BLEU (`13a`, `intl`,
            `char`, `zh`, `ja-mecab`, `ko-mecab`, `flores200`, `none`, …), or `auto`: `zh` for
            Chinese, `ja-mecab` for Japanese (the extra `ja`), `ko-mecab` for Korean (the extra
            `ko`), `char` for Thai, Lao, Khmer, Burmese and Tibetan, which have no spaces between
            words, and `13a` for any other target language.
        detokenize: `moses` detokenises output before it is scored, printed or saved, by the rules
            of the target language (the extra `moses`); for corpora that are tokenised.
        comet_model: model of the metric `comet` (the extra `comet`): a name on the Hugging Face
            hub, or the path of a checkpoint.
    """

    metrics: MetricNames = Field(("bleu", "chrf"), min_length=1)
    length_buckets: tuple[int, ...] = Field((10, 20, 30, 40, 50, 60), min_length=1)
    tokenize: str = added(AUTO)
    detokenize: Literal["none", "moses"] = added("none")
    comet_model: str = added(DEFAULT_MODEL, min_length=1)

    @field_validator("length_buckets")
    @classmethod
    def _ascending(cls, bounds: tuple[int, ...]) -> tuple[int, ...]:
        if bounds[0] < 1 or any(low >= high for low, high in pairwise(bounds)):
            raise ValueError(f"bounds must ascend from 1 or more, got {list(bounds)}")
        return bounds

    @field_validator("tokenize")
    @classmethod
    def _known_tokenizer(cls, tokenize: str) -> str:
        if tokenize != AUTO:
            check_name(tokenize)
        return tokenize
