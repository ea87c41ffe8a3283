"""Every kind in the first layer, by direction of translation: Miyazaki et al. (2024), Table 3, for
all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shapeshift.experiments.measures import mean_of
from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond import attention
from shapeshift.papers.beyond.attention import IN_VALUES_NOTE, INTO_VALUES, System, label, systems
from shapeshift.papers.beyond.judge import all_better
from shapeshift.papers.beyond.master import is_declared
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.nhk.shared import LONG_RUNS
from shapeshift.papers.study import Study

GRID = "beyond-directions"
BASELINE = "sinusoidal"
"""In the inputs of Q and K: the paper's LESS-FEEDING."""

WITHOUT, WITH = "no", "yes"
"""Settings of the axis `cross-pe`."""

Columns = Mapping[str, Column]
"""Direction → tests."""


def build(study: Study) -> Content:
    """Make the table, and judge kinds against each other and CROSS-PE against its absence."""
    directions = study.settings(GRID, "languages")
    plain = {
        each: Column(
            attention.against_kind(study, GRID, BASELINE, {"languages": each, "cross-pe": WITHOUT})
        )
        for each in directions
    }
    crossing = {
        each: Column(
            attention.by_system(study, GRID, "cross-pe", (WITH, WITHOUT), {"languages": each})
        )
        for each in directions
    }
    table = DocumentTable(
        name="directions",
        title="Test BLEU with positions in the first layer, by direction",
        header=(
            "self-attention",
            *(each.upper() for each in plain),
            *(f"{each.upper()}, CROSS-PE" for each in crossing),
        ),
        rows=tuple(
            (
                *words(label(system)),
                *(_entry(study, system, WITHOUT, *each) for each in plain.items()),
                *(_entry(study, system, WITH, *each) for each in crossing.items()),
            )
            for system in systems(study, GRID)
        ),
        notes=(
            f"{study.spread(GRID)}; a dash: not finished",
            IN_VALUES_NOTE,
            "CROSS-PE: sinusoidal positions in the inputs of Q and K of cross-attention, in the"
            " first layer too",
            "xpos: with rotary in the encoder",
            note(f"{BASELINE}; in Q, K, V: from the same kind without V; CROSS-PE: from none"),
        ),
    )
    return Content(tables=[table], findings=_findings(study, plain, crossing))


def _entry(study: Study, system: System, cross_pe: str, languages: str, column: Column) -> Entry:
    kind, inputs = system
    axes = {"kind": kind, "inputs": inputs, "cross-pe": cross_pe, "languages": languages}
    rows = study.rows(GRID, "BLEU", axes, dataset=mean_of("test"))
    return study.entry(rows, "mean ± stdev", column.mark(label(system)))


def _findings(study: Study, plain: Columns, crossing: Columns) -> list[Finding]:
    elsewhere = "" if study.scale == "paper" else LONG_RUNS
    invariant = {
        cell.axes["kind"] for cell in study.cells(GRID) if is_declared(cell.config.position.scheme)
    }
    less_feeding = {
        each: attention.by_inputs(
            study, GRID, INTO_VALUES, {"languages": each, "cross-pe": WITHOUT}
        )
        for each in plain
    }
    return [
        all_better(
            "In every direction kinds that are shift invariant translate better than"
            f" {BASELINE} positions in Q and K (LESS-FEEDING).",
            _named({each: column.comparisons for each, column in plain.items()}),
            [_in(each, kind) for each in plain for kind in sorted(invariant)],
            elsewhere,
        ),
        all_better(
            "In every direction a kind in the inputs of Q and K alone (LESS-FEEDING) is better than"
            " in those of Q, K and V (ORIGINAL).",
            _named(less_feeding),
            [_in(each, kind) for each in plain for kind in attention.into_values(study, GRID)],
            elsewhere,
        ),
        all_better(
            "In every direction and whatever the kind, CROSS-PE adds to it.",
            _named({each: column.comparisons for each, column in crossing.items()}),
            [_in(each, label(system)) for each in crossing for system in systems(study, GRID)],
            elsewhere,
        ),
    ]


def _in(direction: str, system: str) -> str:
    return f"{direction} {system}"


def _named(tests: Mapping[str, Sequence[Comparison]]) -> list[Comparison]:
    """Return the tests of all directions together, each named by its direction as well."""
    return [
        replace(test, system=_in(direction, test.system))
        for direction, each in tests.items()
        for test in each
    ]


ITEM = Item("Every kind in the first layer, by direction", (GRID,), build)
