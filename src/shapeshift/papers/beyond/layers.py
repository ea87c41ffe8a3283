"""Every kind in the first n layers: Miyazaki et al. (2024), Table 6, for all kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from shapeshift.evaluation.tables import NO_VALUE
from shapeshift.experiments.measures import mean_of
from shapeshift.experiments.results import Row
from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond.judge import any_of
from shapeshift.papers.claims import Tests, all_of, beside, finding, no_worse, table, together, told
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Finding
from shapeshift.papers.entries import words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.nhk.shared import TENTH
from shapeshift.papers.nhk.table6 import judge_any_better, middle
from shapeshift.papers.study import Study

GRID = "beyond-layers"

_ELSEWHERE = f"the paper has six layers; {TENTH}"


def build(study: Study) -> Content:
    """Make the table, a row for each kind, and compare numbers of layers."""
    kinds, layers = (study.settings(GRID, axis) for axis in ("kind", "layers"))
    more = {kind: _tests(study, kind, middle(layers), layers[0]) for kind in kinds}
    fewer = {kind: _tests(study, kind, layers[1:-1], layers[-1]) for kind in kinds}
    findings = [_more_than_the_first(study, more)]
    if len(layers) > 2:
        findings.append(_not_in_all(study, fewer))
    return Content(
        tables=[
            _scores(study, kinds, layers),
            table("tests", "Positions in more layers than the first", together(more)),
        ],
        findings=findings,
    )


def best(scores: Mapping[str, Sequence[float]]) -> str:
    """Return the setting with the highest mean; a dash as long as one has no scores.

    Args:
        scores: setting → of its seeds.
    """
    if not all(scores.values()):
        return NO_VALUE
    return max(scores, key=lambda setting: fmean(scores[setting]))


def _scores(study: Study, kinds: Sequence[str], layers: Sequence[str]) -> DocumentTable:
    every = layers[-1]
    columns = {n: Column(_against(study, n, every)) for n in layers}
    rows = []
    for kind in kinds:
        found = {n: _measured(study, kind, n) for n in layers}
        scores = {n: [row.value for row in each] for n, each in found.items()}
        fields = (
            study.entry(each, "mean ± stdev", columns[n].mark(kind)) for n, each in found.items()
        )
        rows.append((*words(kind), *fields, *words(best(scores))))
    return DocumentTable(
        name="layers",
        title="Test BLEU with positions in the first n layers",
        header=("kind", *(f"n = {n}" for n in layers), "best n"),
        rows=tuple(rows),
        notes=(
            f"self-attention of encoder and decoder, {every} layers each; {study.spread(GRID)}",
            note(f"the same kind in all {every} layers"),
            "best n: the highest mean, whether or not it differs from others",
            "xpos: with rotary in the encoder",
        ),
    )


def _measured(study: Study, kind: str, n: str) -> list[Row]:
    return study.rows(GRID, "BLEU", {"kind": kind, "layers": n}, dataset=mean_of("test"))


def _against(study: Study, n: str, every: str) -> list[Comparison]:
    """Return the tests of the first n layers against all, each as one of a system named by the
    kind."""
    found = study.comparisons(GRID, "layers", every, {"layers": (n, every)})
    return [replace(each, system=kind) for (kind,), tests in found.items() for each in tests]


def _tests(study: Study, kind: str, numbers: Sequence[str], baseline: str) -> Tests:
    return beside(study, GRID, "layers", [(n, baseline) for n in numbers], {"kind": kind})


def _more_than_the_first(study: Study, tests: Mapping[str, Tests]) -> Finding:
    return finding(
        study,
        "Every kind is better with positions in the first few layers than in the first alone.",
        all_of(judge_any_better(each, len(tests)) for each in tests.values()),
        told(together(tests)),
        "best medians with 2 to 5 of 6 layers and with 1: sinusoidal in Q and K (LESS-FEEDING)"
        " 31.84 and 31.36, skew 32.02 and 31.05",
        _ELSEWHERE,
    )


def _not_in_all(study: Study, tests: Mapping[str, Tests]) -> Finding:
    return finding(
        study,
        "No kind needs positions in all layers: in some number between the first alone and all it"
        " is no worse.",
        all_of(
            any_of(no_worse({label: test}) for label, test in each.items())
            for each in tests.values()
        ),
        told(together(tests)),
        "best medians with 2 to 5 of 6 layers and with all: sinusoidal in Q and K (LESS-FEEDING)"
        " 31.84 and 31.58, skew 32.02 and 31.36",
        _ELSEWHERE,
    )


ITEM = Item("Every kind in the first n layers", (GRID,), build)
