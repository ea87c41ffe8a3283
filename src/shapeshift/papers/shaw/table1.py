"""Table 1: absolute and relative positions in two sizes of model, on two language pairs."""

from __future__ import annotations

from shapeshift.lab.measures import mean_of
from shapeshift.lab.significance import LEVEL, MARK, Comparison
from shapeshift.papers.claims import Tests, better, finding, told, versus
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import missing, number, words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.study import Study

GRID = "shaw-table1"

LANGUAGES = ("en-de", "en-fr")

# model -> position -> BLEU on newstest2014, English-German and English-French
PUBLISHED: dict[tuple[str, str], tuple[float, float]] = {
    ("base", "absolute"): (26.5, 38.2),
    ("base", "relative"): (26.8, 38.7),
    ("big", "absolute"): (27.9, 41.2),
    ("big", "relative"): (29.2, 41.5),
}
HEADER = ("model", "position information", "EN-DE BLEU", "EN-FR BLEU")

SIZES = {
    "tiny": "base: two layers of width 128; big: width 192",
    "small": "base: three layers of width 256; big: width 384",
}
"""Scale → what the two models are, where they are not the paper's."""


def build(study: Study) -> Content:
    """Make our table beside the paper's."""
    places = [
        (model, languages)
        for model in study.settings(GRID, "model")
        for languages in study.settings(GRID, "languages")
    ]
    tests = {
        f"{model} {languages}": versus(
            study,
            GRID,
            "position",
            ("relative", "absolute"),
            {"model": model, "languages": languages},
        )
        for model, languages in places
    }
    return Content(tables=[_ours(study, tests), published()], findings=[_relative(study, tests)])


def published() -> DocumentTable:
    """Return the paper's table."""
    rows = [
        (*words(model, position), *(number(score, ".1f") for score in scores))
        for (model, position), scores in PUBLISHED.items()
    ]
    return DocumentTable(
        name="table1-paper",
        title="BLEU on newstest2014 in the paper",
        origin="paper",
        header=HEADER,
        rows=tuple(rows),
    )


def _ours(study: Study, tests: Tests) -> DocumentTable:
    notes = [
        study.spread(GRID),
        f"{MARK} differs from absolute: p < {LEVEL}, paired bootstrap",
    ]
    if study.scale in SIZES:
        notes.append(SIZES[study.scale])
    if "en-fr" not in study.settings(GRID, "languages"):
        notes.append(f"at the scale {study.scale} there is no English-French text")
    rows = [
        (*words(model, position), *(_score(study, tests, model, x, position) for x in LANGUAGES))
        for model in study.settings(GRID, "model")
        for position in study.settings(GRID, "position")
    ]
    return DocumentTable(
        name="table1",
        title="Test BLEU with absolute and relative positions",
        header=HEADER,
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _score(study: Study, tests: Tests, model: str, languages: str, position: str) -> Entry:
    if languages not in study.settings(GRID, "languages"):
        return missing()
    test = tests[f"{model} {languages}"]
    marked = position == "relative" and isinstance(test, Comparison) and test.significant
    axes = {"model": model, "languages": languages, "position": position}
    rows = study.rows(GRID, "BLEU", axes, dataset=mean_of("test"))
    return study.entry(rows, "mean ± stdev", MARK if marked else "")


def _relative(study: Study, tests: Tests) -> Finding:
    return finding(
        study,
        "Relative positions translate better than absolute ones, in the base and in the big model.",
        better(tests),
        told(tests),
        "base +0.3 (EN-DE) and +0.5 (EN-FR), big +1.3 and +0.3; one run each, no test",
        "gains of 0.3 to 1.3 BLEU need long runs and a large test set to show; the paper's runs are"
        " 100,000 updates, of the big model 300,000, on WMT 2014: see scale paper",
    )


ITEM = Item("Table 1: absolute and relative positions", (GRID,), build)
