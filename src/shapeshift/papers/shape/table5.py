"""Table 5: BLEU on each validation and test set, and the mean over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from shapeshift.data.config import FilesCorpus
from shapeshift.evaluation.metrics import BY_SENTENCE
from shapeshift.lab.grid import Cell
from shapeshift.papers.claims import LEARNED, NOT_MEASURED, finding
from shapeshift.papers.document import DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape.shared import (
    BASELINE,
    GRID,
    JOINED,
    LEARNS_LATE,
    by_sentence,
    combinations,
    paired,
    speed,
    without_rpe,
)
from shapeshift.papers.study import Axes, Study

YEARS = (2010, 2011, 2012, 2013, 2014, 2015, 2016)
"""Of newstest: the first four are for validation."""

# dataset -> position -> BLEU on newstest of each year, their average, speed
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "vanilla": {
        "ape": (24.22, 21.98, 22.20, 26.06, 26.95, 29.98, 34.46, 26.55, 1.00),
        "rpe": (24.29, 22.05, 22.22, 26.13, 27.00, 30.00, 34.61, 26.61, 0.91),
        "shape": (24.18, 22.01, 22.23, 26.08, 26.89, 30.12, 34.48, 26.57, 1.01),
    },
    "extrapolate": {
        "ape": (22.69, 20.36, 20.72, 24.94, 26.24, 28.79, 32.62, 25.19, 1.00),
        "rpe": (23.46, 21.19, 21.69, 25.54, 26.80, 29.43, 33.34, 25.92, 0.91),
        "shape": (23.60, 21.24, 21.53, 25.45, 26.54, 29.22, 33.63, 25.89, 0.99),
    },
    "interpolate": {
        "ape": (31.41, 29.71, 29.79, 34.69, 35.36, 38.00, 41.32, 34.33, 1.00),
        "rpe": (),
        "shape": (32.71, 30.77, 30.96, 35.54, 35.72, 39.18, 42.37, 35.32, 0.99),
    },
}


def build(study: Study) -> Content:
    """Make our table beside the paper's, and judge whether SHAPE is ahead on every set."""
    sets = _sets(study.cells(GRID)[0])
    ours = DocumentTable(
        name="table5",
        title="BLEU on each validation and test set",
        header=("dataset", "position", *sets, "average", "speed"),
        rows=(
            *(_row(study, *names, sets) for names in combinations(study)),
            *(_row(study, *names, sets, BY_SENTENCE) for names in by_sentence(study)),
        ),
        notes=(
            "mean over seeds; average: over the sets, each counting alike",
            "speed: ape's time for a training step over the model's own, taken by turns",
            JOINED,
            *without_rpe(study),
        ),
    )
    findings = [_finding(study, dataset, sets) for dataset in ("extrapolate", "interpolate")]
    return Content(tables=[ours, published()], findings=findings)


def published() -> DocumentTable:
    """Return the paper's table."""
    rows = [
        (
            *words(dataset, position),
            *(number(value) for value in values or (None,) * (len(YEARS) + 2)),
        )
        for dataset, systems in PUBLISHED.items()
        for position, values in systems.items()
    ]
    return DocumentTable(
        name="table5-paper",
        title="BLEU on each newstest in the paper",
        origin="paper",
        header=("dataset", "position", *map(str, YEARS), "average", "speed"),
        rows=tuple(rows),
        notes=(
            "vanilla: means of five seeds",
            "2010 to 2013 are validation sets, 2014 to 2016 test sets",
            "interpolate, rpe: too slow for the authors to train",
        ),
    )


def judge(gains: Mapping[str, float | None], best: float) -> Verdict:
    """Return whether a system is ahead of another on every set; one where it is behind suffices to
    say no.

    Args:
        gains: set → BLEU over the other's; `None` where it was not measured.
        best: the highest BLEU of both; see `claims.LEARNED`.
    """
    if best < LEARNED:
        return "cannot tell"
    known = [gain for gain in gains.values() if gain is not None]
    if any(gain < 0 for gain in known):
        return "does not hold"
    complete = bool(gains) and len(known) == len(gains)
    return "holds" if complete and min(known) > 0 else "cannot tell"


def _sets(cell: Cell) -> list[str]:
    """Return the datasets under which `lab.measures.Score` has the sets' BLEU."""
    corpus = cell.config.data.corpus
    found: list[str] = []
    for split in ("valid", "test"):
        files: list[str] = []
        if isinstance(corpus, FilesCorpus):
            files = [corpus.label(split, n) for n in range(len(corpus.prefixes(split)))]
        found += [f"{split}/{name}" for name in files] if len(files) > 1 else [split]
    return found


def _row(
    study: Study, dataset: str, position: str, sets: Sequence[str], unit: str = ""
) -> tuple[Entry, ...]:
    axes = {"dataset": dataset, "position": position}
    scores = [study.entry(study.rows(GRID, f"BLEU{unit}", axes, dataset=name)) for name in sets]
    values = [entry.value for entry in scores if entry.value is not None]
    average = missing()
    if len(values) == len(sets):
        rows = tuple(number for entry in scores for number in entry.rows)
        average = Entry(text=f"{fmean(values):.2f}", value=fmean(values), rows=rows)
    return (*words(dataset + unit, position), *scores, average, speed(study, axes))


def _finding(study: Study, dataset: str, sets: Sequence[str]) -> Finding:
    gains: dict[str, float | None] = {}
    best = 0.0
    shared: Axes = {"dataset": dataset, "seed": [*paired(study, dataset)]}
    for name in sets:
        ape, shape = (
            study.entry(study.rows(GRID, "BLEU", {**shared, "position": each}, dataset=name)).value
            for each in (BASELINE, "shape")
        )
        gains[name] = None if ape is None or shape is None else shape - ape
        best = max(best, ape or 0.0, shape or 0.0)
    verdict = judge(gains, best)
    told = ", ".join(f"{name} {gain:+.2f}" for name, gain in gains.items() if gain is not None)
    paper = PUBLISHED[dataset]
    theirs = zip(YEARS, paper["shape"], paper["ape"], strict=False)
    return finding(
        study,
        claim=f"On {dataset.capitalize()} SHAPE is ahead of APE on every set.",
        verdict=verdict,
        measured=f"BLEU over APE's, means over seeds, no test: {told}" if told else NOT_MEASURED,
        paper="BLEU over APE's: " + ", ".join(f"{y} {s - a:+.2f}" for y, s, a in theirs),
        elsewhere=LEARNS_LATE,
    )


ITEM = Item("Table 5: BLEU on each set", (GRID,), build)
