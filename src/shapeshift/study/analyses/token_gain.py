"""Figure 4 of the SHAPE paper (Kiyono et al. 2021, section 4): the share of validation tokens that
SHAPE gives a higher probability than APE, by position in the decoder and by how often the token
occurs in the training data.

Differs from the paper: a tie counts one half, so that a field of equal models shows 50 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from shapeshift.data.batching import Batch, collate, plan_in_order
from shapeshift.data.store import TokenStore
from shapeshift.data.subwords import EOS, PAD
from shapeshift.decoding.scoring import score_references
from shapeshift.model import Transformer
from shapeshift.study.analyses import draw_matrix, paired
from shapeshift.study.by_length import bounds_label, length_bounds, ranges
from shapeshift.study.document import Content, DocumentTable, number, words
from shapeshift.study.figures import TEXT_WIDTH_IN, styled
from shapeshift.study.grid import PlannedRun
from shapeshift.study.measured import Measured
from shapeshift.training.precision import choose_device

FREQUENCY_EDGES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)

RARE = 1_000
"""A token with fewer occurrences in training counts as rare; one of `FREQUENCY_EDGES`."""

FEW_TOKENS = 30
"""A share of fewer tokens is not shown: its standard error is over nine points."""

_MOST_COLUMNS = 8
_CHUNK = 10_000
_COLOURS = "PuOr"  # distinct under every colour blindness

Array = NDArray[np.float64]
Counts = Array
"""Tokens that SHAPE scores higher (a tie counts one half), and all tokens, with each sentence's
`</s>`: a row for each frequency, a column for each position, which is the number of target tokens
before. (2, frequencies, positions)"""


def by_position_and_frequency(measured: Measured) -> Content:
    """Draw a heat map for each dataset, all seeds together, and compute for each seed the shares of
    tokens that SHAPE scores higher, in percent."""
    content = Content()
    for dataset in ("extrapolate", "interpolate"):
        pairs = paired(measured, {"recipe": dataset})
        if not pairs:
            continue
        first = next(iter(pairs.values()))[0]
        bounds = length_bounds(first.config, "beyond")
        unseen = bounds[0] if bounds else None
        edges = position_edges(measured, first, unseen)
        total = np.zeros((2, len(FREQUENCY_EDGES) + 1, len(edges) + 1))
        for seed, pair in pairs.items():
            counts = compare(measured, pair, edges)
            total += counts
            num_rare = FREQUENCY_EDGES.index(RARE) + 1
            parts = (counts, counts[:, :num_rare], counts[:, num_rare:])
            every, rare, others = (share(part.sum((1, 2))) for part in parts)
            rare_name = f"% of tokens with fewer than {RARE:,} occurrences minus % of others"
            found = {"% of all tokens": every, rare_name: rare - others}
            if unseen in edges:
                beyond = counts[:, :, edges.index(unseen) + 1 :]
                found["% of the tokens at unseen positions"] = share(beyond.sum((1, 2)))
            for name, value in found.items():
                if not np.isnan(value):
                    content.values.setdefault(f"{dataset}: {name}", {})[seed] = float(value)
        title = f"Tokens that SHAPE scores higher than APE, {dataset.capitalize()}"
        occurrences, positions = labels(FREQUENCY_EDGES), labels(edges)
        table = DocumentTable(
            name=f"figure4-{dataset}",
            title=title,
            header=("occurrences", "position", "tokens", "share (%)"),
            rows=tuple(
                (
                    *words(occurrences[row], positions[column]),
                    number(int(count), ","),
                    number(float(100 * total[0, row, column] / count), ".1f"),
                )
                for (row, column), count in np.ndenumerate(total[1])
                if count
            ),
            notes=(
                "validation tokens, all seeds together; a tie counts one half",
                "position: target tokens before; occurrences: in the training data",
            ),
            figure=title,
            drawing=plot(total, edges, unseen),
        )
        content.tables.append(table)
    return content


def share(counts: Counts) -> Array:
    """Return the percentage of tokens that SHAPE scores higher in each field; NaN where there are
    fewer than `FEW_TOKENS`."""
    higher, total = counts
    shares: Array = 100 * higher / np.where(total >= FEW_TOKENS, total, np.nan)
    return shares


def position_edges(measured: Measured, planned: PlannedRun, unseen: int | None) -> tuple[int, ...]:
    """Return bounds of positions: one is where training ends, and there are some eight. `(10, 20)`
    makes [0, 10), [10, 20) and [20, ∞)."""
    longest = int(measured.prepared(planned).valid.target_lengths.max())
    wide = 10 * max(1, -(-longest // (10 * _MOST_COLUMNS)))
    first = unseen % wide if unseen else wide
    first += wide if first < wide / 2 else 0
    return tuple(range(first, max(longest, first + 1), wide))


def compare(
    measured: Measured, pair: tuple[PlannedRun, PlannedRun], edges: Sequence[int]
) -> Counts:
    """Return which validation tokens one run scores higher than another."""

    def measure() -> list[list[list[float]]]:
        data, training = measured.prepared(pair[0]), pair[0].config.training
        device = choose_device(training.device)
        baseline, system = (measured.run(planned).model(device=device) for planned in pair)
        store = data.valid
        plan = plan_in_order(store.source_lengths, store.target_lengths, training.batch)
        batches = (collate(store, pairs).to(device) for pairs in plan)
        counts: list[list[list[float]]] = compute(
            baseline, system, batches, token_counts(data.train), edges
        ).tolist()
        return counts

    name = f"token-gain-{'-'.join(map(str, edges))}"
    return np.array(measured.computed(name, list[list[list[float]]], pair, measure))


def compute(
    baseline: Transformer,
    system: Transformer,
    batches: Iterable[Batch],
    frequencies: NDArray[np.int64],
    edges: Sequence[int],
) -> Counts:
    """Score all references with both models, each token given those before it, and compare.

    Log-probabilities are float32. Where two models are both certain of a token, they may well
    agree in every bit.

    Args:
        baseline, system: in any mode.
        batches: validation pairs on the device of the models.
        frequencies: of each target id in the training data, see `token_counts`. (V,)
        edges: bounds of positions, ascending from 1 up.
    """
    counts = np.zeros((2, len(FREQUENCY_EDGES) + 1, len(edges) + 1))
    for batch in batches:
        gains = score_references(system, batch) - score_references(baseline, batch)  # (B, T)
        targets = batch.target_output.cpu().numpy()
        real = targets != PAD
        columns = np.broadcast_to(np.digitize(np.arange(targets.shape[1]), edges), targets.shape)
        fields = (np.digitize(frequencies[targets[real]], FREQUENCY_EDGES), columns[real])
        np.add.at(counts[0], fields, (torch.sign(gains).cpu().numpy()[real] + 1) / 2)
        np.add.at(counts[1], fields, 1)
    return counts


def token_counts(store: TokenStore) -> NDArray[np.int64]:
    """Count how often each target id occurs in a store; `</s>` once a sentence. Shape: (V,)."""
    counts = np.zeros(store.target_size, dtype=np.int64)
    for start in range(0, len(store), _CHUNK):
        chunk = np.arange(start, min(start + _CHUNK, len(store)))
        counts += np.bincount(store.gather(chunk)[1].tokens, minlength=len(counts))
    counts[EOS] += len(store)
    return counts


def labels(edges: Sequence[int]) -> list[str]:
    """Return the names of the ranges between edges: `0–9`, `10–19`, `≥ 20`."""
    return [*map(bounds_label, ranges(edges))]


def plot(counts: Counts, edges: Sequence[int], unseen: int | None = None) -> Figure:
    """Draw the heat map of shares: 50 %, where neither is better, is white, a share of few tokens
    blank. A line stands before `unseen`, the first position that training has not shown."""
    # From the first to the last row, and column, that have tokens.
    rows, columns = (
        slice(int(used[0]), int(used[-1]) + 1)
        for used in (np.flatnonzero(counts[1].any(axis)) for axis in (1, 0))
    )
    shares = share(counts)[rows, columns]
    most = max(5.0, float(np.nanmax(np.abs(shares - 50), initial=0)))  # of the scale, in points
    with styled():
        figure = Figure(figsize=(0.8 * TEXT_WIDTH_IN, 2.7), layout="constrained")
        axes = figure.subplots()
        scale = Normalize(50 - most, 50 + most)
        image = draw_matrix(axes, shares, "{:.0f}".format, _COLOURS, scale)
        axes.set_aspect("auto")
        axes.yaxis.set_ticks(range(len(shares)), labels(FREQUENCY_EDGES)[rows])
        axes.xaxis.set_ticks(range(len(shares.T)), labels(edges)[columns])
        axes.set_xlabel(
            f"position in the decoder (target tokens before)\nblank: fewer than {FEW_TOKENS} tokens"
        )
        axes.set_ylabel("occurrences in training")
        if unseen in edges:
            place = edges.index(unseen) + 0.5 - columns.start
            axes.axvline(place, color="black", linewidth=1)
            above = axes.get_xaxis_transform()
            axes.text(place, 1.02, " unseen in training →", transform=above, fontsize=7)
        bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=25)
        bar.set_label("tokens that shape scores\nhigher than ape (%)")
        bar.outline.set_visible(False)
    return figure
