"""Self-Attention with Relative Position Representations (Shaw et al. 2018)."""

from __future__ import annotations

from shapeshift.papers.build import shipped_item
from shapeshift.papers.item import Paper

PAPER = Paper(
    title="Relative positions",
    citation="Shaw, Uszkoreit and Vaswani 2018, Self-Attention with Relative Position"
    " Representations, NAACL",
    items={name: shipped_item("shaw", name) for name in ("table1", "speed", "table2", "table3")},
)
