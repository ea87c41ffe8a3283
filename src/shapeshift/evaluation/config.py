"""How a run is tested."""

from __future__ import annotations

from pydantic import Field

from shapeshift.schema import Strict


class EvaluationConfig(Strict):
    """What is measured on the test set when training is done.

    Attributes:
        metrics: names from `evaluation.metrics.METRICS`.
        edges: bounds between the length buckets, in source subwords.
    """

    metrics: tuple[str, ...] = ("bleu", "chrf")
    edges: tuple[int, ...] = Field((10, 20, 30, 40, 50, 60), min_length=1)
