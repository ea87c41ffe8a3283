"""Figure 5 of the SHAPE paper (Kiyono et al. 2021): how long the sentences of the datasets are, in
subwords."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from shapeshift.data.store import TokenStore
from shapeshift.study.document import Content, DocumentTable, number, words
from shapeshift.study.figures import TEXT_WIDTH_IN, look, styled
from shapeshift.study.measured import Measured

_NUM_BINS = 40


def histograms(measured: Measured) -> Content:
    """Draw the lengths of the training sentences, a panel for each setting of `recipe`; the
    table has a row for each range of lengths."""
    stores = {
        name: measured.prepared(measured.runs({"recipe": name})[0]).train
        for name in measured.settings("recipe")
    }
    rows = []
    for name, store in stores.items():
        width, source, target = bins(store)
        for place, counts in enumerate(zip(source, target, strict=True)):
            label = f"{place * width}–{(place + 1) * width - 1}"
            rows.append((*words(name, label), *(number(each, ",") for each in counts)))
    table = DocumentTable(
        name="figure5",
        title="Training sentences by length in subwords",
        header=("recipe", "length", "source sentences", "target sentences"),
        rows=tuple(rows),
        figure="Lengths of the training sentences",
        drawing=_plot(stores),
    )
    return Content([table])


def bins(store: TokenStore) -> tuple[int, list[int], list[int]]:
    """Return the width of a bin in subwords, and how many sources and targets are in each; some 40
    bins reach to the longest sentence."""
    sides = store.source_lengths, store.target_lengths
    longest = max(int(side.max()) for side in sides)
    width = -(-longest // _NUM_BINS) or 1
    source, target = (
        np.bincount(side // width, minlength=longest // width + 1).tolist() for side in sides
    )
    return width, source, target


def _plot(datasets: Mapping[str, TokenStore]) -> Figure:
    """Draw a panel for each dataset: a histogram of source and target lengths, whose medians stand
    in the title."""
    with styled():
        figure = Figure(figsize=(TEXT_WIDTH_IN, 2.3), layout="constrained")
        panels = figure.subplots(1, len(datasets), squeeze=False).flat
        for axes, (name, store) in zip(panels, datasets.items(), strict=True):
            width, *counts = bins(store)
            for n, (side, dash) in enumerate((("source", "-"), ("target", "--"))):
                edges, colour = width * np.arange(len(counts[n]) + 1), look(n)["color"]
                axes.stairs(counts[n], edges, color=colour, fill=True, alpha=0.15)
                axes.stairs(counts[n], edges, color=colour, linestyle=dash, label=side)
            source, target = np.median(store.source_lengths), np.median(store.target_lengths)
            medians = f"median: source {source:g}, target {target:g}"
            axes.set_title(f"{name}: {len(store):,} pairs\n{medians}", loc="left", fontsize=8)
            axes.set_xlim(0)
            axes.set_ylim(0)
            axes.yaxis.set_major_formatter(EngFormatter(sep=""))
        figure.supxlabel("length (subwords)", fontsize=8)
        figure.supylabel("sentences", fontsize=8)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure
