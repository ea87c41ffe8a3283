"""Self-Attention with Relative Position Representations (Shaw et al. 2018)."""

from __future__ import annotations

from shapeshift.papers.item import Paper
from shapeshift.papers.shaw import speed, table1, table2, table3

PAPER = Paper(
    title="Relative positions",
    citation="Shaw, Uszkoreit and Vaswani 2018, Self-Attention with Relative Position"
    " Representations, NAACL",
    items={
        "table1": table1.ITEM,
        "speed": speed.ITEM,
        "table2": table2.ITEM,
        "table3": table3.ITEM,
    },
)
