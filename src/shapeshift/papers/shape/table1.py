"""Table 1: BLEU of a training sequence's first sentence, in its place and moved to the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from shapeshift.lab.measures import ORIGINAL, SWAPPED
from shapeshift.lab.significance import Comparison
from shapeshift.papers.claims import NOT_MEASURED, difference, finding, versus
from shapeshift.papers.document import DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape.shared import (
    GRID,
    LEARNS_LATE,
    PAIR,
    positions,
    seeds,
    unanimous,
)
from shapeshift.papers.study import Study

# position -> BLEU in the original order, in the swapped order, performance drop
PUBLISHED = {"ape": (28.81, 20.74, 8.07), "shape": (28.51, 27.06, 1.45)}

FACTOR = 3
"""How many times SHAPE's drop APE's has to be; it is 5.6 times in the paper."""

SMALL_DROP = 1.0
"""BLEU: where neither drops by as much, there is nothing to compare."""

_HEADER = ("position", "original", "swapped", "performance drop")
_DATASET = "interpolate"
_ORDERS = ("original order", "swapped order")


def build(study: Study) -> Content:
    """Make our table beside the paper's, and judge the drops."""
    ours = table(study, "table1", GRID, positions(study, _DATASET))
    return Content(tables=[ours, published()], findings=[_finding(study)])


def table(study: Study, name: str, grid: str, systems: Sequence[str]) -> DocumentTable:
    """Return a table in the paper's form.

    Args:
        study: with the runs.
        name: of the table.
        grid: with the axes `dataset` and `position`.
        systems: settings of `position`, a row each.
    """
    return DocumentTable(
        name=name,
        title="BLEU of the first sentence of joined training pairs, in its place and at the end",
        header=(*_HEADER, "misparted (%), original", "misparted (%), swapped"),
        rows=tuple(_row(study, grid, position) for position in systems),
        notes=(
            f"Interpolate; {study.spread(grid)}",
            "misparted: outputs with another number of sentences than the source",
        ),
    )


def published() -> DocumentTable:
    """Return the paper's table."""
    return DocumentTable(
        name="table1-paper",
        title="BLEU on original and swapped order in the paper",
        origin="paper",
        header=_HEADER,
        rows=tuple(
            (*words(position), *map(number, values)) for position, values in PUBLISHED.items()
        ),
        notes=("10,000 sequences of ten sentences from the training data of Interpolate",),
    )


def judge(
    ape: Mapping[int, float], shape: Mapping[int, float], test: Comparison | None = None
) -> Verdict:
    """Return whether the swap costs APE at least `FACTOR` times as much as SHAPE.

    All seeds have to agree, and one of the two has to drop by `SMALL_DROP` on average. That it
    costs so much more has to be significant as well, where that could be tested.

    Args:
        ape, shape: seed → BLEU lost. A gain counts as no loss.
        test: of the difference between the two.
    """
    shared = sorted(ape.keys() & shape.keys())
    if not shared or max(fmean(each[s] for s in shared) for each in (ape, shape)) < SMALL_DROP:
        return "cannot tell"
    verdict = unanimous(ape[s] > 0 and ape[s] >= FACTOR * max(shape[s], 0.0) for s in shared)
    by_chance = test is not None and not test.significant
    return "cannot tell" if verdict == "holds" and by_chance else verdict


def drops(study: Study, grid: str, position: str) -> dict[int, float]:
    """Return seed → the BLEU that a position loses when the first sentence moves to the end."""
    axes = {"dataset": _DATASET, "position": position}
    original, swapped = (
        {row.seed: row.value for row in study.rows(grid, "BLEU", axes, bucket=order)}
        for order in _ORDERS
    )
    return {seed: original[seed] - swapped[seed] for seed in original.keys() & swapped.keys()}


def more_lost(study: Study, grid: str, pair: tuple[str, str]) -> Comparison | None:
    """Test how much more BLEU one position loses than another when the first sentence moves to the
    end; `None` where no seed of both has kept its translations.

    Args:
        study: with the runs.
        grid: with the axes `dataset` and `position`.
        pair: settings of `position`, the one that is to lose more and the other.
    """
    axes = {"dataset": _DATASET}
    found = versus(study, grid, "position", pair, axes, split=ORIGINAL, minus=SWAPPED)
    return found if isinstance(found, Comparison) else None


def beside(tested: Comparison | None) -> str:
    """Return what is to stand behind a drop: how much more APE loses, with p and seeds; nothing
    where there is no test."""
    return f" ({difference(tested)})" if tested else ""


def rule(who: str, tests: Iterable[Comparison | None]) -> str:
    """Return the rule of `judge` in words.

    Args:
        who: have to agree.
        tests: that there are.
    """
    if not any(tests):
        return f"No test: all {who} have to agree, and one of the two to drop by {SMALL_DROP:g}"
    return (
        f"All {who} have to agree, one of the two to drop by {SMALL_DROP:g}, and the difference"
        " (in brackets, paired bootstrap) to be significant"
    )


def _row(study: Study, grid: str, position: str) -> tuple[Entry, ...]:
    axes = {"dataset": _DATASET, "position": position}
    original, swapped = (
        study.entry(study.rows(grid, "BLEU", axes, bucket=order), "mean ± stdev")
        for order in _ORDERS
    )
    misparted = (
        study.entry(
            study.rows(grid, "misparted_percent", axes, bucket=order), lambda mean: f"{mean:.1f}"
        )
        for order in _ORDERS
    )
    drop = missing()
    if original.value is not None and swapped.value is not None:
        value = original.value - swapped.value
        drop = Entry(text=f"{value:.2f}", value=value, rows=original.rows + swapped.rows)
    return (*words(position), original, swapped, drop, *misparted)


def _finding(study: Study) -> Finding:
    ape, shape = (drops(study, GRID, position) for position in PAIR)
    tested = more_lost(study, GRID, PAIR)
    verdict, shared = judge(ape, shape, tested), ape.keys() & shape.keys()
    measured = NOT_MEASURED
    if shared:
        lost = {name: fmean(x[s] for s in shared) for name, x in (("ape", ape), ("shape", shape))}
        each = ", ".join(f"{ape[s]:.2f} and {shape[s]:.2f}" for s in sorted(shared))
        measured = (
            f"drop in BLEU: ape {lost['ape']:.2f}, shape {lost['shape']:.2f}{beside(tested)};"
            f" by seed {each} ({seeds(shared)}). {rule('seeds', [tested])}"
        )
    return finding(
        study,
        claim=f"Moving the first sentence to the end costs APE at least {FACTOR} times as much BLEU"
        " as SHAPE.",
        verdict=verdict,
        measured=measured,
        paper="drop in BLEU: APE 8.07 (28.81 to 20.74), SHAPE 1.45 (28.51 to 27.06)",
        elsewhere=LEARNS_LATE,
    )


ITEM = Item(
    "Table 1: BLEU on original and swapped order",
    (GRID,),
    build,
    axes={"dataset": _DATASET, "position": PAIR},
)
