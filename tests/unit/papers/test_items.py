"""Every item of every paper, made of runs that were really trained and measured, and of none."""

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.papers.catalogue import PAPERS
from shapeshift.papers.document import ItemDocument
from shapeshift.papers.study import Study

from .conftest import NEVER_RUN, find_item

ITEMS = [f"{name}:{item}" for name, paper in PAPERS.items() for item in paper["items"]]
NO_RUNS = ["shape:table7", "nhk:table3", "nhk:table5", "nhk:table6"]
"""Items whose runs no test trains."""


def document(item, content, study):
    return ItemDocument(
        paper="any",
        item="any",
        title=item.title,
        citation="",
        scale="tiny",
        command="",
        version="0",
        time="now",
        tables=tuple(content.tables),
        figures=tuple(drawn.about for drawn in content.figures),
        findings=tuple(content.findings),
        measurements=study.measurements,
    )


@pytest.mark.parametrize("name", ITEMS)
def test_an_item_makes_a_whole_document_whose_numbers_say_what_they_are_from(name, build, studies):
    content, study = build(name), studies(find_item(name).grid.name)
    made = document(find_item(name), content, study)
    assert ItemDocument.model_validate_json(made.model_dump_json()) == made
    origins = [each.origin for each in made.tables]
    assert origins == sorted(origins)  # ours, then the paper's
    if name not in NO_RUNS:
        assert not made.is_empty
    for figure in content.figures:
        assert len(figure.about.alt) > 40
        assert all(axes.has_data() for axes in figure.drawing.axes if axes.axison)
    unknown = {
        title
        for table in content.tables
        if table.origin == "ours"
        for row in table.rows
        for title, entry in zip(table.header, row, strict=True)
        if entry.value is not None and not entry.rows and not entry.cells
    }
    assert unknown <= {"update", "updates"}
    keys = {cell.key for cell in study.cells()}
    entries = [entry for table in content.tables for row in table.rows for entry in row]
    assert {key for entry in entries for key in entry.cells} <= keys
    # Of one seed or two.
    verdicts = {finding.verdict for finding in content.findings}
    assert verdicts <= {"one run", "two runs", "not run", "not tested at this scale"}


@pytest.mark.parametrize("name", ITEMS)
def test_without_runs_there_are_dashes_and_nothing_is_judged(name, papers_root):
    item = find_item(name)
    cells = item.grid.cells("tiny", NEVER_RUN)
    study = Study(cells, papers_root / "cells", papers_root / "prepared")
    content = item.build(study)
    assert {x.verdict for x in content.findings} <= {"not run", "not tested at this scale"}
    if item.trained:
        assert not content.figures
        assert document(item, content, study).is_empty


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", ITEMS)
def test_an_item_can_be_made_at_every_scale(name, scale, tmp_path):
    item = find_item(name)
    study = Study(item.grid.cells(scale), tmp_path / "cells", tmp_path / "prepared")
    if item.trained:
        verdicts = {finding.verdict for finding in item.build(study).findings}
        assert verdicts <= {"not run", "not tested at this scale"}
    else:
        with pytest.raises(ShapeshiftError):
            item.build(study)


@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [("table2", 4, 6), ("table3", 11, 5), ("table5", 5, 8), ("table6", 11, 6)],
)
def test_the_papers_tables_of_nhk_are_whole(name, columns, rows, build):
    paper = build(f"nhk:{name}").tables[-1]
    assert (len(paper.header), len(paper.rows)) == (columns, rows)
    assert not any(entry.text == "–" for row in paper.rows for entry in row)
