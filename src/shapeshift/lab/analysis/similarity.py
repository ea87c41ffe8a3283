"""How much an encoder's states change when all positions are shifted.

Kiyono et al. 2021 (SHAPE), Equation 3, Figure 2 (one sentence) and Figure 6 (ten sentences):
(1/T) Σ_i cos(h_i^{k1}, h_i^{k2}) for the states h of each layer under the offsets k1 and k2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from shapeshift.data.batching import make_batch
from shapeshift.decoding.scoring import evaluating
from shapeshift.lab.looks import TEXT_WIDTH_IN, styled
from shapeshift.model import Transformer

OFFSETS = (0, 100, 250, 500)
"""Those of the paper."""

_COLOURS = "cividis"  # made for colour-blind eyes; its lightness rises evenly
_MARGIN_IN = 1.2  # of the width: labels and the colour scale
_DARK = 0.55  # of the colour scale: below, white figures are easier to read

Matrix = tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class SystemSimilarity:
    """Similarities of one system's states.

    Attributes:
        name: the system.
        sentences: for each sentence and each layer, the embeddings first, a matrix over pairs of
            offsets. (N, L + 1, K, K)
    """

    name: str
    sentences: tuple[tuple[Matrix, ...], ...]

    @property
    def num_layers(self) -> int:
        """Layers of the encoder, without the embeddings."""
        return len(self.sentences[0]) - 1

    def matrix(self, layer: int, sentence: int | None = None) -> Matrix:
        """Return the matrix of one layer (0: embeddings), of one sentence or the mean of all."""
        chosen = self.sentences if sentence is None else self.sentences[sentence : sentence + 1]
        matrices = [layers[layer] for layers in chosen]
        return tuple(
            tuple(fmean(cells) for cells in zip(*rows, strict=True))
            for rows in zip(*matrices, strict=True)
        )

    def invariance(self, layer: int, sentence: int | None = None) -> float:
        """Return one number for a layer: the mean over all pairs of two different offsets.

        1 means that a shift changes no direction of any state.
        """
        matrix = self.matrix(layer, sentence)
        return fmean(matrix[a][b] for a, b in combinations(range(len(matrix)), 2))


@dataclass(frozen=True)
class ShiftSimilarity:
    """The data of the figure.

    Attributes:
        offsets: what positions were shifted by.
        systems: one for each model.
    """

    offsets: tuple[int, ...]
    systems: tuple[SystemSimilarity, ...]


def compute(
    systems: Mapping[str, Transformer],
    sentences: Sequence[Sequence[int]],
    offsets: Sequence[int] = OFFSETS,
) -> ShiftSimilarity:
    """Encode sentences under several offsets and compare the states.

    T counts the tokens that the encoder sees, `</s>` among them. States are the residual stream
    behind each layer, the last one after the encoder's final LayerNorm. The paper leaves both open.
    Cosines are computed in float64.

    Args:
        systems: name → a model on any device, in any mode.
        sentences: source ids, without `</s>`. The paper shows one sentence, and ten more.
        offsets: at least two, all different.

    Raises:
        ShapeshiftError: a model without positions for an offset.
    """
    return ShiftSimilarity(
        tuple(offsets),
        tuple(
            SystemSimilarity(name, tuple(_compare(model, ids, offsets) for ids in sentences))
            for name, model in systems.items()
        ),
    )


def plot(data: ShiftSimilarity, sentence: int | None = None) -> Figure:
    """Draw heat maps: a row for each system, a column for the embeddings and each layer, of which
    all systems have as many.

    All panels share one colour scale, which ends at 1. Save it with `figures.save`.

    Args:
        data: what `compute` returned.
        sentence: draw this one, counted from 0; by default the mean of all.
    """
    num_columns = 1 + data.systems[0].num_layers
    cells = (
        cell
        for system in data.systems
        for layer in range(system.num_layers + 1)
        for row in system.matrix(layer, sentence)
        for cell in row
    )
    lowest = min(0.9, *cells)  # where all are 1, a scale still needs a width
    offsets = list(map(str, data.offsets))
    with styled():
        size = min(1.1, (TEXT_WIDTH_IN - _MARGIN_IN) / num_columns)
        height = max(1.9, (size + 0.05) * len(data.systems) + 0.65)
        figure = Figure(figsize=(size * num_columns + _MARGIN_IN, height), layout="constrained")
        panels = figure.subplots(
            len(data.systems), num_columns, squeeze=False, sharex=True, sharey=True
        )
        for system, axes_row in zip(data.systems, panels, strict=True):
            for layer, axes in enumerate(axes_row):
                image = _draw(axes, system.matrix(layer, sentence), lowest, size)
            axes_row[0].set_ylabel(system.name, fontsize=8.5)
        for layer, axes in enumerate(panels[0]):
            axes.set_title("embeddings" if layer == 0 else f"layer {layer}")
        crowded = size / len(offsets) < 0.25  # inches: three digits at 7 points, and a gap
        panels[0, 0].set_xticks(range(len(offsets)), offsets)
        panels[0, 0].set_yticks(range(len(offsets)), offsets)
        for axes in panels[-1]:
            axes.tick_params(axis="x", rotation=90 if crowded else 0)
        figure.supxlabel("offset $k_2$ (tokens)", fontsize=8)
        figure.supylabel("offset $k_1$ (tokens)", fontsize=8)
        bar = figure.colorbar(image, ax=panels, shrink=0.9, aspect=30, pad=0.01)
        bar.set_label("mean cosine similarity")
        bar.outline.set_linewidth(0)
    return figure


def _compare(model: Transformer, ids: Sequence[int], offsets: Sequence[int]) -> tuple[Matrix, ...]:
    device = model.output.weight.device
    source = make_batch([ids], [[]]).source.to(device).expand(len(offsets), -1)  # (K, S)
    with evaluating(model):
        states = model.encoder_states(source, offset=torch.tensor(offsets, device=device))
        directions = [
            torch.nn.functional.normalize(state.double(), dim=-1) for state in states
        ]  # (K, S, D) each
        matrices = [
            torch.einsum("asd,bsd->ab", unit, unit) / source.shape[1] for unit in directions
        ]
    return tuple(tuple(map(tuple, matrix.tolist())) for matrix in matrices)


def _draw(axes: Axes, matrix: Matrix, low: float, size_in: float) -> AxesImage:
    image = axes.imshow(matrix, cmap=_COLOURS, vmin=low, vmax=1, origin="lower")
    for row, values in enumerate(matrix):
        for column, value in enumerate(values):
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
