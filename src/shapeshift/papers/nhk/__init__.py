"""Understanding How Positional Encodings Work in Transformer Model (Miyazaki et al. 2024)."""

from __future__ import annotations

from shapeshift.papers.build import shipped_item
from shapeshift.papers.item import Paper
from shapeshift.papers.nhk import figure3, table1

PAPER = Paper(
    title="How positional encodings work",
    citation="Miyazaki, Mino and Kaneko 2024, Understanding How Positional Encodings Work in"
    " Transformer Model, LREC-COLING",
    items={
        "table1": table1.ITEM,
        "table2": shipped_item("nhk", "table2"),
        "table3": shipped_item("nhk", "table3"),
        "figure3": figure3.ITEM,
        "table5": shipped_item("nhk", "table5"),
        "table6": shipped_item("nhk", "table6"),
    },
    aliases={"table4": "figure3"},
)
