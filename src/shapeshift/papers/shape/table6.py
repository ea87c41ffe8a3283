"""Table 6: training time and number of parameters."""

from __future__ import annotations

from collections.abc import Collection

from shapeshift.evaluation.tables import NO_VALUE
from shapeshift.papers.claims import NOT_MEASURED, finding
from shapeshift.papers.document import DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape.shared import (
    BASELINE,
    GRID,
    MISSING_SPEED,
    combinations,
    listed,
    on_all,
    speed,
    speeds,
)
from shapeshift.papers.shape.table2 import AS_FAST
from shapeshift.papers.study import Study

# position, dataset -> hardware, seconds of training
PUBLISHED = {
    ("ape", "vanilla"): ("DGX-1", 97_073),
    ("rpe", "vanilla"): ("DGX-1", 107_089),
    ("shape", "vanilla"): ("DGX-1", 96_439),
    ("ape", "extrapolate"): ("DGX-1", 101_469),
    ("rpe", "extrapolate"): ("DGX-1", 111_246),
    ("shape", "extrapolate"): ("DGX-1", 102_535),
    ("ape", "interpolate"): ("DGX-2", 69_148),
    ("shape", "interpolate"): ("DGX-2", 69_529),
}
PARAMETERS = 61_000_000
"""Of each of them, in the paper."""

SAME_SIZE = 0.02
"""Largest difference, as a share, between the parameters of models that count as of one size."""


def build(study: Study) -> Content:
    """Make our table beside the paper's, and judge RPE's time and the sizes."""
    ours = DocumentTable(
        name="table6",
        title="Training time and parameters",
        header=("position", "dataset", "hardware", "training time (s)", "speed", "parameters"),
        rows=tuple(_row(study, dataset, position) for dataset, position in combinations(study)),
        notes=(
            "mean over seeds; training time: with validation and saving, as the clock had it,"
            " whatever else the machine did",
            "speed: ape's time for a training step over the model's own, taken by turns",
        ),
    )
    return Content(tables=[ours, published()], findings=[_slower(study), _same_size(study)])


def published() -> DocumentTable:
    """Return the paper's table."""
    return DocumentTable(
        name="table6-paper",
        title="Training time and parameters in the paper",
        origin="paper",
        header=("position", "dataset", "hardware", "training time (s)", "parameters"),
        rows=tuple(
            (*words(position, dataset, hardware), number(seconds, ",.0f"), _millions(PARAMETERS))
            for (position, dataset), (hardware, seconds) in PUBLISHED.items()
        ),
        notes=("200,000 updates",),
    )


def judge_slower(found: Collection[float | None]) -> Verdict:
    """Return whether a position trains slower than APE: below `AS_FAST` on every dataset."""
    return on_all(found, lambda value: value < AS_FAST)


def judge_sizes(base: float | None, others: Collection[float | None]) -> Verdict:
    """Return whether models have as many parameters as `base`, but for a share of `SAME_SIZE`."""
    if base is None:
        return "cannot tell"
    return on_all(others, lambda other: abs(other / base - 1) <= SAME_SIZE)


def _row(study: Study, dataset: str, position: str) -> tuple[Entry, ...]:
    axes = {"dataset": dataset, "position": position}
    rows = study.rows(GRID, "training_s", axes)
    seconds = study.entry(rows, lambda mean: f"{mean:,.0f}")
    hardware = "; ".join(dict.fromkeys(filter(None, (row.hardware for row in rows)))) or NO_VALUE
    parameters = study.entry(study.rows(GRID, "parameters", axes), lambda mean: f"{mean:,.0f}")
    return (*words(position, dataset, hardware), seconds, speed(study, axes), parameters)


def _slower(study: Study) -> Finding:
    found = speeds(study, "rpe")
    told = listed(found)
    return finding(
        study,
        claim="RPE trains slower than APE.",
        verdict=judge_slower(found.values()),
        measured=f"speed over APE's: {told}. Slower: below {AS_FAST} on every dataset"
        if told
        else MISSING_SPEED,
        paper="speed over APE's 0.91; 107,089 s against 97,073 s on Vanilla, 111,246 s against"
        " 101,469 s on Extrapolate",
        elsewhere="what relative attention costs depends on lengths, widths and hardware: see scale"
        " paper; the tensor of all pairs that slowed the authors' RPE is never made here",
    )


def _same_size(study: Study) -> Finding:
    sizes = {
        position: study.entry(study.rows(GRID, "parameters", {"position": position})).value
        for position in study.settings(GRID, "position")
    }
    others = [size for position, size in sizes.items() if position != BASELINE]
    told = listed(sizes, ",.0f")
    return Finding(
        claim="All models have the same number of parameters.",
        verdict=judge_sizes(sizes.get(BASELINE), others),
        measured=f"{told}. The same: within {SAME_SIZE:.0%} of APE's" if told else NOT_MEASURED,
        paper="61M each",
    )


def _millions(value: float) -> Entry:
    return Entry(text=f"{value / 1e6:.0f}M", value=value)


ITEM = Item("Table 6: training time and parameters", (GRID,), build)
