"""How many pairs the datasets have, and how long they are.

Kiyono et al. 2021 (SHAPE), Table 3 (sizes) and Figure 5 (lengths of source and target, in
subwords).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from shapeshift.data.store import TokenStore
from shapeshift.lab.looks import TEXT_WIDTH_IN, look, styled

_PANEL_HEIGHT_IN = 1.9
_PER_ROW = 3
_NUM_BINS = 40


@dataclass(frozen=True)
class SideLengths:
    """Lengths of one side of a dataset, in subwords without `</s>`.

    Attributes:
        median, longest: over the sentences.
        histogram: sentences of a length in [i · w, (i + 1) · w), w the dataset's `bin_width`.
    """

    median: float
    longest: int
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class DatasetLengths:
    """One dataset: its name, its sentence pairs, its two sides, and the width of the bins of both
    histograms in subwords."""

    name: str
    num_pairs: int
    bin_width: int
    source: SideLengths
    target: SideLengths


def measure(name: str, store: TokenStore) -> DatasetLengths:
    """Measure the lengths of a dataset; some 40 bins reach to its longest sentence."""
    sides = (store.source_lengths, store.target_lengths)
    width = -(-max(int(side.max()) for side in sides) // _NUM_BINS) or 1
    return DatasetLengths(name, len(store), width, *(_side(side, width) for side in sides))


def plot(datasets: Sequence[DatasetLengths]) -> Figure:
    """Draw a panel for each dataset: a histogram of source and target lengths, whose medians stand
    in the title. Save it with `figures.save`."""
    num_columns = min(_PER_ROW, len(datasets))
    num_rows = -(-len(datasets) // num_columns)
    with styled():
        width = max(2.8, TEXT_WIDTH_IN * num_columns / _PER_ROW)
        figure = Figure(figsize=(width, _PANEL_HEIGHT_IN * num_rows + 0.4), layout="constrained")
        panels = figure.subplots(num_rows, num_columns, squeeze=False).flat
        for number, axes in enumerate(panels):
            if number < len(datasets):
                _draw(axes, datasets[number])
            else:
                axes.set_axis_off()
        figure.supxlabel("length (subwords)", fontsize=8)
        figure.supylabel("sentences", fontsize=8)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
    return figure


def _side(lengths: NDArray[np.int32], bin_width: int) -> SideLengths:
    histogram = tuple(np.bincount(lengths // bin_width).tolist())
    return SideLengths(float(np.median(lengths)), int(lengths.max()), histogram)


def _draw(axes: Axes, dataset: DatasetLengths) -> None:
    sides = {"source": dataset.source, "target": dataset.target}
    for number, (name, side) in enumerate(sides.items()):
        edges = dataset.bin_width * np.arange(len(side.histogram) + 1)
        style = look(number)
        axes.stairs(side.histogram, edges, color=style.colour, fill=True, alpha=0.15)
        axes.stairs(
            side.histogram, edges, color=style.colour, linestyle=("-", "--")[number], label=name
        )
    medians = ", ".join(f"{name} {side.median:g}" for name, side in sides.items())
    axes.set_title(
        f"{dataset.name}: {dataset.num_pairs:,} pairs\nmedian: {medians}", loc="left", fontsize=8
    )
    axes.set_xlim(0)
    axes.set_ylim(0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(count: float) -> str:
    """Write 1500 as 1.5k and 2000000 as 2M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if count >= unit:
            return f"{count / unit:g}{letter}"
    return f"{count:g}"
