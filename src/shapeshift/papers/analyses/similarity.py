"""Figures 2 and 6 of the SHAPE paper: how similar the encoder's states are when all positions are
shifted, on Interpolate (its section 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from shapeshift.lab.analysis.similarity import OFFSETS, compute, invariance
from shapeshift.lab.grid import Cell
from shapeshift.lab.looks import TEXT_WIDTH_IN, styled
from shapeshift.papers.analyses import PAIR, paired
from shapeshift.papers.document import DocumentFigure, DocumentTable, number, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.study import Study

CLAIM = "mean cosine of states, SHAPE's minus APE's"
"""Name of the values for a claim."""

_NUM_SENTENCES = 10
_LISTED = ", ".join(map(str, OFFSETS))

_COLOURS = "cividis"  # made for colour-blind eyes; its lightness rises evenly
_MARGIN_IN = 1.2  # of the width: labels and the colour scale
_DARK = 0.55  # of the colour scale: below, white figures are easier to read

Array = NDArray[np.float64]
Runs = Mapping[int, tuple[Cell, Cell]]
"""Seed → APE and SHAPE."""
Matrices = list[list[list[list[float]]]]


def one_sentence(study: Study) -> Content:
    """Make Figure 2."""
    return _heat_maps("figure2", "one sentence", study, 1)


def ten_sentences(study: Study) -> Content:
    """Make Figure 6."""
    return _heat_maps("figure6", "mean of ten sentences", study, _NUM_SENTENCES)


def _similarity(study: Study, runs: Runs) -> Array:
    """Return how similar states are on the first ten validation sentences, for each seed, APE and
    SHAPE, sentence, layer and pair of offsets: (seeds, 2, N, L + 1, K, K)."""

    def measure(cell: Cell) -> Matrices:
        store = study.prepared(cell).valid
        sentences = [store[i][0].tolist() for i in range(min(_NUM_SENTENCES, len(store)))]
        run = study.run(cell)
        matrices: Matrices = compute(run.model(device=run.device), sentences).tolist()
        return matrices

    name = f"similarity-{_NUM_SENTENCES}-{'-'.join(map(str, OFFSETS))}"
    return np.array(
        [
            [study.computed(name, Matrices, [cell], partial(measure, cell)) for cell in pair]
            for pair in runs.values()
        ]
    )


def _heat_maps(name: str, what: str, study: Study, num_sentences: int) -> Content:
    """Make the heat maps of the first seed, and the table behind them."""
    runs = paired(study, {"dataset": "interpolate"})
    if not runs:
        return Content(values={CLAIM: {}})
    similarity = _similarity(study, runs)[:, :, :num_sentences].mean(2)  # (seeds, 2, L + 1, K, K)
    layers = invariance(similarity)[:, :, 1:]  # (seeds, 2, L)
    leads = [shape - ape for ape, shape in layers.mean(2).tolist()]
    seed, cells = next(iter(runs.items()))
    table = DocumentTable(
        name=name,
        title=f"Similarity of states, {what}",
        header=("states", "offset", *map(str, OFFSETS)),
        rows=tuple(
            (
                *words(f"{position}, {layer_name(layer)}", str(offset)),
                *(number(value, ".4f", [cell]) for value in values),
            )
            for position, cell, matrices in zip(PAIR, cells, similarity[0].tolist(), strict=True)
            for layer, matrix in enumerate(matrices)
            for offset, values in zip(OFFSETS, matrix, strict=True)
        ),
        notes=("Interpolate; mean cosine over the positions of the sentence", f"seed {seed}"),
    )
    ranges = "; ".join(
        f"{position} from {own.min():.2f} to {own.max():.2f}"
        for position, own in zip(PAIR, layers[0], strict=True)
    )
    about = DocumentFigure(
        name=name,
        title=f"Encoder states under four offsets, {what}",
        table=name,
        alt=f"Heat maps of the similarity of encoder states under the offsets {_LISTED}: a row for"
        " each of ape and shape, a column for the embeddings and for each layer. Means over the"
        f" layers: {ranges}.",
    )
    figure = Figure(about, plot(similarity[0]))
    return Content([table], [figure], values={CLAIM: dict(zip(runs, leads, strict=True))})


def plot(similarity: Array) -> Drawing:
    """Draw heat maps: a row for each of APE and SHAPE, a column for the embeddings and each layer.

    All panels share one colour scale, which ends at 1. Save it with `lab.figures.save`.
    """
    num_rows, num_columns, num_offsets, _ = similarity.shape
    lowest = min(0.9, similarity.min())  # where all are 1, a scale still needs a width
    offsets = [*map(str, OFFSETS[:num_offsets])]
    with styled():
        size = min(1.1, (TEXT_WIDTH_IN - _MARGIN_IN) / num_columns)
        height = max(1.9, (size + 0.05) * num_rows + 0.65)
        figure = Drawing(figsize=(size * num_columns + _MARGIN_IN, height), layout="constrained")
        panels = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True, sharey=True)
        for position, matrices, axes_row in zip(PAIR, similarity, panels, strict=True):
            for matrix, axes in zip(matrices, axes_row, strict=True):
                image = _draw(axes, matrix, lowest, size)
            axes_row[0].set_ylabel(position, fontsize=8.5)
        for layer, axes in enumerate(panels[0]):
            axes.set_title(layer_name(layer))
        crowded = size / num_offsets < 0.25  # inches: three digits at 7 points, and a gap
        panels[0, 0].set_xticks(range(num_offsets), offsets)
        panels[0, 0].set_yticks(range(num_offsets), offsets)
        for axes in panels[-1]:
            axes.tick_params(axis="x", rotation=90 if crowded else 0)
        figure.supxlabel("offset $k_2$ (tokens)", fontsize=8)
        figure.supylabel("offset $k_1$ (tokens)", fontsize=8)
        bar = figure.colorbar(image, ax=panels, shrink=0.9, aspect=30, pad=0.01)
        bar.set_label("mean cosine similarity")
        bar.outline.set_linewidth(0)
    return figure


def _draw(axes: Axes, matrix: Array, low: float, size_in: float) -> AxesImage:
    image = axes.imshow(matrix, cmap=_COLOURS, vmin=low, vmax=1, origin="lower")
    for (row, column), value in np.ndenumerate(matrix):
        dark = (value - low) / (1 - low) < _DARK
        # "1" is kept for what is invariant: 0.997 does not round up to it.
        text = "1" if value >= 0.9995 else f"{min(value, 0.99):.2f}".replace("0.", ".")
        axes.text(
            column,
            row,
            text,
            ha="center",
            va="center",
            fontsize=min(6, 30 * size_in / len(matrix)),
            color="white" if dark else "black",
        )
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return image


def layer_name(layer: int) -> str:
    """Return what people call a layer's states; 0 are the embeddings."""
    return "embeddings" if layer == 0 else f"layer {layer}"
