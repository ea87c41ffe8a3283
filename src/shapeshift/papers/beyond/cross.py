"""Every kind in self-attention with every kind in cross-attention: Miyazaki et al. (2024), Table 2,
for all of them."""

from __future__ import annotations

from collections.abc import Mapping

from shapeshift.experiments.measures import mean_of
from shapeshift.papers.beyond import attention
from shapeshift.papers.beyond.attention import IN_VALUES_NOTE, INTO_VALUES, System, label, systems
from shapeshift.papers.beyond.judge import all_better
from shapeshift.papers.beyond.places import NOTHING
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.nhk.shared import LONG_RUNS
from shapeshift.papers.study import Study

GRID = "beyond-cross"


def build(study: Study) -> Content:
    """Make the table, a row for each kind in self-attention and a column for each in
    cross-attention, and judge what the latter add."""
    columns = _columns(study)
    table = DocumentTable(
        name="cross",
        title="Test BLEU by kind in self-attention (rows) and in cross-attention, one layer",
        header=("self-attention", *(f"cross: {crossing}" for crossing in columns)),
        rows=tuple(
            (*words(label(system)), *(_entry(study, system, *each) for each in columns.items()))
            for system in systems(study, GRID)
        ),
        notes=(
            f"{study.spread(GRID)}; a dash: not finished",
            IN_VALUES_NOTE,
            "xpos: with rotary in the encoder",
            note(f"the same row with `cross: {NOTHING}`"),
            f"there: from {NOTHING} in both attentions; in Q, K, V: from the same kind without V",
        ),
    )
    return Content(tables=[table], findings=_findings(study, columns))


def _columns(study: Study) -> dict[str, Column]:
    """Return kind in cross-attention → the tests of its column."""
    return {
        crossing: Column(
            attention.against_kind(study, GRID, NOTHING, {"crossing": NOTHING})
            if crossing == NOTHING
            else attention.by_system(study, GRID, "crossing", (crossing, NOTHING))
        )
        for crossing in study.settings(GRID, "crossing")
    }


def _entry(study: Study, system: System, crossing: str, column: Column) -> Entry:
    kind, inputs = system
    axes = {"kind": kind, "inputs": inputs, "crossing": crossing}
    rows = study.rows(GRID, "BLEU", axes, dataset=mean_of("test"))
    return study.entry(rows, "mean ± stdev", column.mark(label(system)))


def _findings(study: Study, columns: Mapping[str, Column]) -> list[Finding]:
    elsewhere = "" if study.scale == "paper" else LONG_RUNS
    rows = [label(system) for system in systems(study, GRID) if system[0] != NOTHING]
    return [
        *(
            all_better(
                f"Whatever the kind in self-attention, {crossing} positions in cross-attention add"
                " to it.",
                column.comparisons,
                rows,
                elsewhere,
            )
            for crossing, column in columns.items()
            if crossing != NOTHING
        ),
        all_better(
            "A kind in the inputs of Q and K alone (LESS-FEEDING) is better than in those of Q, K"
            " and V (ORIGINAL).",
            attention.by_inputs(study, GRID, INTO_VALUES, {"crossing": NOTHING}),
            attention.into_values(study, GRID),
            elsewhere,
        ),
    ]


ITEM = Item("Every kind in self-attention with every kind in cross-attention", (GRID,), build)
