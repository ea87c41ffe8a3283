"""Figures 2 and 6 of the SHAPE paper: how similar the encoder's states are when all positions are
shifted, on Interpolate (its section 3.2).

The paper's offsets, 0, 100, 250 and 500, are shares of its K = 500, and so are ours of the K that
SHAPE was trained with: shift invariance is learned within K, not beyond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from shapeshift.run.analysis.similarity import compute, invariance
from shapeshift.study.analyses import PAIR, draw_matrix, paired
from shapeshift.study.document import Content, DocumentTable, number, words
from shapeshift.study.figures import TEXT_WIDTH_IN, styled
from shapeshift.study.grid import PlannedRun
from shapeshift.study.measured import Measured

CLAIM = "mean cosine of states, SHAPE's minus APE's"
"""Name of the values for a claim."""

_NUM_SENTENCES = 11
"""One of Figure 2, and ten additional ones of Figure 6."""

_COLOURS = "cividis"  # made for colour-blind eyes; its lightness rises evenly
_MARGIN_IN = 1.2  # of the width: labels and the colour scale

Array = NDArray[np.float64]
Matrices = list[list[list[list[float]]]]


def one_sentence(measured: Measured) -> Content:
    """Make Figure 2, of the first validation sentence."""
    return _heat_maps(measured, {"figure2": 0})


def ten_sentences(measured: Measured) -> Content:
    """Make Figure 6: a figure for each of ten further sentences."""
    return _heat_maps(measured, {f"figure6-{n}": n for n in range(1, _NUM_SENTENCES)})


def _similarity(measured: Measured, planned: PlannedRun, offsets: Sequence[int]) -> Matrices:
    """Return the similarity of a run's states on the first validation sentences, (N, L + 1, K, K);
    see `compute`."""
    run = measured.run(planned)
    model = run.model(device=run.device)  # before the text: without weights there is no use for it
    store = measured.prepared(planned).valid
    sentences = [store[i][0].tolist() for i in range(min(_NUM_SENTENCES, len(store)))]
    matrices: Matrices = compute(model, sentences, offsets).tolist()
    return matrices


def _heat_maps(measured: Measured, sentences: Mapping[str, int]) -> Content:
    """Make the heat maps of the first seed and the tables behind them: name → sentence. The values
    are means over the sentences."""
    pairs = paired(measured, {"recipe": "interpolate"})
    if not pairs:
        return Content()
    seed, (_, shape) = next(iter(pairs.items()))
    largest = shape.config.position.scheme.position_ids.options["max_offset"]
    offsets = sorted({round(share * largest) for share in (0, 0.2, 0.5, 1)})
    file = f"similarity-{_NUM_SENTENCES}-{'-'.join(map(str, offsets))}"

    def matrices(planned: PlannedRun) -> Matrices:
        make = partial(_similarity, measured, planned, offsets)
        return measured.computed(file, Matrices, [planned], make)

    # (seeds, 2, N, L + 1, K, K)
    similarity = np.array([[*map(matrices, pair)] for pair in pairs.values()])
    chosen = {name: n for name, n in sentences.items() if n < similarity.shape[2]}
    layers = invariance(similarity[:, :, [*chosen.values()]].mean(2))[:, :, 1:]  # (seeds, 2, L)
    leads = [shape - ape for ape, shape in layers.mean(2).tolist()]
    tables = [_table(name, similarity[0, :, n], offsets, n, seed) for name, n in chosen.items()]
    return Content(tables, values={CLAIM: dict(zip(pairs, leads, strict=True))})


def _table(
    name: str, similarity: Array, offsets: Sequence[int], sentence: int, seed: int
) -> DocumentTable:
    """Return the table of a sentence, (2, L + 1, K, K), and its heat maps."""
    return DocumentTable(
        name=name,
        title=f"Similarity of states, sentence {sentence + 1}",
        header=("states", "offset", *map(str, offsets)),
        rows=tuple(
            (
                *words(f"{position}, {layer_name(layer)}", str(offset)),
                *(number(value, ".4f") for value in values),
            )
            for position, matrices in zip(PAIR, similarity.tolist(), strict=True)
            for layer, matrix in enumerate(matrices)
            for offset, values in zip(offsets, matrix, strict=True)
        ),
        notes=("Interpolate; mean cosine over the positions of the sentence", f"seed {seed}"),
        figure=f"Encoder states under offsets up to K, sentence {sentence + 1} of validation",
        drawing=plot(similarity, offsets),
    )


def plot(similarity: Array, offsets: Sequence[int]) -> Figure:
    """Draw heat maps `(2, L + 1, K, K)`: a row for each of APE and SHAPE, a column for the
    embeddings and each layer. All share one colour scale, which ends at 1."""
    num_rows, num_columns, num_offsets, _ = similarity.shape
    scale = Normalize(min(0.9, similarity.min()), 1)  # where all are 1, it still needs a width
    with styled():
        size = min(1.1, (TEXT_WIDTH_IN - _MARGIN_IN) / num_columns)
        height = max(1.9, (size + 0.05) * num_rows + 0.65)
        figure = Figure(figsize=(size * num_columns + _MARGIN_IN, height), layout="constrained")
        panels = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True, sharey=True)
        font_pt = min(6, 30 * size / num_offsets)
        for (row, column), axes in np.ndenumerate(panels):
            matrix = similarity[row, column]
            image = draw_matrix(axes, matrix, _shown, _COLOURS, scale, font_pt)
            if row == 0:
                axes.set_title(layer_name(column))
            if column == 0:
                axes.set_ylabel(PAIR[row], fontsize=8.5)
            axes.tick_params(axis="x", rotation=90)
        panels[0, 0].set_xticks(range(num_offsets), map(str, offsets))
        panels[0, 0].set_yticks(range(num_offsets), map(str, offsets))
        figure.supxlabel("offset $k_2$ (tokens)", fontsize=8)
        figure.supylabel("offset $k_1$ (tokens)", fontsize=8)
        bar = figure.colorbar(image, ax=panels, shrink=0.9, aspect=30, pad=0.01)
        bar.set_label("mean cosine similarity")
        bar.outline.set_linewidth(0)
    return figure


def _shown(cosine: float) -> str:
    """Return a cosine as text. Only exact invariance is shown as "1"; 0.997 does not round up to
    it."""
    return "1" if cosine >= 0.9995 else f"{min(cosine, 0.99):.2f}".replace("0.", ".")


def layer_name(layer: int) -> str:
    """Return the displayed name of a layer's states; 0 are the embeddings."""
    return "embeddings" if layer == 0 else f"layer {layer}"
