"""The search for the maximum offset K of SHAPE, of Table 4 and section 3.3."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean
from typing import Literal

from shapeshift.lab.analysis import k_search
from shapeshift.lab.analysis.k_search import KSearch, Runs
from shapeshift.lab.measures import mean_of
from shapeshift.lab.results import Row
from shapeshift.papers.claims import LEARNED, NOT_MEASURED, better, finding, told, versus
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shape.shared import LEARNS_LATE, SHORT_RUNS, seeds
from shapeshift.papers.study import Study

GRID = "shape-offsets"

Split = Literal["valid", "test"]
SPLITS: tuple[Split, ...] = ("valid", "test")

TUNED, FIXED = "40", "500"
"""The K that the paper chose on the validation set, and the one of its other experiments."""

# K -> validation BLEU, test BLEU
PUBLISHED = {TUNED: (23.12, 29.86), FIXED: (22.96, 29.80)}

ROBUST = 1.0
"""BLEU: SHAPE is robust if the best and the worst K are no further apart."""


def build(study: Study) -> Content:
    """Make the table and the figure of the search, and judge how much K matters."""
    settings = study.settings(GRID, "K")
    scores = {
        K: {row.seed: row.value for row in _valid(study, K)} for K in settings if _valid(study, K)
    }
    columns = {split: _column(study, split) for split in SPLITS}
    ours = DocumentTable(
        name="offsets",
        title="BLEU of SHAPE by maximum offset K, Extrapolate",
        header=("K", "valid BLEU", "test BLEU"),
        rows=tuple(_row(study, K, columns) for K in settings),
        notes=(study.spread(GRID), note(f"K = {TUNED}, the paper's choice")),
    )
    content = Content(tables=[ours, published()])
    if scores:
        content.figures.append(_draw(study, scores))
    shared = set.intersection(*map(set, scores.values())) if scores else set()
    means = {K: fmean(each[seed] for seed in shared) for K, each in scores.items() if shared}
    content.findings.extend([_robust(study, means, settings, shared), _tuned(study)])
    return content


def published() -> DocumentTable:
    """Return what the paper reports of its search."""
    return DocumentTable(
        name="offsets-paper",
        title="BLEU of SHAPE by maximum offset K in the paper",
        origin="paper",
        header=("K", "valid BLEU", "test BLEU"),
        rows=tuple((*words(K), *map(number, values)) for K, values in PUBLISHED.items()),
        notes=("one seed; 10, 20, 30 and 100 were tried too, but are not reported",),
    )


def judge(means: Mapping[str, float], settings: list[str]) -> Verdict:
    """Return whether K matters little: the best and the worst of all `settings` are `ROBUST` BLEU
    apart at most. Two that are further apart suffice to say no, if SHAPE has learned to translate
    with one of them (see `claims.LEARNED`)."""
    if not means or max(means.values()) < LEARNED:
        return "cannot tell"
    if max(means.values()) - min(means.values()) > ROBUST:
        return "does not hold"
    return "holds" if settings and set(means) == set(settings) else "cannot tell"


def _valid(study: Study, K: str) -> list[Row]:
    return study.rows(GRID, "BLEU", {"K": K}, dataset=mean_of("valid"))


def _column(study: Study, split: Split) -> Column:
    return Column(study.comparisons(GRID, "K", TUNED, split=split).get((), []))


def _row(study: Study, K: str, columns: Mapping[Split, Column]) -> tuple[Entry, ...]:
    fields = [
        study.entry(
            study.rows(GRID, "BLEU", {"K": K}, dataset=mean_of(split)),
            "mean ± stdev",
            column.mark(K),
        )
        for split, column in columns.items()
    ]
    return (*words(K), *fields)


def _draw(study: Study, scores: Mapping[str, Mapping[int, float]]) -> Drawn:
    runs = {int(K): tuple(each.values()) for K, each in scores.items()}
    data = KSearch(
        max_offsets=tuple(sorted(runs)),
        runs=tuple(Runs(f"K = {K}", runs[K]) for K in sorted(runs)),
        others=(),
        signature="",
    )
    means = [each.mean for each in data.runs]
    about = DocumentFigure(
        name="offsets",
        title="Validation BLEU of SHAPE by maximum offset K, Extrapolate",
        table="offsets",
        alt=f"Validation BLEU against the maximum offset from {data.max_offsets[0]} to"
        f" {data.max_offsets[-1]}, between {min(means):.2f} and {max(means):.2f}, highest at"
        f" {data.best}.",
    )
    return Drawn(about, k_search.plot(data))


def _robust(
    study: Study, means: Mapping[str, float], settings: list[str], runs: set[int]
) -> Finding:
    verdict = judge(means, settings)
    shown = ", ".join(f"K = {K} {mean:.2f}" for K, mean in means.items())
    return finding(
        study,
        claim="The choice of K matters little.",
        verdict=verdict,
        measured=f"validation BLEU: {shown} ({seeds(runs)}). Little: the best and the worst at most"
        f" {ROBUST:g} BLEU apart"
        if shown
        else NOT_MEASURED,
        paper="validation BLEU 23.12 with the best K, 40, and 22.96 with 500",
        elsewhere=LEARNS_LATE,
    )


def _tuned(study: Study) -> Finding:
    test = versus(study, GRID, "K", (TUNED, FIXED), split="valid")
    tests = {f"K = {TUNED} and {FIXED}": test}
    return finding(
        study,
        claim=f"K = {TUNED} translates better than K = {FIXED}.",
        verdict=better(tests),
        measured=f"validation BLEU, {told(tests)}",
        paper="validation BLEU 23.12 against 22.96 (one seed, no test)",
        elsewhere=SHORT_RUNS,
    )


ITEM = Item("Table 4: the search for the maximum offset K", (GRID,), build)
