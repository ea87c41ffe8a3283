"""Figure 4: the tokens that SHAPE gives a higher probability than APE, by position in the decoder
and by how often they stand in the training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from shapeshift.lab.analysis import token_gain
from shapeshift.lab.analysis.token_gain import FEW_TOKENS, TokenGain
from shapeshift.lab.grid import Cell
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Figure, Item
from shapeshift.papers.shape.shared import GRID, PAIR, longest_trained, paired
from shapeshift.papers.spec import ClaimSpec
from shapeshift.papers.study import Study
from shapeshift.papers.verdicts import NOT_MEASURED, Part, finding
from shapeshift.training.precision import choose_device

DATASETS = ("extrapolate", "interpolate")

RARE = 1_000
"""A token with fewer occurrences in training counts as rare."""

Share = Callable[[TokenGain], float | None]
"""Of tokens, in percent; `None` where there are too few."""

HEADER = ("occurrences", "position", "tokens", "share (%)")

_MOST_COLUMNS = 8


def build(study: Study) -> Content:
    """Draw a heat map for each dataset, all seeds together, and judge where SHAPE is ahead."""
    content = Content()
    longest = longest_trained(study)
    found = {}
    for dataset in DATASETS:
        runs = paired(study, dataset)
        limit = longest if dataset == "extrapolate" else None
        found[dataset] = {
            seed: compare(study, pair, position_edges(study, pair[0], limit))
            for seed, pair in runs.items()
        }
        total = add_up([*found[dataset].values()])
        name = f"figure4-{dataset}"
        content.tables.append(_table(name, dataset, total, [*runs.values()]))
        if total is not None:
            about = DocumentFigure(
                name=name,
                title=f"Tokens that SHAPE scores higher than APE, {dataset.capitalize()}",
                table=name,
                alt=f"Heat map of the percentage of validation tokens of {dataset} that SHAPE"
                " scores higher than APE, by position in the decoder and by occurrences in"
                f" training; {total.overall():.1f} over all tokens.",
            )
            content.figures.append(Figure(about, token_gain.plot(total, limit)))
    content.findings.extend(_findings(study, found, longest))
    return content


def share(
    data: TokenGain, *, begin: int = 0, end: int | None = None, below: int | None = None
) -> float | None:
    """Return the percentage of tokens that the system scores higher among some, a tie counting one
    half; `None` if they are fewer than `FEW_TOKENS`.

    Args:
        data: of one seed or of several.
        begin, end: only positions from here on, and before; of `data.position_edges`, or 0 and
            `None`.
        below: only tokens with fewer occurrences in training, one of `data.frequency_edges`; a
            negative number for those with as many or more.
    """
    first, last = (data.position_edges.index(edge) + 1 if edge else edge for edge in (begin, end))
    columns = slice(first, last)
    rows = slice(None)
    if below is not None:
        edge = data.frequency_edges.index(abs(below)) + 1
        rows = slice(None, edge) if below > 0 else slice(edge, None)
    higher, ties, total = (
        int(np.array(grid)[rows, columns].sum()) for grid in (data.higher, data.ties, data.total)
    )
    return 100 * (higher + ties / 2) / total if total >= FEW_TOKENS else None


def position_edges(study: Study, cell: Cell, trained: int | None) -> tuple[int, ...]:
    """Return bounds of positions: one stands where training ends, and there are some eight.

    Args:
        study: with the cell.
        cell: whose validation data it is about.
        trained: the most target subwords in training; `None` if no position is unseen.
    """
    longest = int(study.prepared(cell).valid.target_lengths.max())
    wide = 10 * max(1, -(-longest // (10 * _MOST_COLUMNS)))
    first = wide if trained is None else (trained + 1) % wide
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


def rows_of(data: TokenGain, cells: Sequence[Cell]) -> Iterator[tuple[Entry, ...]]:
    """Yield the fields of `HEADER` for each frequency and position that has tokens.

    Args:
        data: what is described.
        cells: that it was computed from.
    """
    shares = data.shares()
    rows = token_gain.labels(data.frequency_edges)
    columns = token_gain.labels(data.position_edges)
    for (row, column), count in np.ndenumerate(data.total):
        if count:
            tokens = number(int(count), ",", cells)
            value = number(float(shares[row, column]), ".1f", cells)
            yield (*words(rows[row], columns[column]), tokens, value)


def _table(
    name: str, dataset: str, data: TokenGain | None, runs: Sequence[tuple[Cell, Cell]]
) -> DocumentTable:
    cells = [cell for pair in runs for cell in pair]
    return DocumentTable(
        name=name,
        title=f"Tokens that SHAPE scores higher than APE, {dataset.capitalize()}",
        header=HEADER,
        rows=tuple(rows_of(data, cells)) if data is not None else (),
        notes=(
            "validation tokens, all seeds together; a tie counts one half",
            "position: target tokens before; occurrences: in the training data",
        ),
    )


def _findings(
    study: Study, found: dict[str, dict[int, TokenGain]], longest: int | None
) -> list[Finding]:
    """Judge shares of tokens that SHAPE scores higher, in percent, against one half."""

    def judged(
        claim: str, paper: str, label: str, dataset: str, of: Share, limit: float
    ) -> Finding:
        shares = {seed: of(data) for seed, data in found[dataset].items()}
        values = {seed: share for seed, share in shares.items() if share is not None}
        reason = "" if values else "too few tokens" if shares else NOT_MEASURED
        spec = ClaimSpec(claim=claim, rule="threshold", at_least=limit, paper=paper)
        return finding(spec, {label: Part(values, reason=reason)}, study.scale)

    def unseen(data: TokenGain) -> float | None:
        if longest is None or longest + 1 not in data.position_edges:
            return None
        return share(data, begin=longest + 1)

    def lead(data: TokenGain) -> float | None:
        rare, other = share(data, below=RARE), share(data, below=-RARE)
        return None if rare is None or other is None else rare - other

    return [
        judged(
            "On Extrapolate SHAPE scores more than half of the tokens higher than APE at positions"
            " that training has not shown.",
            "Figure 4a: SHAPE ahead, most of all beyond the training lengths",
            f"% of the tokens after more than {longest} others",
            "extrapolate",
            unseen,
            50.0,
        ),
        judged(
            "On Interpolate SHAPE scores more than half of the tokens higher than APE.",
            "Figure 4b: SHAPE consistently ahead",
            "% of all tokens",
            "interpolate",
            share,
            50.0,
        ),
        judged(
            "On Interpolate SHAPE's lead is larger among rare tokens.",
            "Figure 4b: the difference is largest for infrequent tokens",
            f"% of tokens with fewer than {RARE:,} occurrences minus % of others",
            "interpolate",
            lead,
            0.0,
        ),
    ]


ITEM = Item(
    "Figure 4: tokens that SHAPE scores higher than APE",
    (GRID,),
    build,
    axes={"dataset": DATASETS, "position": PAIR},
)
