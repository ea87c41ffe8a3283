"""The items beyond the papers, made of runs of a few updates; most positions are not finished."""

from functools import partial

import pytest

from shapeshift.lab import properties, speed
from shapeshift.lab.launchers import InProcess
from shapeshift.lab.runner import run_cells
from shapeshift.papers.beyond import PAPER
from shapeshift.papers.beyond.master import DATASETS, PROPERTIES, is_declared
from shapeshift.papers.document import ItemDocument
from shapeshift.papers.planning import find_grid
from shapeshift.papers.study import Study
from shapeshift.positions import PRESETS

from .conftest import MINUSCULE, without_source

FINISHED = ("ape", "alibi")


def study_of(root, grids, steps, wanted):
    """Train the cells of seed 1 that `wanted` says; the other cells of that seed stay undone."""
    cells = {}
    for name in grids:
        cells[name] = [cell for cell in find_grid(name).cells("tiny", MINUSCULE) if cell.seed == 1]
        due = [cell for cell in cells[name] if wanted(cell)]
        report = run_cells(
            due,
            steps[name],
            root / "cells",
            InProcess(),
            prepared_root=root / "prepared",
            poll_s=0.0,
            command="pytest",
        )
        assert report.ok, {status.message for status in report.statuses.values()}
    return Study(cells, steps, root / "cells", root / "prepared")


@pytest.fixture(scope="module")
def master(papers_root):
    """All datasets and properties of two positions, but for whether they export."""
    measured = ("similarity", "loss-by-offset", "speed", "decoding-speed", "step-memory")
    steps = {DATASETS: ("score-test", "swapped-order"), PROPERTIES: measured}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "measure_speed", partial(speed.measure_speed, budget_s=0.0))
        patch.setattr(properties, "DECODED_LENGTH", 6)
        grids = (DATASETS, PROPERTIES)
        study = study_of(papers_root, grids, steps, lambda cell: cell.axes["position"] in FINISHED)
        return PAPER.items["master"].build(study), study


def fields(content, name):
    """Return row → column → entry."""
    [table] = [table for table in content.tables if table.name == name]
    return {row[0].text: dict(zip(table.header, row, strict=True)) for row in table.rows}


def test_the_master_table_has_a_row_for_every_position(master):
    content, study = master
    rows = fields(content, "master")
    assert list(rows) == study.settings(PROPERTIES, "position")
    assert {"ape", "learned", "shape", "rpe", "rope", "randomized"} <= rows.keys()


def test_a_finished_row_has_all_numbers_and_another_has_dashes(master):
    content, _ = master
    rows = fields(content, "master")
    for name in FINISHED:
        values = {title: e.value for title, e in rows[name].items() if title != "position"}
        unknown = {title for title, value in values.items() if value is None}
        assert unknown == {"shift invariant", "exports"}
        assert values["BLEU interpolate by sentence"] is not None
        assert values["parameters"] > 1000
    texts = {title: e.text for title, e in rows["rope"].items()}
    assert texts.pop("position") == "rope"
    assert texts.pop("shift invariant") == "yes"
    assert set(texts.values()) == {"–"}


def test_what_is_known_beforehand_of_absolute_and_relative_positions(master):
    rows = fields(master[0], "master")
    assert [rows["ape"][title].value for title in ("training speed", "memory")] == [1, 1]
    assert rows["ape"]["similarity"].value < 0.9999
    assert rows["alibi"]["similarity"].value == pytest.approx(1)
    assert rows["alibi"]["loss range"].value == pytest.approx(0, abs=1e-4)
    assert rows["alibi"]["parameters"].value == rows["ape"]["parameters"].value


def test_every_number_of_ours_says_what_it_is_from(master):
    content, _ = master
    assert without_source(content) == set()


def test_figures_have_their_numbers_in_tables(master):
    content, study = master
    names = [drawn.about.name for drawn in content.figures]
    assert names == ["lengths", "tradeoff"]
    assert list(fields(content, "tradeoff")) == ["ape", "alibi"]
    document = ItemDocument(
        paper="beyond",
        item="master",
        title="",
        citation="",
        scale="tiny",
        command="",
        version="",
        time="",
        tables=tuple(content.tables),
        figures=tuple(drawn.about for drawn in content.figures),
        findings=tuple(content.findings),
        measurements=study.measurements,
    )
    assert len(document.figures) == 2


@pytest.mark.parametrize("item", PAPER.items)
def test_an_item_of_no_finished_run_is_dashes(item, papers_root):
    grids = PAPER.items[item].grids
    steps = {grid: find_grid(grid).config.steps for grid in grids}
    overrides = (*MINUSCULE, "training.label_smoothing=0.2")
    cells = {grid: find_grid(grid).cells("tiny", overrides) for grid in grids}
    study = Study(cells, steps, papers_root / "cells", papers_root / "prepared")
    content = PAPER.items[item].build(study)
    assert content.figures == []
    assert all(e.value is None for table in content.tables for row in table.rows for e in row)


def test_places_have_a_column_each(papers_root):
    wanted = {("none", "self"), ("alibi", "self"), ("sinusoidal", "cross")}
    steps = {"beyond-places": ("score-test",)}
    study = study_of(
        papers_root, list(steps), steps, lambda cell: tuple(cell.axes.values()) in wanted
    )
    places = fields(PAPER.items["places"].build(study), "places")
    assert list(places["alibi"]) == ["kind", "self", "cross", "embedding"]
    assert places["alibi"]["self"].value is not None
    assert places["sinusoidal"]["cross"].value is not None
    assert places["sinusoidal"]["self"].text == "–"


def test_what_the_library_declares():
    relative = {name for name, scheme in PRESETS.items() if is_declared(scheme)}
    assert relative == {"nope", "rpe", "skew", "t5", "alibi", "rope", "xpos"}


@pytest.fixture(scope="module")
def learning(papers_root):
    """Two of the five positions, after four updates."""
    steps = {"beyond-learning": ("score-test", "learning")}
    wanted = ("ape", "shape-40")
    study = study_of(
        papers_root, ["beyond-learning"], steps, lambda cell: cell.axes["position"] in wanted
    )
    return PAPER.items["learning"].build(study), study


def test_learning_has_a_row_for_each_checkpoint_and_one_for_each_end(learning):
    content, study = learning
    [course] = [table for table in content.tables if table.name == "learning"]
    points = [(row[0].text, row[1].value) for row in course.rows]
    assert points == [("ape", 2), ("ape", 4), ("shape-40", 2), ("shape-40", 4)]
    ends = fields(content, "learned")
    assert list(ends) == study.settings("beyond-learning", "position")
    assert {e.value for title, e in ends["shape-10"].items()} == {None}
    last = dict(zip(course.header, course.rows[3], strict=True))
    for title in ("drop", "similarity to 10", "similarity to 500"):
        assert ends["shape-40"][title].value == last[title].value is not None
    assert last["drop"].value == pytest.approx(
        last["BLEU, original order"].value - last["swapped order"].value
    )


def test_learning_means_the_layers_without_the_embeddings(learning):
    content, study = learning
    [measured] = [
        row.value
        for row in study.results.rows
        if (row.axes["position"], row.step, row.bucket) == ("ape", 4, "layer 1 to 100")
    ]
    assert fields(content, "learned")["ape"]["similarity to 100"].value == measured


def test_learning_draws_what_is_there(learning):
    content, _ = learning
    [drawn] = content.figures
    for axes in drawn.drawing.axes:
        assert len({line.get_label() for line in axes.lines if line.get_label()[0] != "_"}) == 2
