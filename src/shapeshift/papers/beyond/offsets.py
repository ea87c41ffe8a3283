"""SHAPE over every kind that a shift makes a difference to, by its maximum offset K: the search of
Kiyono et al. (2021), section 3.3, for all of them."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from shapeshift.experiments.measures import mean_of
from shapeshift.experiments.results import Row
from shapeshift.papers.beyond.judge import LATER
from shapeshift.papers.beyond.layers import best
from shapeshift.papers.claims import NOT_MEASURED, all_of, better, finding, told, versus
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Finding
from shapeshift.papers.entries import words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shape import offsets
from shapeshift.papers.shape.offsets import FIXED, ROBUST, TUNED
from shapeshift.papers.study import Study

GRID = "beyond-offsets"


def build(study: Study) -> Content:
    """Make the table, a row for each kind, and judge how much K matters."""
    kinds, settings = (study.settings(GRID, axis) for axis in ("kind", "K"))
    columns = {K: _column(study, K) for K in settings if K != TUNED}
    rows = []
    for kind in kinds:
        found = {K: _valid(study, kind, K) for K in settings}
        fields = (
            study.entry(each, "mean ± stdev", columns[K].mark(kind) if K in columns else "")
            for K, each in found.items()
        )
        chosen = best({K: [row.value for row in each] for K, each in found.items()})
        rows.append((*words(kind), *fields, *words(chosen)))
    table = DocumentTable(
        name="offsets",
        title="Validation BLEU of shifted positions by kind and maximum offset K, Extrapolate",
        header=("kind", *(f"K = {K}" for K in settings), "best K"),
        rows=tuple(rows),
        notes=(
            f"{study.spread(GRID)}; a dash: not finished",
            "kinds that are shift invariant are left out: an offset changes nothing in them",
            note(f"K = {TUNED}, the paper's choice, of the same kind"),
            "best K: the highest mean, whether or not it differs from others",
        ),
    )
    return Content(tables=[table], findings=[_robust(study, kinds, settings), _tuned(study, kinds)])


def _valid(study: Study, kind: str, K: str) -> list[Row]:
    return study.rows(GRID, "BLEU", {"kind": kind, "K": K}, dataset=mean_of("valid"))


def _column(study: Study, K: str) -> Column:
    """Return the tests of one K against the paper's, each as one of a system named by the kind."""
    found = study.comparisons(GRID, "K", TUNED, {"K": (K, TUNED)}, split="valid")
    return Column(
        [replace(test, system=kind) for (kind,), tests in found.items() for test in tests]
    )


def _robust(study: Study, kinds: list[str], settings: list[str]) -> Finding:
    means = {
        kind: {
            K: fmean(row.value for row in rows)
            for K in settings
            if (rows := _valid(study, kind, K))
        }
        for kind in kinds
    }
    shown = [
        f"{kind} {min(each.values()):.2f} to {max(each.values()):.2f}"
        for kind, each in means.items()
        if each
    ]
    return finding(
        study,
        claim="Whatever the kind, the choice of K matters little.",
        verdict=all_of(offsets.judge(each, settings) for each in means.values()),
        measured=f"validation BLEU: {', '.join(shown)}. Little: the best and the worst at most"
        f" {ROBUST:g} BLEU apart"
        if shown
        else NOT_MEASURED,
        paper="of sinusoidal positions: validation BLEU 23.12 with the best K, 40, and 22.96 with"
        " 500",
        elsewhere=LATER.get(study.scale, ""),
    )


def _tuned(study: Study, kinds: list[str]) -> Finding:
    tests = {
        f"{kind}, K = {TUNED} and {FIXED}": versus(
            study, GRID, "K", (TUNED, FIXED), {"kind": kind}, split="valid"
        )
        for kind in kinds
    }
    return finding(
        study,
        claim=f"Whatever the kind, K = {TUNED} translates better than K = {FIXED}.",
        verdict=better(tests),
        measured=f"validation BLEU, {told(tests)}",
        paper="of sinusoidal positions: validation BLEU 23.12 against 22.96 (one seed, no test)",
        elsewhere=LATER.get(study.scale, ""),
    )


ITEM = Item("The maximum offset K of every kind that a shift changes", (GRID,), build)
