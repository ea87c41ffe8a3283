"""Table 2: the clipping distance k."""

from __future__ import annotations

import math
from typing import Literal

from shapeshift.lab.analysis import by_setting
from shapeshift.lab.measures import mean_of
from shapeshift.lab.significance import Comparison, summarise
from shapeshift.papers.claims import (
    MARGIN,
    Tests,
    Untested,
    alike,
    finding,
    has_learned,
    told,
    versus,
)
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentFigure, DocumentTable, Entry, Finding, Verdict
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Drawn, Item
from shapeshift.papers.shaw.shared import LONG_RUNS
from shapeshift.papers.study import Study

GRID = "shaw-table2"

PUBLISHED = {"0": 12.5, "1": 25.5, "2": 25.8, "4": 25.9, "16": 25.8, "64": 25.9, "256": 25.8}
"""k → BLEU on newstest2013."""

REFERENCE = "16"
"""The paper's k: what the others are tested against."""

COLLAPSED = 0.75
"""A model has collapsed if it keeps no more than this share of the BLEU with k = 16 (the paper's
keeps 0.48)."""


def build(study: Study) -> Content:
    """Make our table beside the paper's, and draw ours."""
    tests = _tests(study, "valid")
    return Content(
        tables=[_ours(study, tests), published()],
        figures=_figures(study),
        findings=[
            _collapse(study, tests["0"]),
            _flat(study, {f"k = {k}": test for k, test in tests.items() if int(k) >= 2}),
        ],
    )


def published() -> DocumentTable:
    """Return the paper's table."""
    return DocumentTable(
        name="table2-paper",
        title="BLEU by clipping distance on newstest2013 in the paper",
        origin="paper",
        header=("k", "BLEU"),
        rows=tuple((*words(k), number(score, ".1f")) for k, score in PUBLISHED.items()),
    )


def judge_collapse(test: Comparison | Untested) -> Verdict:
    """Judge that a system collapses beside its baseline: significantly worse, and far."""
    if isinstance(test, Untested) or not test.significant or not has_learned(test):
        return "cannot tell"
    return "holds" if test.score <= COLLAPSED * test.baseline_score else "does not hold"


def _tests(study: Study, split: Literal["valid", "test"]) -> Tests:
    return {
        k: versus(study, GRID, "k", (k, REFERENCE), split=split)
        for k in study.settings(GRID, "k")
        if k != REFERENCE
    }


def _ours(study: Study, tests: Tests) -> DocumentTable:
    """Make the table; `tests` are those on the validation set, which the paper's is about."""
    columns = {
        split: Column([test for test in each.values() if isinstance(test, Comparison)])
        for split, each in (("valid", tests), ("test", _tests(study, "test")))
    }
    rows = []
    for k in study.settings(GRID, "k"):
        scores = [
            study.entry(
                study.rows(GRID, "BLEU", {"k": k}, dataset=mean_of(split)),
                "mean ± stdev",
                column.mark(k),
            )
            for split, column in columns.items()
        ]
        rows.append((*words(k), *scores, _difference(study, k, tests.get(k))))
    return DocumentTable(
        name="table2",
        title="BLEU by clipping distance",
        header=("k", "valid BLEU", "test BLEU", f"valid, less k = {REFERENCE}"),
        rows=tuple(rows),
        notes=(study.spread(GRID), note(f"k = {REFERENCE}")),
    )


def _difference(study: Study, k: str, test: Comparison | Untested | None) -> Entry:
    if not isinstance(test, Comparison):
        return missing()
    return number(test.difference, "+.2f", study.finished(GRID, {"k": (k, REFERENCE)}))


def _figures(study: Study) -> list[Drawn]:
    settings = tuple(study.settings(GRID, "k"))
    found = [
        [row.value for row in study.rows(GRID, "BLEU", {"k": k}, dataset=mean_of("valid"))]
        for k in settings
    ]
    if not any(found):
        return []
    summaries = [summarise(values) if values else None for values in found]
    line = by_setting.Line(
        "relative",
        tuple(math.nan if each is None else each.mean for each in summaries),
        tuple(math.nan if each is None else each.stdev for each in summaries),
    )
    data = by_setting.BySetting("clipping distance $k$", settings, "validation BLEU", (line,))
    about = DocumentFigure(
        name="clipping-distance",
        title="Validation BLEU by clipping distance; bars are one standard deviation over seeds",
        table="table2",
        alt="A line of validation BLEU over the clipping distance k from 0 to 256: "
        + ", ".join(
            f"k = {k} {each.mean:.1f}"
            for k, each in zip(settings, summaries, strict=True)
            if each is not None
        )
        + ".",
    )
    return [Drawn(about, by_setting.plot(data))]


def _collapse(study: Study, test: Comparison | Untested) -> Finding:
    return finding(
        study,
        "Without distances (k = 0) translation collapses: at most"
        f" {COLLAPSED:.0%} of the BLEU with k = {REFERENCE} is left.",
        judge_collapse(test),
        told({"k = 0": test}),
        "12.5 against 25.8",
        "short sentences can be put in order by what their words are; the paper's are longer:"
        " see scale paper",
    )


def _flat(study: Study, tests: Tests) -> Finding:
    return finding(
        study,
        f"From k = 2 on the distance hardly matters: all within {MARGIN} BLEU of k = {REFERENCE}.",
        alike(tests),
        told(tests),
        "25.8 to 25.9 for k = 2, 4, 16, 64 and 256: within 0.1",
        "more layers carry positions beyond k, and longer runs even out what is learned at"
        f" different speeds; {LONG_RUNS}",
    )


ITEM = Item("Table 2: the clipping distance", (GRID,), build)
