"""How many pairs the datasets have, and how long they are.

Kiyono et al. 2021 (SHAPE), Table 3 (sizes) and Figure 5 (lengths of source and target, in
subwords). The token counts are those of the NHK study (2024), Table 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from shapeshift.data.store import TokenStore
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.style import TEXT_WIDTH_IN, add_legend, look, styled

_PANEL_HEIGHT_IN = 1.9
_PER_ROW = 3
_NUM_BINS = 40
_SIDES = ("source", "target")


@dataclass(frozen=True)
class SideLengths:
    """Lengths of one side of a dataset, in subwords without `</s>`.

    Attributes:
        num_tokens: all subwords together.
        shortest, median, longest: over the sentences.
        histogram: sentences of a length in [i · w, (i + 1) · w), w the dataset's `bin_width`.
    """

    num_tokens: int
    shortest: int
    median: float
    longest: int
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class DatasetLengths:
    """One dataset.

    Attributes:
        name: the dataset.
        num_pairs: sentence pairs.
        expected: how many there should be, such as the paper's number; `None` where not known.
        bin_width: of both histograms, in subwords.
        source, target: the sides.
    """

    name: str
    num_pairs: int
    expected: int | None
    bin_width: int
    source: SideLengths
    target: SideLengths

    @property
    def deviation(self) -> float | None:
        """How far `num_pairs` is from what was expected: 0.01 is one in a hundred too many."""
        return None if self.expected is None else self.num_pairs / self.expected - 1


@dataclass(frozen=True)
class Lengths:
    """The data of the table and the figure."""

    datasets: tuple[DatasetLengths, ...]


def compute(
    stores: Mapping[str, TokenStore],
    expected: Mapping[str, int] | None = None,
    *,
    bin_width: int | None = None,
) -> Lengths:
    """Count the pairs and measure the lengths of datasets.

    Args:
        stores: name → the token store, such as `Prepared.train`.
        expected: name → number of pairs, for those where it is known. The paper's training sets
            have 4.5 million (Vanilla), 3.9 million (Extrapolate) and 450,000 (Interpolate).
        bin_width: of the histograms, in subwords; by default, for each dataset, such that some 40
            bins reach to its longest sentence.

    Raises:
        ShapeshiftError: a store without pairs, or a number expected of a dataset that is not there.
    """
    expected = expected or {}
    for name in expected:
        if name not in stores:
            raise ShapeshiftError(
                f"pairs are expected of {name!r}, which is not one of {', '.join(stores)}"
            )
    datasets = []
    for name, store in stores.items():
        if not len(store):
            raise ShapeshiftError("holds no pairs; expected one at least", path=store.directory)
        sides = (store.source_lengths, store.target_lengths)
        width = bin_width or -(-max(int(side.max()) for side in sides) // _NUM_BINS) or 1
        datasets.append(
            DatasetLengths(
                name, len(store), expected.get(name), width, *(_side(side, width) for side in sides)
            )
        )
    return Lengths(tuple(datasets))


def check(data: Lengths, tolerance: float = 0.02) -> None:
    """Raise `ShapeshiftError` if a dataset has not the number of pairs expected of it.

    Args:
        data: what `compute` returned.
        tolerance: largest deviation. The paper's numbers have two digits, and its tokenisation,
            which decides what is over 50 subwords, is not ours.
    """
    for dataset in data.datasets:
        if dataset.deviation is not None and abs(dataset.deviation) > tolerance:
            raise ShapeshiftError(
                f"{dataset.name} has {dataset.num_pairs:,} pairs, expected {dataset.expected:,}"
                f" within {tolerance:.1%}; check the corpus files and the length limit"
            )


def plot(data: Lengths) -> Figure:
    """Draw a panel for each dataset: a histogram of source and target lengths, medians below the
    title. Save it with `style.save`."""
    num_rows = -(-len(data.datasets) // _PER_ROW)
    num_columns = min(_PER_ROW, len(data.datasets))
    with styled():
        width = max(2.8, TEXT_WIDTH_IN * num_columns / _PER_ROW)
        figure = Figure(figsize=(width, _PANEL_HEIGHT_IN * num_rows + 0.4), layout="constrained")
        panels = figure.subplots(num_rows, num_columns, squeeze=False).flat
        for number, axes in enumerate(panels):
            if number >= len(data.datasets):
                axes.set_axis_off()
                continue
            _draw(axes, data.datasets[number])
            if number % num_columns == 0:
                axes.set_ylabel("sentences")
        first = figure.axes[0]
        figure.supxlabel("length (subwords)", fontsize=8)
        add_legend(figure, first)
    return figure


def _side(lengths: NDArray[np.int32], bin_width: int) -> SideLengths:
    return SideLengths(
        num_tokens=int(lengths.sum(dtype=np.int64)),
        shortest=int(lengths.min()),
        median=float(np.median(lengths)),
        longest=int(lengths.max()),
        histogram=tuple(np.bincount(lengths // bin_width).tolist()),
    )


def _draw(axes: Axes, dataset: DatasetLengths) -> None:
    medians = []
    for number, (name, side) in enumerate(
        zip(_SIDES, (dataset.source, dataset.target), strict=True)
    ):
        edges = dataset.bin_width * np.arange(len(side.histogram) + 1)
        style = look(number)
        axes.stairs(side.histogram, edges, color=style.colour, fill=True, alpha=0.15)
        axes.stairs(
            side.histogram, edges, color=style.colour, linestyle=("-", "--")[number], label=name
        )
        medians.append(f"{name} {side.median:g}")
    axes.set_title(
        f"{dataset.name}: {dataset.num_pairs:,} pairs\nmedian: {', '.join(medians)}",
        loc="left",
        fontsize=8,
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
