"""SHAPE: Shifted Absolute Position Embedding for Transformers (Kiyono et al. 2021)."""

from __future__ import annotations

from shapeshift.papers.build import shipped_item
from shapeshift.papers.item import Paper
from shapeshift.papers.shape import (
    curves,
    datasets,
    figure4,
    lengths,
    similarity,
    table1,
    table7,
)

PAPER = Paper(
    title="SHAPE",
    citation="Kiyono, Kobayashi, Suzuki and Inui 2021, SHAPE: Shifted Absolute Position Embedding"
    " for Transformers, EMNLP",
    items={
        "table1": table1.ITEM,
        "figure2": similarity.FIGURE2,
        "table2": shipped_item("shape", "table2"),
        "figure3": lengths.FIGURE3,
        "figure4": figure4.ITEM,
        "table3": datasets.ITEM,
        "offsets": shipped_item("shape", "offsets"),
        "figure6": similarity.FIGURE6,
        "table5": shipped_item("shape", "table5"),
        "figure7": lengths.FIGURE7,
        "figure8": curves.FIGURE8,
        "figure9": curves.FIGURE9,
        "table6": shipped_item("shape", "table6"),
        "table7": table7.ITEM,
    },
    aliases={"figure5": "table3", "table4": "offsets"},
)
