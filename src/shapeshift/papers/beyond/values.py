"""Every kind in the weights of self-attention, in the values and in both: Shaw et al. (2018), Table
3, for all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from shapeshift.experiments.measures import mean_of
from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond.judge import LATER, all_better
from shapeshift.papers.beyond.places import NOTHING
from shapeshift.papers.claims import MARGIN, finding, no_worse, told
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study

GRID = "beyond-values"
WEIGHTS, VALUES, BOTH = "weights", "values", "both"
"""Settings of the axis `enters`."""

Split = Literal["valid", "test"]


def build(study: Study) -> Content:
    """Make the table, a row for each kind, and judge what values need."""
    kinds = study.settings(GRID, "kind")
    columns = {
        WEIGHTS: Column(_against_nothing(study, "test")),
        VALUES: Column(_by_kind(study, VALUES, BOTH, "test")),
        BOTH: Column([]),
    }
    table = DocumentTable(
        name="values",
        title="Test BLEU by what a kind reaches in self-attention",
        header=("kind", "weights (Q, K, scores)", "values", "both"),
        rows=tuple(
            (*words(kind), *(_entry(study, kind, *each) for each in columns.items()))
            for kind in kinds
        ),
        notes=(
            f"{study.spread(GRID)}; a dash: not finished, or the kind does not reach the values",
            f"{NOTHING}: no position at all",
            "xpos: with rotary in the encoder",
            note(f"{NOTHING} (values alone: from both)"),
        ),
    )
    return Content(tables=[table], findings=_findings(study, kinds))


def _against_nothing(study: Study, split: Split) -> list[Comparison]:
    found = study.comparisons(GRID, "kind", NOTHING, {"enters": WEIGHTS}, split=split)
    return found.get((WEIGHTS,), [])


def _by_kind(study: Study, enters: str, baseline: str, split: Split) -> list[Comparison]:
    """Return the tests of one setting of `enters` against another, each named by the kind."""
    axes = {"enters": (enters, baseline)}
    found = study.comparisons(GRID, "enters", baseline, axes, split=split)
    return [replace(test, system=kind) for (kind,), tests in found.items() for test in tests]


def _entry(study: Study, kind: str, enters: str, column: Column) -> Entry:
    rows = study.rows(GRID, "BLEU", {"kind": kind, "enters": enters}, dataset=mean_of("test"))
    return study.entry(rows, "mean ± stdev", column.mark(kind))


def _findings(study: Study, kinds: list[str]) -> list[Finding]:
    """Judge on validation BLEU, as the paper does."""
    reaching = list({cell.axes["kind"]: None for cell in study.cells(GRID, {"enters": BOTH})})
    alone = {test.system: test for test in _by_kind(study, WEIGHTS, BOTH, "valid")}
    tests = {f"{kind} in the weights, beside both": alone.get(kind) for kind in reaching}
    later = LATER.get(study.scale, "")
    return [
        finding(
            study,
            f"Weights alone are enough: no kind loses more than {MARGIN} BLEU against weights and"
            " values.",
            no_worse(tests),
            told(tests),
            "keys alone and both: 25.8 and 25.8",
            later,
        ),
        all_better(
            "Values alone are not enough: weights and values are better.",
            _by_kind(study, BOTH, VALUES, "valid"),
            reaching,
            later,
        ),
        all_better(
            "Every kind in the weights translates better than no position at all.",
            _against_nothing(study, "valid"),
            [kind for kind in kinds if kind != NOTHING],
            later,
        ),
    ]


ITEM = Item("Every kind in the weights of self-attention and in the values", (GRID,), build)
