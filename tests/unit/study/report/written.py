"""A folder as `shapeshift reproduce` leaves it: three studies of two papers, one of them
hostile."""

from pathlib import Path

from matplotlib.figure import Figure

from shapeshift.study.document import DocumentTable, Entry, Finding, StudyDocument, number, words
from shapeshift.study.write import write_study

HOSTILE = "<script>alert('title')</script> & \"quotes\""


def make_item(study, title, *tables, findings=(), **changes):
    common = {
        "paper": "shape", "citation": "Kiyono, Kobayashi, Suzuki and Inui 2021, SHAPE, EMNLP",
        "profile": "tiny", "command": "shapeshift reproduce shape --jobs 2", "version": "0.1.0",
        "time": "2026-11-20T10:00:00+00:00", "study": study, "title": title, "tables": tables,
    }  # fmt: skip
    names = ("claim", "verdict", "measured", "paper")
    found = tuple(Finding(**dict(zip(names, each, strict=True))) for each in findings)
    return StudyDocument(**common | {"findings": found} | changes)


def table_item():
    """A table beside the paper's, findings of each verdict, runs that are missing."""
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
        header=("recipe", "position", "test BLEU", "speed", "COMET"),
        rows=rows,
        notes=("mean ± standard deviation over seeds", "speed: over ape's, ` <sep> ` left out"),
    )
    changes = {"name": "table2-paper", "origin": "paper", "rows": tuple(published)}
    return make_item(
        "table2",
        "Table 2: BLEU and speed",
        ours,
        ours.model_copy(update=changes),
        findings=(
            ("SHAPE translates better than APE.", "supported", "23.3, 22.3", "29.8, 29.2"),
            ("RPE is slower to train than APE.", "contradicted", "0.98 times", "0.91"),
            ("SHAPE is as good as RPE.", "inconclusive", "two runs", "29.80, 29.86"),
        ),
        configs={f"run {number}": "" for number in range(12)},
        seeds=(1, 2),
        unfinished=("shape-table2, interpolate, ape, seed 1", "shape-table2, interpolate, rpe"),
    )


def write_reproduced(directory: Path) -> Path:
    """Write a table, a figure, and a wide table of a paper that we do not know, whose texts try to
    be markup, below a folder; return it."""
    drawing = Figure(figsize=(6.3, 2.6), layout="constrained")
    drawing.subplots().plot([10, 20, 30], [28.9, 25.4, 21.9])
    lengths = DocumentTable(
        name="lengths",
        title="BLEU by length",
        header=("position", "0–9", "10–19", "≥ 20"),
        rows=((*words("ape"), *(number(x, ".1f") for x in (28.9, 25.4, 21.9))),),
        figure="BLEU by length of the source",
        drawing=drawing,
    )
    configs = dict.fromkeys(("ape", "rpe", "shape"), "")
    runs = {"configs": configs, "seeds": (1,), "profile": "small"}
    figure = make_item("figure3", "Figure 3: BLEU by source length", lengths, **runs)
    header = ("position", *(f"column {number}" for number in range(20)))
    row = (*words(HOSTILE), *(Entry(text="1.0", value=1.0) for _ in header[1:]))
    wide = DocumentTable(name="wide", title=HOSTILE, header=header, rows=(row, row))
    hostile = {"paper": "outside", "citation": HOSTILE, "command": HOSTILE}
    finding = (HOSTILE, "inconclusive", HOSTILE, HOSTILE)
    for study in (
        table_item(), figure,
        make_item("table10", HOSTILE, wide, findings=[finding], **hostile),
    ):  # fmt: skip
        write_study(study, directory / study.profile / study.paper / study.study)
    return directory
