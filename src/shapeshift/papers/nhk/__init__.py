"""Understanding How Positional Encodings Work in Transformer Model (Miyazaki et al. 2024)."""

from __future__ import annotations

from shapeshift.papers.item import Paper
from shapeshift.papers.nhk import figure3, table1, table2, table3, table5, table6

PAPER = Paper(
    title="How positional encodings work",
    citation="Miyazaki, Mino and Kaneko 2024, Understanding How Positional Encodings Work in"
    " Transformer Model, LREC-COLING",
    items={
        "table1": table1.ITEM,
        "table2": table2.ITEM,
        "table3": table3.ITEM,
        "figure3": figure3.ITEM,
        "table5": table5.ITEM,
        "table6": table6.ITEM,
    },
    aliases={"table4": "figure3"},
)
