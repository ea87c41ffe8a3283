"""Where one model gives reference tokens a higher probability than another.

Kiyono et al. 2021 (SHAPE), section 4 and Figure 4: the share of validation tokens that SHAPE scores
higher than APE, by position in the decoder and by how often the token stands in the training data.
Differs from the paper: a tie counts one half, so that a cell of equal models shows 50 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from shapeshift.data.batching import Batch, collate, plan_in_order
from shapeshift.data.config import BatchConfig
from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import EOS, PAD
from shapeshift.decoding.scoring import score_references
from shapeshift.errors import ShapeshiftError
from shapeshift.lab.looks import TEXT_WIDTH_IN, styled
from shapeshift.model import Transformer

POSITION_EDGES = (10, 20, 30, 40, 50, 60, 70)
FREQUENCY_EDGES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)

FEW_TOKENS = 30
"""A share of fewer tokens is drawn faint, in brackets: its standard error is over nine points."""

_X_TITLE = "position in the decoder (target tokens before)"
_Y_TITLE = "occurrences in training"
_FEW = f"in brackets: fewer than {FEW_TOKENS} tokens"

_CHUNK = 10_000
_EQUAL = 50.0
_COLOURS = "PuOr"  # distinct under every colour blindness


@dataclass(frozen=True)
class TokenGain:
    """The data of the figure. Grids have a row for each frequency and a column for each position.

    Attributes:
        system: whose gain is measured.
        baseline: over whom.
        position_edges: bounds between columns: `(10, 20)` makes [0, 10), [10, 20), [20, ∞). A
            position is counted from 0, so that it is the number of target tokens before.
        frequency_edges: bounds between rows, in occurrences in the training data.
        higher: tokens that the system scores higher.
        ties: tokens whose scores are equal to the last bit.
        total: all tokens, with each sentence's `</s>`.
    """

    system: str
    baseline: str
    position_edges: tuple[int, ...]
    frequency_edges: tuple[int, ...]
    higher: tuple[tuple[int, ...], ...]
    ties: tuple[tuple[int, ...], ...]
    total: tuple[tuple[int, ...], ...]

    def shares(self) -> NDArray[np.float64]:
        """Return the percentage of tokens that the system scores higher, NaN where there are none.
        Shape: (frequencies, positions)."""
        return _shares(np.array(self.higher), np.array(self.ties), np.array(self.total))

    def overall(self) -> float:
        """Return the percentage over all tokens."""
        counts = (np.sum(grid) for grid in (self.higher, self.ties, self.total))
        return float(_shares(*counts))


def token_counts(store: TokenStore) -> NDArray[np.int64]:
    """Count how often each target id stands in a store; `</s>` once a sentence. Shape: (V,)."""
    counts = np.zeros(store.target_size, dtype=np.int64)
    for start in range(0, len(store), _CHUNK):
        chunk = range(start, min(start + _CHUNK, len(store)))
        ids = np.concatenate([store[number][1] for number in chunk])
        counts += np.bincount(ids, minlength=len(counts))
    counts[EOS] += len(store)
    return counts


def compute(
    baseline: tuple[str, Transformer],
    system: tuple[str, Transformer],
    batches: Iterable[Batch],
    frequencies: NDArray[np.int64],
    *,
    position_edges: Sequence[int] = POSITION_EDGES,
    frequency_edges: Sequence[int] = FREQUENCY_EDGES,
) -> TokenGain:
    """Score all references with both models, each token given those before it, and compare.

    Log-probabilities are float32. Where two models are both certain of a token, they may well
    agree in every bit.

    Args:
        baseline, system: name and model, in any mode.
        batches: validation pairs on the device of the models, such as those of `in_order`.
        frequencies: of each target id in the training data, see `token_counts`. (V,)
        position_edges, frequency_edges: bounds of the cells, ascending from 1 up.

    Raises:
        ShapeshiftError: frequencies of another vocabulary.
    """
    grids = np.zeros((3, len(frequency_edges) + 1, len(position_edges) + 1), dtype=np.int64)
    for batch in batches:
        old = score_references(baseline[1], batch)
        new = score_references(system[1], batch)
        gains = (new - old).cpu().numpy()  # (B, T)
        targets = batch.target_output.cpu().numpy()
        if targets.max() >= len(frequencies):
            raise ShapeshiftError(
                f"target id {targets.max()}, but counts of {len(frequencies)} subwords; count the"
                " training data of the same subword model"
            )
        real = targets != PAD
        columns = np.digitize(np.arange(targets.shape[1]), position_edges)
        rows = np.digitize(frequencies[targets[real]], frequency_edges)
        cells = (rows, np.broadcast_to(columns, targets.shape)[real])
        for grid, chosen in zip(grids, (gains > 0, gains == 0, real), strict=True):
            np.add.at(grid, cells, chosen[real])
    higher, ties, total = (tuple(map(tuple, grid.tolist())) for grid in grids)
    return TokenGain(
        system[0],
        baseline[0],
        tuple(position_edges),
        tuple(frequency_edges),
        higher,
        ties,
        total,
    )


def in_order(
    store: TokenStore, device: torch.device | str = "cpu", batch: BatchConfig | None = None
) -> Iterable[Batch]:
    """Yield the pairs of a store in batches, shortest first, on a device."""
    plan = plan_in_order(store.source_lengths, store.target_lengths, batch or BatchConfig())
    return (collate(store, pairs).to(device) for pairs in plan)


def plot(data: TokenGain, trained: int | None = None) -> Figure:
    """Draw the heat map; 50 %, where neither is better, is white. Save it with `figures.save`.

    Args:
        data: what `compute` returned.
        trained: the most target subwords in training; a line stands where longer ones begin.
    """
    shares, total = data.shares(), np.array(data.total)
    # From the first to the last row, and column, that have tokens.
    rows, columns = (
        slice(int(used[0]), int(used[-1]) + 1)
        for used in (np.flatnonzero(total.any(axis)) for axis in (1, 0))
    )
    shares, total = shares[rows, columns], total[rows, columns]
    few = total < FEW_TOKENS
    most = float(max([5.0, *np.abs(shares[~few] - _EQUAL)]))  # of the scale, in percentage points
    scale = Normalize(_EQUAL - most, _EQUAL + most)
    with styled():
        figure = Figure(figsize=(0.8 * TEXT_WIDTH_IN, 2.7), layout="constrained")
        axes = figure.subplots()
        axes.imshow(
            np.ma.masked_invalid(shares),
            cmap=_COLOURS,
            norm=scale,
            alpha=np.where(few, 0.3, 1.0),
            origin="lower",
            aspect="auto",
        )
        for axis, edges, part in (
            (axes.yaxis, data.frequency_edges, rows),
            (axes.xaxis, data.position_edges, columns),
        ):
            axis.set_ticks(range(part.stop - part.start), labels(edges)[part])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        for (row, column), share in np.ndenumerate(shares):
            if total[row, column]:
                faint = few[row, column]
                strong = not faint and abs(share - _EQUAL) > 0.6 * most
                axes.text(
                    column,
                    row,
                    f"({share:.0f})" if faint else f"{share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=6,
                    style="italic" if faint else "normal",
                    color="white" if strong else "black",
                )
        axes.set_xlabel(_X_TITLE + (f"\n{_FEW}" if few[total > 0].any() else ""))
        axes.set_ylabel(_Y_TITLE)
        if trained is not None:
            _mark_end_of_training(axes, data.position_edges, trained, columns.start)
        bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=axes, pad=0.02, aspect=25)
        bar.set_label(f"tokens that {data.system} scores\nhigher than {data.baseline} (%)")
        bar.outline.set_visible(False)
    return figure


def labels(edges: Sequence[int]) -> list[str]:
    """Return the names of the ranges between edges: `0–9`, `10–19`, `≥ 20`."""
    inner = [f"{low:,}–{high - 1:,}" for low, high in pairwise((0, *edges))]
    return [*inner, f"≥ {edges[-1]:,}"]


def _shares(
    higher: NDArray[np.int64], ties: NDArray[np.int64], total: NDArray[np.int64]
) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):
        shares: NDArray[np.float64] = 100 * (higher + 0.5 * ties) / total
    return shares


def _mark_end_of_training(axes: Axes, edges: Sequence[int], trained: int, first: int) -> None:
    """Draw a line where training ends; `first` is the first column that is drawn."""
    # Training shows the positions 0 … trained: at the last stands the </s> of the longest targets.
    widest = edges[-1] - (edges[-2] if len(edges) > 1 else 0)  # the last column has no end
    bounds = [0, *edges, edges[-1] + widest]
    place = float(np.interp(trained + 1, bounds, np.arange(len(bounds)) - 0.5 - first))
    axes.axvline(place, color="black", linewidth=1)
    above = axes.get_xaxis_transform()
    axes.text(place, 1.02, " unseen in training →", transform=above, fontsize=7)
