"""Every preset in two sizes of model: Shaw et al. (2018), Table 1, for all."""

from __future__ import annotations

from dataclasses import replace

from shapeshift.experiments.measures import mean_of
from shapeshift.experiments.significance import Comparison
from shapeshift.papers.beyond.judge import LATER, all_better
from shapeshift.papers.beyond.master import BASELINE, relative
from shapeshift.papers.column import Column, note
from shapeshift.papers.document import DocumentTable, Entry, Finding
from shapeshift.papers.entries import words
from shapeshift.papers.item import Content, Item
from shapeshift.papers.shaw.table1 import SIZES
from shapeshift.papers.study import Study

GRID = "beyond-sizes"


def build(study: Study) -> Content:
    """Make the table, a row for each preset, and judge who is better in all sizes and languages."""
    places = list(
        {(cell.axes["model"], cell.axes["languages"]): None for cell in study.cells(GRID)}
    )
    columns = {place: Column(_against_baseline(study, *place)) for place in places}
    models = study.settings(GRID, "model")
    sizes = [SIZES[study.scale]] if study.scale in SIZES else []
    table = DocumentTable(
        name="sizes",
        title="Test BLEU in two sizes of model",
        header=("position", *(f"{model} {languages.upper()}" for model, languages in columns)),
        rows=tuple(
            (*words(name), *(_entry(study, name, *place, columns[place]) for place in columns))
            for name in study.settings(GRID, "position")
        ),
        notes=(f"{study.spread(GRID)}; a dash: not finished", *sizes, note(BASELINE)),
    )
    return Content(tables=[table], findings=[_relative(study, each) for each in models])


def _against_baseline(study: Study, model: str, languages: str) -> list[Comparison]:
    axes = {"model": model, "languages": languages}
    return study.comparisons(GRID, "position", BASELINE, axes).get((model, languages), [])


def _entry(study: Study, name: str, model: str, languages: str, column: Column) -> Entry:
    axes = {"model": model, "languages": languages, "position": name}
    rows = study.rows(GRID, "BLEU", axes, dataset=mean_of("test"))
    return study.entry(rows, "mean ± stdev", column.mark(name))


def _relative(study: Study, model: str) -> Finding:
    languages = list({cell.axes["languages"]: None for cell in study.cells(GRID, {"model": model})})
    tests = [
        replace(test, system=f"{each} {test.system}")
        for each in languages
        for test in _against_baseline(study, model, each)
    ]
    return all_better(
        f"In the {model} model kinds that are shift invariant translate better than {BASELINE}.",
        tests,
        [f"{each} {name}" for each in languages for name in relative(study, GRID)],
        LATER.get(study.scale, ""),
    )


ITEM = Item("Every preset in two sizes of model", (GRID,), build)
