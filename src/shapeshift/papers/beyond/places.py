"""Every kind at every place: Miyazaki et al. (2024), Table 5, for all kinds."""

from __future__ import annotations

from dataclasses import replace

from shapeshift.experiments.measures import mean_of
from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond.judge import all_better
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study, words

GRID = "beyond-places"
NOTHING = "none"


def build(study: Study) -> Content:
    """Make the table, a row for each kind, and compare places."""
    kinds, places = (study.settings(GRID, axis) for axis in ("kind", "place"))
    table = DocumentTable(
        name="places",
        title="Test BLEU with positions at one place alone, one layer",
        header=("kind", *places),
        rows=tuple(
            (*words(kind), *(_entry(study, kind, each) for each in places)) for kind in kinds
        ),
        notes=(
            "mean ± standard deviation over seeds; a dash: not finished, or without meaning",
            "self, cross: inputs of Q and K, for kinds that are added to the inputs of attention",
            f"{NOTHING}: no position at all, wherever it stands",
        ),
    )
    return Content(tables=[table], findings=_findings(study))


def _entry(study: Study, kind: str, place: str) -> Entry:
    axes = {"kind": kind, "place": place}
    return study.entry(study.rows(GRID, "BLEU", axes, dataset=mean_of("test")), "mean ± stdev")


def _findings(study: Study) -> list[Finding]:
    at_self = _kinds_at(study, "self")
    against_none = study.comparisons(GRID, "kind", NOTHING, {"place": "self"}).get(("self",), [])
    crossing = sorted(at_self & _kinds_at(study, "cross"))
    by_kind = [_self_against_cross(study, kind) for kind in crossing]
    remark = "some hundred updates, which is little for learning order" * (study.scale == "tiny")
    return [
        all_better(
            "In self-attention every kind translates better than no position at all.",
            against_none,
            at_self - {NOTHING},
            remark,
        ),
        all_better(
            "Positions in self-attention alone translate better than in the attention to the source"
            " alone.",
            [found for each in by_kind for found in each],
            crossing,
            remark,
        ),
    ]


def _kinds_at(study: Study, place: str) -> set[str]:
    return {cell.axes["kind"] for cell in study.cells(GRID, {"place": place})}


def _self_against_cross(study: Study, kind: str) -> list[Comparison]:
    """Return the test of a kind's places, as one of a system named by the kind."""
    axes = {"kind": kind, "place": ("self", "cross")}
    found = study.comparisons(GRID, "place", "cross", axes).get((kind,), [])
    return [replace(each, system=kind) for each in found]


ITEM = Item("Every kind at every place", (GRID,), build)
