"""Table 3 and Figure 5: how large the datasets are, and how long their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shapeshift.data.config import SPLITS
from shapeshift.data.prepared import Prepared
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis import lengths
from shapeshift.lab.analysis.lengths import DatasetLengths
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import counted, missing, words
from shapeshift.papers.item import Content, Figure, Item
from shapeshift.papers.shape.shared import GRID
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import NOT_MEASURED

# dataset -> sentence pairs for training, as the paper writes them and as numbers
PUBLISHED = {
    "vanilla": ("4.5M", 4_500_000),
    "extrapolate": ("3.9M", 3_900_000),
    "interpolate": ("450K", 450_000),
}

TOLERANCE = 0.02
"""Largest deviation from the paper's counts: they have two digits, and the paper's tokenisation,
which decides what is over 50 subwords, is not ours."""


@dataclass(frozen=True)
class Dataset:
    """A dataset that can be had: its data, the lengths of its training sentences, and a run that is
    trained on it."""

    prepared: Prepared
    lengths: DatasetLengths
    cell: Cell


def build(study: Study) -> Content:
    """Count the pairs, draw the lengths, and compare the counts with the paper's at its scale."""
    names = study.settings(GRID, "dataset")
    datasets, problem = _prepare(study, names)
    content = Content(
        tables=[_sizes(names, datasets, problem)],
        findings=[_finding(study, datasets, problem)],
        lacks_text=bool(problem),
    )
    if datasets:
        measured = [each.lengths for each in datasets.values()]
        content.tables.append(_histograms([*datasets.values()]))
        described = "; ".join(
            f"{each.name}: median source length {each.source.median:g}, longest"
            f" {each.source.longest}"
            for each in measured
        )
        about = DocumentFigure(
            name="figure5",
            title="Lengths of the training sentences",
            table="figure5",
            alt="Histograms of source and target lengths in subwords, a panel for each dataset;"
            f" {described}.",
        )
        content.figures.append(Figure(about, lengths.plot(measured)))
    content.tables.append(published())
    return content


def published() -> DocumentTable:
    """Return the paper's table."""
    return DocumentTable(
        name="table3-paper",
        title="Sentence pairs for training in the paper",
        origin="paper",
        header=("dataset", "train pairs"),
        rows=tuple(
            (*words(name), Entry(text=text, value=value))
            for name, (text, value) in PUBLISHED.items()
        ),
        notes=(
            "WMT 2016 English-German; validation newstest2010-2013, test newstest2014-2016",
            "extrapolate: without pairs of more than 50 subwords on a side; interpolate: ten"
            " neighbouring pairs joined",
        ),
    )


def _prepare(study: Study, names: Sequence[str]) -> tuple[dict[str, Dataset], str]:
    """Return the datasets by name, and why some cannot be had."""
    found: dict[str, Dataset] = {}
    for name in names:
        cell = study.cells(GRID, {"dataset": name})[0]
        try:
            prepared = study.prepared(cell)
        except ShapeshiftError as error:  # the corpus is not here: the other items can be made
            return found, str(error)
        found[name] = Dataset(prepared, lengths.measure(name, prepared.train), cell)
    return found, ""


def _sizes(names: Sequence[str], datasets: dict[str, Dataset], problem: str) -> DocumentTable:
    header = ("dataset", *(f"{split} pairs" for split in SPLITS), "longest source in training")
    rows = []
    for name in names:
        own = datasets.get(name)
        if own is None:
            rows.append((*words(name), *(missing() for _ in header[1:])))
            continue
        counts = [len(own.prepared.store(split)) for split in SPLITS]
        fields = (*counts, own.lengths.source.longest)
        rows.append((*words(name), *(counted(n, own.prepared, own.cell) for n in fields)))
    return DocumentTable(
        name="table3",
        title="Sentence pairs of the datasets",
        header=header,
        rows=tuple(rows),
        notes=("lengths in subwords", *([problem] if problem else [])),
    )


def _histograms(datasets: Sequence[Dataset]) -> DocumentTable:
    """Lay out what Figure 5 shows: a row for each range of lengths."""
    rows = []
    for own in datasets:
        sides = (own.lengths.source.histogram, own.lengths.target.histogram)
        for place in range(max(map(len, sides))):
            start = place * own.lengths.bin_width
            label = f"{start}–{start + own.lengths.bin_width - 1}"
            counts = (side[place] if place < len(side) else 0 for side in sides)
            fields = (counted(count, own.prepared, own.cell) for count in counts)
            rows.append((*words(own.lengths.name, label), *fields))
    return DocumentTable(
        name="figure5",
        title="Training sentences by length in subwords",
        header=("dataset", "length", "source sentences", "target sentences"),
        rows=tuple(rows),
    )


def _finding(study: Study, datasets: dict[str, Dataset], problem: str) -> Finding:
    verdict: Verdict = "not run"
    measured = problem or NOT_MEASURED
    counts = {name: own.lengths.num_pairs for name, own in datasets.items()}
    if counts.keys() == PUBLISHED.keys():
        measured = ", ".join(f"{name} {count:,}" for name, count in counts.items())
        verdict = "not tested at this scale"
        if study.scale == "paper":
            expected = {name: value for name, (_, value) in PUBLISHED.items()}
            apart = [
                name
                for name, count in counts.items()
                if abs(count - expected[name]) > TOLERANCE * expected[name]
            ]
            verdict = "contradicted" if apart else "supported"
            measured += f": {' and '.join(apart) or 'none'} differs by more than {TOLERANCE:.0%}"
    return Finding(
        claim="The training sets have as many pairs as the paper's.",
        verdict=verdict,
        measured=measured,
        paper="4.5M, 3.9M and 450K",
    )


ITEM = Item(
    "Table 3 and Figure 5: sizes and lengths of the datasets", (GRID,), build, trained=False
)
