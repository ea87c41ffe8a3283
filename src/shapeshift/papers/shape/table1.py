"""Table 1: BLEU of a training sequence's first sentence, in its place and moved to the end."""

from __future__ import annotations

from shapeshift.lab.measures import ORIGINAL, SWAPPED
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape.shared import GRID, PAIR, positions
from shapeshift.papers.spec import ClaimSpec
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import finding

# position -> BLEU in the original order, in the swapped order, performance drop
PUBLISHED = {"ape": (28.81, 20.74, 8.07), "shape": (28.51, 27.06, 1.45)}

_HEADER = ("position", "original", "swapped", "performance drop")
_DATASET = "interpolate"
_ORDERS = ("original order", "swapped order")


def build(study: Study) -> Content:
    """Make our table and the paper's, and judge the drops."""
    ours = DocumentTable(
        name="table1",
        title="BLEU of the first sentence of joined training pairs, in its place and at the end",
        header=(*_HEADER, "misparted (%), original", "misparted (%), swapped"),
        rows=tuple(_row(study, position) for position in positions(study, _DATASET)),
        notes=(
            f"Interpolate; {study.spread(GRID)}",
            "misparted: outputs with another number of sentences than the source",
        ),
    )
    return Content(tables=[ours, published()], findings=[_finding(study)])


def published() -> DocumentTable:
    """Return the paper's table."""
    return DocumentTable(
        name="table1-paper",
        title="BLEU on original and swapped order in the paper",
        origin="paper",
        header=_HEADER,
        rows=tuple(
            (*words(position), *map(number, values)) for position, values in PUBLISHED.items()
        ),
        notes=("10,000 sequences of ten sentences from the training data of Interpolate",),
    )


def _row(study: Study, position: str) -> tuple[Entry, ...]:
    axes = {"dataset": _DATASET, "position": position}
    original, swapped = (
        study.entry(study.rows(GRID, "BLEU", axes, bucket=order), "mean ± stdev")
        for order in _ORDERS
    )
    misparted = (
        study.entry(
            study.rows(GRID, "misparted_percent", axes, bucket=order), lambda mean: f"{mean:.1f}"
        )
        for order in _ORDERS
    )
    drop = missing()
    if original.value is not None and swapped.value is not None:
        value = original.value - swapped.value
        drop = Entry(text=f"{value:.2f}", value=value, rows=original.rows + swapped.rows)
    return (*words(position), original, swapped, drop, *misparted)


def _finding(study: Study) -> Finding:
    """Test how much more BLEU APE loses than SHAPE when the first sentence moves to the end."""
    claim = ClaimSpec(
        claim="Moving the first sentence to the end costs APE more BLEU than SHAPE.",
        rule="better",
        test={"position": "ape"},
        against={"position": "shape"},
        paper="drop in BLEU: APE 8.07 (28.81 to 20.74), SHAPE 1.45 (28.51 to 27.06)",
    )
    ape, shape = ({"dataset": _DATASET, "position": position} for position in PAIR)
    lost = study.compare(GRID, ape, shape, ORIGINAL, minus=SWAPPED)
    return finding(claim, {"drop in BLEU, ape against shape": lost}, study.scale)


ITEM = Item(
    "Table 1: BLEU on original and swapped order",
    (GRID,),
    build,
    axes={"dataset": _DATASET, "position": PAIR},
)
