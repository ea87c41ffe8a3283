"""A folder as `shapeshift reproduce` leaves it: three items of two papers, one of them hostile."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure as Drawing

from shapeshift.papers.document import (
    DocumentFigure,
    DocumentTable,
    Entry,
    Finding,
    ItemDocument,
    missing,
    number,
    words,
)
from shapeshift.papers.item import Figure
from shapeshift.papers.write import write_item

POSITIONS = {"ape": (28.91, 30.12), "rpe": (9.5, 9.02), "shape": (29.43, 31.7)}
HOSTILE = "<script>alert('title')</script> & \"quotes\""
COMMON = {
    "scale": "tiny",
    "command": "shapeshift reproduce shape --jobs 2",
    "version": "0.1.0",
    "time": "2026-11-20T10:00:00+00:00",
}
SHAPE = "Kiyono, Kobayashi, Suzuki and Inui 2021, SHAPE, EMNLP"


def table_item() -> ItemDocument:
    """A table beside the paper's, findings of each verdict, runs that are missing."""
    lines = []
    for dataset, shift in (("vanilla", 0.0), ("extrapolate", -7.25)):
        for position, values in POSITIONS.items():
            mean = sum(values) / 2 + shift
            bleu = Entry(text=f"{mean:.2f} ± 0.60", value=mean, p_value=0.0421)
            lines.append((*words(dataset, position), bleu, number(0.98), missing()))
    header = ("dataset", "position", "test BLEU", "speed", "COMET")
    published = [
        (*words("vanilla", name), number(value), missing(), missing())
        for name, value in (("ape", 30.46), ("rpe", 30.54), ("shape", 30.49))
    ]
    return ItemDocument(
        paper="shape",
        item="table2",
        title="Table 2: BLEU and speed",
        citation=SHAPE,
        tables=(
            DocumentTable(
                name="table2",
                title="BLEU and training speed",
                header=header,
                rows=tuple(lines),
                notes=("mean ± standard deviation over seeds", "speed: over ape's"),
            ),
            DocumentTable(
                name="table2-paper",
                title="BLEU and training speed in the paper",
                origin="paper",
                header=header,
                rows=tuple(published),
                notes=("means of five seeds",),
            ),
        ),
        findings=(
            Finding(
                claim="SHAPE translates sentences longer than those of training better than APE.",
                verdict="supported",
                measured="23.3 against 22.3 BLEU, p = 0.004 over 2 seeds",
                paper="29.80 against 29.22",
            ),
            Finding(
                claim="RPE is slower to train than APE.",
                verdict="contradicted",
                measured="0.98 times the speed of APE",
                paper="0.91",
            ),
            Finding(
                claim="SHAPE is as good as RPE.",
                verdict="inconclusive",
                measured="one of three seeds of RPE has failed",
                paper="29.80 against 29.86",
            ),
        ),
        configs={f"run {number}": "" for number in range(12)},
        unfinished=("shape-table2, interpolate, ape, seed 1", "shape-table2, interpolate, rpe"),
        **COMMON,
    )


def figure_item() -> tuple[ItemDocument, list[Figure]]:
    """Two figures of the same numbers."""
    buckets = ("[0,10)", "[10,20)", "[20,30)", "[30,inf)")
    lines = [
        (*words(name), *(number(values[0] - 3.5 * place, ".1f") for place in range(len(buckets))))
        for name, values in POSITIONS.items()
    ]
    table = DocumentTable(
        name="lengths", title="BLEU by length", header=("position", *buckets), rows=tuple(lines)
    )
    figure = Drawing(figsize=(6.3, 2.6), layout="constrained")
    figure.subplots().plot(buckets, range(len(buckets)))
    drawn = [
        Figure(
            DocumentFigure(
                name=name,
                title=f"BLEU by length of the source, {times}",
                table="lengths",
                alt="Three falling lines, APE below the others.",
            ),
            figure,
        )
        for name, times in (("figure3", "once"), ("figure3b", "again"))
    ]
    document = ItemDocument(
        paper="shape",
        item="figure3",
        title="Figure 3: BLEU by source length",
        citation=SHAPE,
        tables=(table,),
        figures=tuple(each.about for each in drawn),
        configs=dict.fromkeys(POSITIONS, ""),
        **(COMMON | {"scale": "small", "time": "2026-11-20T11:30:00+00:00"}),
    )
    return document, drawn


def hostile_item() -> ItemDocument:
    """A wide table of a paper that we do not know; its texts try to be markup."""
    header = ("system", *(f"column {number}" for number in range(20)))
    lines = tuple(
        (*words(HOSTILE), *(Entry(text="1.0", value=1.0) for _ in header[1:])) for _ in range(2)
    )
    return ItemDocument(
        paper="outside",
        item="table10",
        title=HOSTILE,
        citation=HOSTILE,
        tables=(DocumentTable(name="wide", title=HOSTILE, header=header, rows=lines),),
        findings=(Finding(claim=HOSTILE, verdict="inconclusive", measured=HOSTILE, paper=HOSTILE),),
        **(COMMON | {"command": HOSTILE}),
    )


def write_reproduced(directory: Path) -> Path:
    """Write all items below a folder, and return it."""
    write_item(table_item(), [], directory / "tiny" / "shape" / "table2")
    document, drawn = figure_item()
    write_item(document, drawn, directory / "small" / "shape" / "figure3")
    write_item(hostile_item(), [], directory / "tiny" / "outside" / "table10")
    return directory
