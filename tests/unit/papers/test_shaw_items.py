"""The items of Shaw et al. 2018, made of finished cells and of none."""

import pytest

from shapeshift.papers.shaw import PAPER

from .conftest import texts, without_source

NEVER_RUN = ("data.corpus.num_train=240",)
GRIDS = ("shaw-table1", "shaw-speed", "shaw-table2", "shaw-table3")


@pytest.fixture(scope="module")
def study(make_study):
    """All cells of one seed."""
    return make_study(*GRIDS, seeds=(1,))


@pytest.fixture(scope="module")
def nothing(make_study):
    return make_study(*GRIDS, done=lambda cell: False, overrides=NEVER_RUN)


@pytest.mark.parametrize("item", PAPER.items)
def test_an_item_without_runs_is_all_dashes_and_judges_nothing(item, nothing):
    content = PAPER.items[item].build(nothing)
    ours = content.tables[0]
    assert {e.text for row in ours.rows for e in row if e.rows or e.value is not None} == set()
    assert any(entry.text == "–" for entry in ours.rows[0])
    assert content.figures == []
    verdicts = {finding.verdict for finding in content.findings}
    assert verdicts <= {"not run", "not tested at this scale"}
    for finding in content.findings:
        assert "no finished run" in finding.measured or "not measured" in finding.measured


@pytest.mark.parametrize("item", PAPER.items)
def test_every_number_of_ours_says_what_it_is_from(item, study):
    assert without_source(PAPER.items[item].build(study)) == set()


@pytest.mark.parametrize("item", PAPER.items)
def test_one_seed_is_one_run(item, study):
    verdicts = {finding.verdict for finding in PAPER.items[item].build(study).findings}
    assert verdicts <= {"one run", "not tested at this scale"}


def test_table1_has_the_papers_rows(study):
    ours, paper = PAPER.items["table1"].build(study).tables
    assert [row[:2] for row in texts(ours)] == [row[:2] for row in texts(paper)]
    axes = {"model": "big", "position": "relative"}
    [row] = study.rows("shaw-table1", "BLEU", axes, dataset="test")
    assert ours.rows[3][2].value == row.value
    assert texts(paper)[3][:3] == ["big", "relative", "29.2"]


def test_the_big_model_of_table1_has_the_papers_distance_and_shares_tables_between_heads(study):
    [cell] = study.cells("shaw-table1", {"model": "big", "position": "relative"})
    [part] = cell.config.position.parts
    assert (part["max_distance"], part["per_head"]) == (8, False)


def test_table2_is_measured_on_validation_and_its_figure_shows_the_table(study):
    content = PAPER.items["table2"].build(study)
    ours, paper = content.tables
    assert [row[0] for row in texts(ours)] == ["0", "1", "2", "4", "16", "64", "256"]
    published = ["12.5", "25.5", "25.8", "25.9", "25.8", "25.9", "25.8"]
    assert [row[1] for row in texts(paper)] == published
    for row in ours.rows:
        [valid] = study.rows("shaw-table2", "BLEU", {"k": row[0].text}, dataset="valid")
        assert row[1].value == valid.value
    [drawn] = content.figures
    assert drawn.about.table == ours.name
    [line] = [each for each in drawn.drawing.axes[0].lines if each.get_label() == "valid BLEU"]
    assert list(line.get_ydata()) == [row[1].value for row in ours.rows]


def test_a_finding_names_the_run_that_is_missing(make_study):
    """Not the one that the claim is about, which is finished."""

    def done(cell):
        return (cell.axes["k"], cell.seed) in [("0", 5), ("4", 6)]

    some = make_study("shaw-table2", done=done, seeds=(5, 6))
    better, flat = PAPER.items["table2"].build(some).findings
    assert better.measured == "16 against 0: no finished run with k = 16"
    assert "4 against 16: no finished run with k = 16" in flat.measured
    assert "no finished run with k = 2 or with k = 16" in flat.measured
    apart = some.compare("shaw-table2", {"k": "0"}, {"k": "4"})
    assert apart.reason == "no finished seed of both k = 0 and k = 4"
