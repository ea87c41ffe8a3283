"""Table 3 and Figure 5: how large the datasets are, and how long their sentences."""

from __future__ import annotations

from collections.abc import Mapping

from shapeshift.data.prepared import Prepared
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis import lengths
from shapeshift.lab.analysis.lengths import DatasetLengths, Lengths
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import counted, missing, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shape.shared import GRID
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import NOT_MEASURED

# dataset -> sentence pairs for training
PUBLISHED = {"vanilla": 4_500_000, "extrapolate": 3_900_000, "interpolate": 450_000}

_SPLITS = ("train", "valid", "test")


def build(study: Study) -> Content:
    """Count the pairs, draw the lengths, and compare the counts with the paper's at its scale."""
    prepared, problem = _prepare(study)
    data = None
    if prepared:
        expected = PUBLISHED if study.scale == "paper" else {}
        data = lengths.compute(
            {name: each.train for name, each in prepared.items()},
            {name: count for name, count in expected.items() if name in prepared},
        )
    ours = DocumentTable(
        name="table3",
        title="Sentence pairs of the datasets",
        header=("dataset", *(f"{split} pairs" for split in _SPLITS), "longest source in training"),
        rows=tuple(
            _row(study, name, prepared.get(name), data) for name in study.settings(GRID, "dataset")
        ),
        notes=("lengths in subwords", *([problem] if problem else [])),
    )
    content = Content(
        tables=[ours, published()],
        findings=[_finding(study, data, problem)],
        lacks_text=bool(problem),
    )
    if data is not None:
        content.tables.insert(1, _histograms(study, data, prepared))
        about = DocumentFigure(
            name="figure5",
            title="Lengths of the training sentences",
            table="figure5",
            alt="Histograms of source and target lengths in subwords, a panel for each dataset; "
            + "; ".join(
                f"{each.name}: median source length {each.source.median:g}, longest"
                f" {each.source.longest}"
                for each in data.datasets
            )
            + ".",
        )
        content.figures.append(Drawn(about, lengths.plot(data)))
    return content


def published() -> DocumentTable:
    """Return the paper's table."""
    return DocumentTable(
        name="table3-paper",
        title="Sentence pairs for training in the paper",
        origin="paper",
        header=("dataset", "train pairs"),
        rows=tuple(
            (*words(name), Entry(text=text, value=PUBLISHED[name]))
            for name, text in (
                ("vanilla", "4.5M"),
                ("extrapolate", "3.9M"),
                ("interpolate", "450K"),
            )
        ),
        notes=(
            "WMT 2016 English-German; validation newstest2010-2013, test newstest2014-2016",
            "extrapolate: without pairs of more than 50 subwords on a side; interpolate: ten"
            " neighbouring pairs joined",
        ),
    )


def _prepare(study: Study) -> tuple[dict[str, Prepared], str]:
    """Return dataset → its data, and why some cannot be had."""
    found: dict[str, Prepared] = {}
    for name in study.settings(GRID, "dataset"):
        try:
            found[name] = study.prepared(_first(study, name))
        except ShapeshiftError as error:  # the corpus is not here: the other items can be made
            return found, str(error)
    return found, ""


def _first(study: Study, name: str) -> Cell:
    return study.cells(GRID, {"dataset": name})[0]


def _row(
    study: Study, name: str, prepared: Prepared | None, data: Lengths | None
) -> tuple[Entry, ...]:
    if prepared is None or data is None:
        return (*words(name), *(missing() for _ in range(len(_SPLITS) + 1)))
    [own] = [each for each in data.datasets if each.name == name]
    counts = [len(prepared.store(split)) for split in ("train", "valid", "test")]
    cell = _first(study, name)
    fields = (counted(count, prepared, cell) for count in (*counts, own.source.longest))
    return (*words(name), *fields)


def _histograms(study: Study, data: Lengths, prepared: Mapping[str, Prepared]) -> DocumentTable:
    """Lay out what Figure 5 shows: a row for each range of lengths."""
    rows = [
        row
        for each in data.datasets
        for row in _bins(each, prepared[each.name], _first(study, each.name))
    ]
    return DocumentTable(
        name="figure5",
        title="Training sentences by length in subwords",
        header=("dataset", "length", "source sentences", "target sentences"),
        rows=tuple(rows),
    )


def _bins(data: DatasetLengths, prepared: Prepared, cell: Cell) -> list[tuple[Entry, ...]]:
    sides = (data.source.histogram, data.target.histogram)
    return [
        (
            *words(data.name, f"{start}–{start + data.bin_width - 1}"),
            *(counted(side[place] if place < len(side) else 0, prepared, cell) for side in sides),
        )
        for place in range(max(map(len, sides)))
        for start in [place * data.bin_width]
    ]


def _finding(study: Study, data: Lengths | None, problem: str) -> Finding:
    claim = "The training sets have as many pairs as the paper's."
    paper = "4.5M, 3.9M and 450K"
    verdict: Verdict = "not run"
    measured = problem or NOT_MEASURED
    if data is not None and len(data.datasets) == len(PUBLISHED):
        measured = ", ".join(f"{each.name} {each.num_pairs:,}" for each in data.datasets)
        verdict = "not tested at this scale"
        if study.scale == "paper":
            try:
                lengths.check(data)
                verdict, measured = "supported", f"{measured}: within 2 %"
            except ShapeshiftError as error:
                verdict, measured = "contradicted", f"{measured}: {error}"
    return Finding(claim=claim, verdict=verdict, measured=measured, paper=paper)


ITEM = Item(
    "Table 3 and Figure 5: sizes and lengths of the datasets", (GRID,), build, trained=False
)
