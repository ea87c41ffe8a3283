"""A folder as `shapeshift reproduce` leaves it: three items of two papers, one of them hostile."""

from pathlib import Path

from matplotlib.figure import Figure

from shapeshift.papers.document import DocumentTable, Entry, Finding, ItemDocument, number, words
from shapeshift.papers.write import write_item

HOSTILE = "<script>alert('title')</script> & \"quotes\""
COMMON = {
    "scale": "tiny",
    "command": "shapeshift reproduce shape --jobs 2",
    "version": "0.1.0",
    "time": "2026-11-20T10:00:00+00:00",
}
SHAPE = "Kiyono, Kobayashi, Suzuki and Inui 2021, SHAPE, EMNLP"


def finding(claim, verdict, measured, paper):
    return Finding(claim=claim, verdict=verdict, measured=measured, paper=paper)


def table_item():
    """A table beside the paper's, findings of each verdict, runs that are missing."""
    header = ("dataset", "position", "test BLEU", "speed", "COMET")
    rows = [
        (*words(dataset, position), Entry(text=f"{bleu:.2f} ± 0.60", value=bleu, p_value=0.0421),
         number(0.98), number(None))
        for dataset in ("vanilla", "extrapolate")
        for position, bleu in (("ape", 29.52), ("rpe", 9.26), ("shape", 30.56))
    ]  # fmt: skip
    published = [
        (*words("vanilla", name), number(bleu), number(None), number(None))
        for name, bleu in (("ape", 30.46), ("rpe", 30.54), ("shape", 30.49))
    ]
    ours = DocumentTable(
        name="table2",
        title="BLEU and training speed",
        header=header,
        rows=tuple(rows),
        notes=("mean ± standard deviation over seeds", "speed: over ape's"),
    )
    changes = {"name": "table2-paper", "origin": "paper", "rows": tuple(published)}
    return ItemDocument(
        paper="shape",
        item="table2",
        title="Table 2: BLEU and speed",
        citation=SHAPE,
        tables=(ours, ours.model_copy(update=changes)),
        findings=(
            finding("SHAPE translates better than APE.", "supported", "23.3, 22.3", "29.8, 29.2"),
            finding("RPE is slower to train than APE.", "contradicted", "0.98 times", "0.91"),
            finding("SHAPE is as good as RPE.", "inconclusive", "two runs", "29.80, 29.86"),
        ),
        configs={f"run {number}": "" for number in range(12)},
        seeds=(1, 2),
        unfinished=("shape-table2, interpolate, ape, seed 1", "shape-table2, interpolate, rpe"),
        **COMMON,
    )


def figure_item():
    """A figure and its table."""
    drawing = Figure(figsize=(6.3, 2.6), layout="constrained")
    drawing.subplots().plot([10, 20, 30], [28.9, 25.4, 21.9])
    table = DocumentTable(
        name="lengths",
        title="BLEU by length",
        header=("position", "0–9", "10–19", "≥ 20"),
        rows=((*words("ape"), *(number(x, ".1f") for x in (28.9, 25.4, 21.9))),),
        figure="BLEU by length of the source",
        drawing=drawing,
    )
    return ItemDocument(
        paper="shape",
        item="figure3",
        title="Figure 3: BLEU by source length",
        citation=SHAPE,
        tables=(table,),
        configs=dict.fromkeys(("ape", "rpe", "shape"), ""),
        seeds=(1,),
        **COMMON | {"scale": "small", "time": "2026-11-20T11:30:00+00:00"},
    )


def hostile_item():
    """A wide table of a paper that we do not know; its texts try to be markup."""
    header = ("system", *(f"column {number}" for number in range(20)))
    row = (*words(HOSTILE), *(Entry(text="1.0", value=1.0) for _ in header[1:]))
    return ItemDocument(
        paper="outside",
        item="table10",
        title=HOSTILE,
        citation=HOSTILE,
        tables=(DocumentTable(name="wide", title=HOSTILE, header=header, rows=(row, row)),),
        findings=(finding(HOSTILE, "inconclusive", HOSTILE, HOSTILE),),
        **COMMON | {"command": HOSTILE},
    )


def write_reproduced(directory: Path) -> Path:
    """Write all items below a folder, and return it."""
    for item in (table_item(), figure_item(), hostile_item()):
        write_item(item, directory / item.scale / item.paper / item.item)
    return directory
