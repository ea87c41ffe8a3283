"""Figure 4 of the SHAPE paper: the tokens that SHAPE gives a higher probability than APE, by
position in the decoder and by how often they stand in the training data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from shapeshift.lab.analysis import token_gain
from shapeshift.lab.analysis.token_gain import FEW_TOKENS, TokenGain
from shapeshift.lab.grid import Cell
from shapeshift.papers.analyses import paired
from shapeshift.papers.by_length import length_bounds
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, number, words
from shapeshift.papers.item import Content, Figure
from shapeshift.papers.study import Study
from shapeshift.training.precision import choose_device

DATASETS = ("extrapolate", "interpolate")

RARE = 1_000
"""A token with fewer occurrences in training counts as rare."""

_MOST_COLUMNS = 8


def by_position_and_frequency(study: Study, grid: str) -> Content:
    """Draw a heat map for each dataset, all seeds together, and compute for each seed the shares of
    tokens that SHAPE scores higher, in percent."""
    content = Content()
    for dataset in DATASETS:
        axes = {"dataset": dataset}
        runs = paired(study, grid, axes)
        unseen = length_bounds(study.cells(grid, axes)[0].config, "beyond")
        data = {
            seed: compare(study, pair, position_edges(study, pair[0], unseen and unseen[0]))
            for seed, pair in runs.items()
        }
        name = f"figure4-{dataset}"
        title = f"Tokens that SHAPE scores higher than APE, {dataset.capitalize()}"
        total = add_up([*data.values()])
        cells = [cell for pair in runs.values() for cell in pair]
        content.tables.append(
            DocumentTable(
                name=name,
                title=title,
                header=("occurrences", "position", "tokens", "share (%)"),
                rows=tuple(_rows(total, cells)) if total else (),
                notes=(
                    "validation tokens, all seeds together; a tie counts one half",
                    "position: target tokens before; occurrences: in the training data",
                ),
            )
        )
        if total:
            about = DocumentFigure(
                name=name,
                title=title,
                table=name,
                alt=f"Heat map of the percentage of validation tokens of {dataset} that SHAPE"
                " scores higher than APE, by position in the decoder and by occurrences in"
                f" training; {total.overall():.1f} over all tokens.",
            )
            drawing = token_gain.plot(total, unseen[0] - 1 if unseen and unseen[0] else None)
            content.figures.append(Figure(about, drawing))
        shares: dict[str, Callable[[TokenGain], float | None]] = {
            "% of all tokens": share,
            f"% of tokens with fewer than {RARE:,} occurrences minus % of others": _rare_lead,
        }
        if unseen:
            find_unseen = partial(share, begin=unseen[0])
            shares["% of the tokens at unseen positions"] = find_unseen
        for label, find in shares.items():
            found = {seed: find(each) for seed, each in data.items()}
            content.values[f"{dataset}: {label}"] = {
                seed: value for seed, value in found.items() if value is not None
            }
    return content


def share(data: TokenGain, *, begin: int = 0, below: int | None = None) -> float | None:
    """Return the percentage of tokens that the system scores higher among some, a tie counting one
    half; `None` if they are fewer than `FEW_TOKENS`, or `begin` is no bound.

    Args:
        data: of one seed or of several.
        begin: only positions from here on; one of `data.position_edges`, or 0.
        below: only tokens with fewer occurrences in training, one of `data.frequency_edges`; a
            negative number for those with as many or more.
    """
    if begin and begin not in data.position_edges:
        return None
    columns = slice(data.position_edges.index(begin) + 1 if begin else 0, None)
    rows = slice(None)
    if below is not None:
        edge = data.frequency_edges.index(abs(below)) + 1
        rows = slice(None, edge) if below > 0 else slice(edge, None)
    higher, ties, total = (
        int(np.array(grid)[rows, columns].sum()) for grid in (data.higher, data.ties, data.total)
    )
    return 100 * (higher + ties / 2) / total if total >= FEW_TOKENS else None


def position_edges(study: Study, cell: Cell, unseen: int | None) -> tuple[int, ...]:
    """Return bounds of positions: one stands where training ends, and there are some eight.

    Args:
        study: with the cell.
        cell: whose validation data it is about.
        unseen: the first position that training has not shown; `None` if there is none.
    """
    longest = int(study.prepared(cell).valid.target_lengths.max())
    wide = 10 * max(1, -(-longest // (10 * _MOST_COLUMNS)))
    first = unseen % wide if unseen else wide
    first += wide if first < wide / 2 else 0
    return tuple(range(first, max(longest, first + 1), wide))


def compare(study: Study, pair: tuple[Cell, Cell], edges: tuple[int, ...]) -> TokenGain:
    """Return where one run scores validation tokens higher than another.

    Args:
        study: with the cells.
        pair: the baseline and the system, both finished, on the same data.
        edges: bounds of positions.
    """

    def compute() -> TokenGain:
        data = study.prepared(pair[0])
        training = pair[0].config.training
        device = choose_device(training.device)
        baseline, system = (
            (cell.axes["position"], study.run(cell).model(device=device)) for cell in pair
        )
        batches = token_gain.in_order(data.valid, device, training.batch)
        counts = token_gain.token_counts(data.train)
        return token_gain.compute(baseline, system, batches, counts, position_edges=edges)

    name = f"token-gain-{'-'.join(map(str, edges))}"
    return study.computed(name, TokenGain, pair, compute)


def add_up(each: Sequence[TokenGain]) -> TokenGain | None:
    """Return the counts of all seeds together; `None` if there is none."""
    if not each:
        return None

    def add(name: str) -> tuple[tuple[int, ...], ...]:
        grid = np.sum([getattr(data, name) for data in each], axis=0)
        return tuple(map(tuple, grid.tolist()))

    return replace(each[0], higher=add("higher"), ties=add("ties"), total=add("total"))


def _rare_lead(data: TokenGain) -> float | None:
    rare, other = share(data, below=RARE), share(data, below=-RARE)
    return None if rare is None or other is None else rare - other


def _rows(data: TokenGain, cells: Sequence[Cell]) -> list[tuple[Entry, ...]]:
    """Return a row for each frequency and position that has tokens."""
    shares = data.shares()
    occurrences = token_gain.labels(data.frequency_edges)
    positions = token_gain.labels(data.position_edges)
    return [
        (
            *words(occurrences[row], positions[column]),
            number(int(count), ",", cells),
            number(float(shares[row, column]), ".1f", cells),
        )
        for (row, column), count in np.ndenumerate(data.total)
        if count
    ]
