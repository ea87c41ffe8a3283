"""SHAPE: Shifted Absolute Position Embedding for Transformers (Kiyono et al. 2021)."""

from __future__ import annotations

from shapeshift.papers.item import Paper
from shapeshift.papers.shape import table2

PAPER = Paper(
    title="SHAPE",
    citation="Kiyono, Kobayashi, Suzuki and Inui 2021, SHAPE: Shifted Absolute Position Embedding"
    " for Transformers, EMNLP",
    items={
        "table2": table2.ITEM,
    },
)
