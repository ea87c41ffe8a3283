"""Figure 5 of the SHAPE paper: how long the sentences of the datasets are."""

from __future__ import annotations

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis import lengths
from shapeshift.papers.document import DocumentFigure, DocumentTable, counted, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.study import Study


def histograms(study: Study, grid: str) -> Content:
    """Draw the lengths of the training sentences, a panel for each setting of `dataset` whose text
    can be had; the table has a row for each range of lengths."""
    measured, rows = [], []
    for name in study.settings(grid, "dataset"):
        cell = study.cells(grid, {"dataset": name})[0]
        try:
            data = study.prepared(cell)
        except ShapeshiftError:  # the item's first table says why
            continue
        own = lengths.measure(name, data.train)
        measured.append(own)
        sides = (own.source.histogram, own.target.histogram)
        for place in range(max(map(len, sides))):
            start = place * own.bin_width
            label = f"{start}–{start + own.bin_width - 1}"
            counts = (side[place] if place < len(side) else 0 for side in sides)
            rows.append((*words(name, label), *(counted(each, data, cell) for each in counts)))
    if not measured:
        return Content()
    table = DocumentTable(
        name="figure5",
        title="Training sentences by length in subwords",
        header=("dataset", "length", "source sentences", "target sentences"),
        rows=tuple(rows),
    )
    described = "; ".join(
        f"{each.name}: median source length {each.source.median:g}, longest {each.source.longest}"
        for each in measured
    )
    about = DocumentFigure(
        name="figure5",
        title="Lengths of the training sentences",
        table="figure5",
        alt="Histograms of source and target lengths in subwords, a panel for each dataset;"
        f" {described}.",
    )
    return Content(tables=[table], figures=[Figure(about, lengths.plot(measured))])
