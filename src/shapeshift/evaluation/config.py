"""How a run is tested."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from pydantic import Field, field_validator

from shapeshift.schema import Strict

MetricName = Literal["bleu", "chrf", "chrf++"]


class EvaluationConfig(Strict):
    """What is measured on the test set when training is done.

    Attributes:
        metrics: names from `evaluation.metrics.METRICS`.
        edges: bounds between the length buckets, in source subwords, ascending.
    """

    metrics: tuple[MetricName, ...] = Field(("bleu", "chrf"), min_length=1)
    edges: tuple[int, ...] = Field((10, 20, 30, 40, 50, 60), min_length=1)

    @field_validator("edges")
    @classmethod
    def _ascending(cls, edges: tuple[int, ...]) -> tuple[int, ...]:
        if edges[0] < 1 or any(low >= high for low, high in pairwise(edges)):
            raise ValueError(f"edges must ascend from 1 or more, got {list(edges)}")
        return edges
