"""Every kind at every place: Miyazaki et al. (2024), Table 5, for all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from shapeshift.lab.measures import mean_of
from shapeshift.lab.significance import Comparison
from shapeshift.papers.beyond.judge import LATER, all_better
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study

GRID = "beyond-places"
NOTHING = "none"
"""The kind without a position."""
SELF = "self"

_PAPERS = (
    "in Table 2 of Miyazaki et al. 2024, after 650,000 updates, sinusoidal positions have 36.59"
    " BLEU in self-attention and 10.43 in the attention to the source: see scale paper"
)


def build(study: Study) -> Content:
    """Make the table, a row for each kind, and compare places."""
    kinds, places = (study.settings(GRID, axis) for axis in ("kind", "place"))
    columns = _columns(study, places)
    table = DocumentTable(
        name="places",
        title="Test BLEU with positions at one place alone, one layer",
        header=("kind", *places),
        rows=tuple(
            (*words(kind), *(_entry(study, kind, each, columns[each]) for each in places))
            for kind in kinds
        ),
        notes=(
            f"{study.spread(GRID)}; a dash: not finished, or without meaning",
            "self, cross: inputs of Q and K, for kinds that are added to the inputs of attention",
            f"{NOTHING}: no position at all, wherever it stands",
            note(f"{NOTHING}, at {SELF}; at any other place, from the same kind at {SELF}"),
        ),
    )
    return Content(tables=[table], findings=_findings(study))


def _columns(study: Study, places: Sequence[str]) -> dict[str, Column]:
    """Return place → its kinds against no position, in self-attention; elsewhere, where there is no
    such run, each against itself in self-attention."""
    found: dict[str, list[Comparison]] = {place: [] for place in places}
    found[SELF] = _against_nothing(study)
    for (kind,), tests in study.comparisons(GRID, "place", SELF).items():
        for test in tests:
            found[test.system].append(replace(test, system=kind))
    return {place: Column(tests) for place, tests in found.items()}


def _against_nothing(study: Study) -> list[Comparison]:
    return study.comparisons(GRID, "kind", NOTHING, {"place": SELF}).get((SELF,), [])


def _entry(study: Study, kind: str, place: str, column: Column) -> Entry:
    axes = {"kind": kind, "place": place}
    rows = study.rows(GRID, "BLEU", axes, dataset=mean_of("test"))
    return study.entry(rows, "mean ± stdev", column.mark(kind))


def _findings(study: Study) -> list[Finding]:
    at_self = _kinds_at(study, SELF)
    crossing = sorted(at_self & _kinds_at(study, "cross"))
    by_kind = [_self_against_cross(study, kind) for kind in crossing]
    later = LATER.get(study.scale, "")
    return [
        all_better(
            "In self-attention every kind translates better than no position at all.",
            _against_nothing(study),
            at_self - {NOTHING},
            later and f"xpos is in the decoder alone, so that its encoder knows no order; {later}",
        ),
        all_better(
            "Positions in self-attention alone translate better than in the attention to the source"
            " alone.",
            [found for each in by_kind for found in each],
            crossing,
            later and _PAPERS,
        ),
    ]


def _kinds_at(study: Study, place: str) -> set[str]:
    return {cell.axes["kind"] for cell in study.cells(GRID, {"place": place})}


def _self_against_cross(study: Study, kind: str) -> list[Comparison]:
    """Return the test of a kind's places, as one of a system named by the kind."""
    axes = {"kind": kind, "place": (SELF, "cross")}
    found = study.comparisons(GRID, "place", "cross", axes).get((kind,), [])
    return [replace(each, system=kind) for each in found]


ITEM = Item("Every kind at every place", (GRID,), build)
