"""Figure 4 of the SHAPE paper (Kiyono et al. 2021, section 4): the share of validation tokens that
SHAPE gives a higher probability than APE, by position in the decoder and by how often the token
occurs in the training data.

Differs from the paper: a tie counts one half, so that a cell of equal models shows 50 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure as Drawing
from numpy.typing import NDArray

from shapeshift.data.batching import Batch, collate, plan_in_order
from shapeshift.data.config import BatchConfig
from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import EOS, PAD
from shapeshift.decoding.scoring import score_references
from shapeshift.lab.grid import Cell
from shapeshift.lab.looks import TEXT_WIDTH_IN, styled
from shapeshift.model import Transformer
from shapeshift.papers.analyses import paired
from shapeshift.papers.by_length import length_bounds, place_of
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, number, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.study import Study
from shapeshift.training.precision import choose_device

DATASETS = ("extrapolate", "interpolate")

FREQUENCY_EDGES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)

RARE = 1_000
"""A token with fewer occurrences in training counts as rare; one of `FREQUENCY_EDGES`."""

FEW_TOKENS = 30
"""A share of fewer tokens is not shown: its standard error is over nine points."""

_MOST_COLUMNS = 8
_CHUNK = 10_000
_EQUAL = 50.0
_COLOURS = "PuOr"  # distinct under every colour blindness


@dataclass(frozen=True)
class TokenGain:
    """Counts of tokens, with a row for each frequency and a column for each position.

    Attributes:
        edges: bounds between columns: `(10, 20)` makes [0, 10), [10, 20), [20, ∞). A position is
            counted from 0, so that it is the number of target tokens before.
        higher: tokens that the system scores higher; a tie counts one half.
        total: all tokens, with each sentence's `</s>`.
    """

    edges: tuple[int, ...]
    higher: list[list[float]]
    total: list[list[int]]

    def shares(self) -> NDArray[np.float64]:
        """Return the percentage of tokens that the system scores higher, NaN where there are none.
        Shape: (frequencies, positions)."""
        with np.errstate(invalid="ignore"):
            shares: NDArray[np.float64] = 100 * np.array(self.higher) / np.array(self.total)
        return shares

    def share(self, *, begin: int = 0, rare: bool | None = None) -> float | None:
        """Return the percentage among some tokens; `None` if they are fewer than `FEW_TOKENS`, or
        `begin` is no bound.

        Args:
            begin: only positions from here on; one of `edges`, or 0.
            rare: only tokens with fewer occurrences in training than `RARE`, or only the others.
        """
        if begin and begin not in self.edges:
            return None
        column = self.edges.index(begin) + 1 if begin else 0
        row = FREQUENCY_EDGES.index(RARE) + 1
        rows = {None: slice(None), True: slice(None, row), False: slice(row, None)}[rare]
        higher, total = (np.array(x)[rows, column:].sum() for x in (self.higher, self.total))
        return 100 * float(higher) / int(total) if total >= FEW_TOKENS else None


def by_position_and_frequency(study: Study) -> Content:
    """Draw a heat map for each dataset, all seeds together, and compute for each seed the shares of
    tokens that SHAPE scores higher, in percent."""
    content = Content()
    for dataset in DATASETS:
        axes = {"dataset": dataset}
        runs = paired(study, axes)
        bounds = length_bounds(study.cells(axes)[0].config, "beyond")
        unseen = bounds[0] if bounds else None
        gains = {
            seed: compare(study, pair, position_edges(study, pair[0], unseen))
            for seed, pair in runs.items()
        }
        _add_values(content, dataset, gains, unseen)
        if not gains:
            continue
        name = f"figure4-{dataset}"
        title = f"Tokens that SHAPE scores higher than APE, {dataset.capitalize()}"
        total = add_up([*gains.values()])
        table = DocumentTable(
            name=name,
            title=title,
            header=("occurrences", "position", "tokens", "share (%)"),
            rows=tuple(_rows(total, [cell for pair in runs.values() for cell in pair])),
            notes=(
                "validation tokens, all seeds together; a tie counts one half",
                "position: target tokens before; occurrences: in the training data",
            ),
        )
        about = DocumentFigure(
            name=name,
            title=title,
            table=name,
            alt=f"Heat map of the percentage of validation tokens of {dataset} that SHAPE scores"
            " higher than APE, by position in the decoder and by occurrences in training;"
            f" {100 * np.sum(total.higher) / np.sum(total.total):.1f} over all tokens.",
        )
        content.tables.append(table)
        content.figures.append(Figure(about, plot(total, unseen - 1 if unseen else None)))
    return content


def _add_values(
    content: Content, dataset: str, gains: Mapping[int, TokenGain], unseen: int | None
) -> None:
    shares = {f"{dataset}: % of all tokens": {seed: x.share() for seed, x in gains.items()}}
    name = f"{dataset}: % of tokens with fewer than {RARE:,} occurrences minus % of others"
    shares[name] = {
        seed: None if rare is None or other is None else rare - other
        for seed, x in gains.items()
        for rare, other in [(x.share(rare=True), x.share(rare=False))]
    }
    if unseen is not None:
        name = f"{dataset}: % of the tokens at unseen positions"
        shares[name] = {seed: x.share(begin=unseen) for seed, x in gains.items()}
    for name, values in shares.items():
        content.values[name] = {seed: x for seed, x in values.items() if x is not None}


def position_edges(study: Study, cell: Cell, unseen: int | None) -> tuple[int, ...]:
    """Return bounds of positions: one is where training ends, and there are some eight."""
    longest = int(study.prepared(cell).valid.target_lengths.max())
    wide = 10 * max(1, -(-longest // (10 * _MOST_COLUMNS)))
    first = unseen % wide if unseen else wide
    first += wide if first < wide / 2 else 0
    return tuple(range(first, max(longest, first + 1), wide))


def compare(study: Study, pair: tuple[Cell, Cell], edges: tuple[int, ...]) -> TokenGain:
    """Return where one run scores validation tokens higher than another."""

    def measure() -> TokenGain:
        data, training = study.prepared(pair[0]), pair[0].config.training
        device = choose_device(training.device)
        baseline, system = (study.run(cell).model(device=device) for cell in pair)
        batches = in_order(data.valid, device, training.batch)
        return compute(baseline, system, batches, token_counts(data.train), edges)

    name = f"token-gain-{'-'.join(map(str, edges))}"
    return study.computed(name, TokenGain, pair, measure)


def in_order(
    store: TokenStore, device: torch.device | str = "cpu", batch: BatchConfig | None = None
) -> Iterable[Batch]:
    """Yield the pairs of a store in batches, shortest first, on a device."""
    plan = plan_in_order(store.source_lengths, store.target_lengths, batch or BatchConfig())
    return (collate(store, pairs).to(device) for pairs in plan)


def compute(
    baseline: Transformer,
    system: Transformer,
    batches: Iterable[Batch],
    frequencies: NDArray[np.int64],
    edges: Sequence[int],
    frequency_edges: Sequence[int] = FREQUENCY_EDGES,
) -> TokenGain:
    """Score all references with both models, each token given those before it, and compare.

    Log-probabilities are float32. Where two models are both certain of a token, they may well
    agree in every bit.

    Args:
        baseline, system: in any mode.
        batches: validation pairs on the device of the models.
        frequencies: of each target id in the training data, see `token_counts`. (V,)
        edges, frequency_edges: bounds of the cells, ascending from 1 up.
    """
    higher, total = np.zeros((2, len(frequency_edges) + 1, len(edges) + 1))
    for batch in batches:
        gains = score_references(system, batch) - score_references(baseline, batch)  # (B, T)
        targets = batch.target_output.cpu().numpy()
        real = targets != PAD
        columns = np.broadcast_to(np.digitize(np.arange(targets.shape[1]), edges), targets.shape)
        cells = (np.digitize(frequencies[targets[real]], frequency_edges), columns[real])
        np.add.at(total, cells, 1)
        np.add.at(higher, cells, (torch.sign(gains).cpu().numpy()[real] + 1) / 2)
    return TokenGain(tuple(edges), higher.tolist(), total.astype(int).tolist())


def token_counts(store: TokenStore) -> NDArray[np.int64]:
    """Count how often each target id occurs in a store; `</s>` once a sentence. Shape: (V,)."""
    counts = np.zeros(store.target_size, dtype=np.int64)
    for start in range(0, len(store), _CHUNK):
        chunk = range(start, min(start + _CHUNK, len(store)))
        ids = np.concatenate([store[number][1] for number in chunk])
        counts += np.bincount(ids, minlength=len(counts))
    counts[EOS] += len(store)
    return counts


def add_up(gains: Sequence[TokenGain]) -> TokenGain:
    """Return the counts of all seeds together."""
    higher, total = (np.sum([getattr(x, name) for x in gains], 0) for name in ("higher", "total"))
    return TokenGain(gains[0].edges, higher.tolist(), total.tolist())


def _rows(gain: TokenGain, cells: Sequence[Cell]) -> list[tuple[Entry, ...]]:
    """Return a row for each frequency and position that has tokens."""
    shares = gain.shares()
    occurrences, positions = labels(FREQUENCY_EDGES), labels(gain.edges)
    return [
        (
            *words(occurrences[row], positions[column]),
            number(int(count), ",", cells),
            number(float(shares[row, column]), ".1f", cells),
        )
        for (row, column), count in np.ndenumerate(gain.total)
        if count
    ]


def labels(edges: Sequence[int]) -> list[str]:
    """Return the names of the ranges between edges: `0–9`, `10–19`, `≥ 20`."""
    inner = [f"{low:,}–{high - 1:,}" for low, high in pairwise((0, *edges))]
    return [*inner, f"≥ {edges[-1]:,}"]


def plot(gain: TokenGain, trained: int | None = None) -> Drawing:
    """Draw the heat map: 50 %, where neither is better, is white, a share of few tokens blank. A
    line stands behind `trained`, the most target subwords in training."""
    total = np.array(gain.total)
    shares = np.where(total < FEW_TOKENS, np.nan, gain.shares())
    # From the first to the last row, and column, that have tokens.
    rows, columns = (
        slice(int(used[0]), int(used[-1]) + 1)
        for used in (np.flatnonzero(total.any(axis)) for axis in (1, 0))
    )
    shares = shares[rows, columns]
    drawn = shares[~np.isnan(shares)]
    most = float(max([5.0, *np.abs(drawn - _EQUAL)]))  # of the scale, in percentage points
    scale = Normalize(_EQUAL - most, _EQUAL + most)
    with styled():
        figure = Drawing(figsize=(0.8 * TEXT_WIDTH_IN, 2.7), layout="constrained")
        axes = figure.subplots()
        image = np.ma.masked_invalid(shares)
        axes.imshow(image, cmap=_COLOURS, norm=scale, origin="lower", aspect="auto")
        axes.yaxis.set_ticks(range(len(shares)), labels(FREQUENCY_EDGES)[rows])
        axes.xaxis.set_ticks(range(len(shares.T)), labels(gain.edges)[columns])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        for (row, column), share in np.ndenumerate(shares):
            if not np.isnan(share):
                strong = abs(share - _EQUAL) > 0.6 * most
                axes.text(
                    column,
                    row,
                    f"{share:.0f}",
                    ha="center",
                    va="center",
                    fontsize=6,
                    color="white" if strong else "black",
                )
        note = f"\nblank: fewer than {FEW_TOKENS} tokens" if len(drawn) < shares.size else ""
        axes.set_xlabel(f"position in the decoder (target tokens before){note}")
        axes.set_ylabel("occurrences in training")
        if trained is not None:
            # Training shows the positions 0 … trained: at the last is the </s> of the longest.
            place = place_of(trained + 1, (0, *gain.edges)) - columns.start
            axes.axvline(place, color="black", linewidth=1)
            above = axes.get_xaxis_transform()
            axes.text(place, 1.02, " unseen in training →", transform=above, fontsize=7)
        bar = figure.colorbar(ScalarMappable(scale, _COLOURS), ax=axes, pad=0.02, aspect=25)
        bar.set_label("tokens that shape scores\nhigher than ape (%)")
        bar.outline.set_visible(False)
    return figure
