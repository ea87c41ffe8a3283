"""Beyond the papers: their designs with every position representation that the library has."""

from __future__ import annotations

from shapeshift.papers.beyond.learning import ITEM as LEARNING
from shapeshift.papers.beyond.master import ITEM as MASTER
from shapeshift.papers.build import shipped_item
from shapeshift.papers.item import Paper

PAPER = Paper(
    title="Beyond the papers",
    citation="the designs of Shaw et al. 2018, Kiyono et al. 2021 and Miyazaki et al. 2024 with"
    " every position representation of Shapeshift",
    items={"master": MASTER, "learning": LEARNING, "places": shipped_item("beyond", "places")},
)
