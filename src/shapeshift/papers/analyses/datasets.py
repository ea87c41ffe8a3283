"""Figure 5 of the SHAPE paper (Kiyono et al. 2021): how long the sentences of the datasets are, in
subwords."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import EngFormatter

from shapeshift.data.store import TokenStore
from shapeshift.lab.looks import TEXT_WIDTH_IN, look, styled
from shapeshift.papers.document import DocumentFigure, DocumentTable, counted, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.study import Study

_PANEL_HEIGHT_IN = 1.9
_NUM_BINS = 40


def histograms(study: Study) -> Content:
    """Draw the lengths of the training sentences, a panel for each setting of `dataset`; the
    table has a row for each range of lengths."""
    stores, rows = {}, []
    for name in study.settings("dataset"):
        cell = study.cells({"dataset": name})[0]
        data = study.prepared(cell)
        stores[name] = data.train
        width, source, target = bins(data.train)
        for place in range(max(len(source), len(target))):
            start = place * width
            label = f"{start}–{start + width - 1}"
            counts = (side[place] if place < len(side) else 0 for side in (source, target))
            rows.append((*words(name, label), *(counted(each, data, cell) for each in counts)))
    table = DocumentTable(
        name="figure5",
        title="Training sentences by length in subwords",
        header=("dataset", "length", "source sentences", "target sentences"),
        rows=tuple(rows),
    )
    described = "; ".join(
        f"{name}: median source length {np.median(store.source_lengths):g}, longest"
        f" {store.source_lengths.max()}"
        for name, store in stores.items()
    )
    about = DocumentFigure(
        name="figure5",
        title="Lengths of the training sentences",
        table="figure5",
        alt="Histograms of source and target lengths in subwords, a panel for each dataset;"
        f" {described}.",
    )
    return Content(tables=[table], figures=[Figure(about, plot(stores))])


def bins(store: TokenStore) -> tuple[int, list[int], list[int]]:
    """Return the width of a bin in subwords, and how many sources and targets are in each; some 40
    bins reach to the longest sentence."""
    sides = store.source_lengths, store.target_lengths
    width = -(-max(int(side.max()) for side in sides) // _NUM_BINS) or 1
    source, target = (np.bincount(side // width).tolist() for side in sides)
    return width, source, target


def plot(datasets: Mapping[str, TokenStore]) -> Drawing:
    """Draw a panel for each dataset: a histogram of source and target lengths, whose medians stand
    in the title. Save it with `lab.figures.save`."""
    with styled():
        figure = Drawing(figsize=(TEXT_WIDTH_IN, _PANEL_HEIGHT_IN + 0.4), layout="constrained")
        panels = figure.subplots(1, len(datasets), squeeze=False).flat
        for axes, (name, store) in zip(panels, datasets.items(), strict=True):
            _draw(axes, name, store)
        figure.supxlabel("length (subwords)", fontsize=8)
        figure.supylabel("sentences", fontsize=8)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


def _draw(axes: Axes, name: str, store: TokenStore) -> None:
    width, *counts = bins(store)
    sides = ("source", store.source_lengths, "-"), ("target", store.target_lengths, "--")
    medians = []
    for number, ((side, lengths, dash), histogram) in enumerate(zip(sides, counts, strict=True)):
        edges = width * np.arange(len(histogram) + 1)
        colour = look(number).colour
        axes.stairs(histogram, edges, color=colour, fill=True, alpha=0.15)
        axes.stairs(histogram, edges, color=colour, linestyle=dash, label=side)
        medians.append(f"{side} {np.median(lengths):g}")
    title = f"{name}: {len(store):,} pairs\nmedian: {', '.join(medians)}"
    axes.set_title(title, loc="left", fontsize=8)
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.yaxis.set_major_formatter(EngFormatter(sep=""))
