"""The items of Shaw et al. 2018, made of finished cells and of none."""

import pytest

from shapeshift.lab.significance import Comparison
from shapeshift.papers import claims
from shapeshift.papers.shaw import PAPER, speed, table1, table2, table3

from .conftest import without_source

HOLDS, NOT, UNTOLD = "holds", "does not hold", "cannot tell"
NEVER_RUN = ("data.corpus.num_train=240",)
GRIDS = ("shaw-table1", "shaw-speed", "shaw-table2", "shaw-table3")


@pytest.fixture(scope="module")
def study(make_study):
    """All cells of one seed."""
    return make_study(*GRIDS, seeds=(1,))


@pytest.fixture(scope="module")
def nothing(make_study):
    return make_study(*GRIDS, done=lambda cell: False, overrides=NEVER_RUN)


def texts(table):
    return [[entry.text for entry in row] for row in table.rows]


def against(score, base, p=0.01):
    return Comparison("new", "old", "bleu", score, base, {1: p})


@pytest.mark.parametrize("item", PAPER.items)
def test_an_item_without_runs_is_all_dashes_and_cannot_tell(item, nothing):
    content = PAPER.items[item].build(nothing)
    ours = content.tables[0]
    assert {e.text for row in ours.rows for e in row if e.rows or e.value is not None} == set()
    assert any(entry.text == "–" for entry in ours.rows[0])
    assert content.figures == []
    assert {finding.verdict for finding in content.findings} == {UNTOLD}
    assert all("not measured" in finding.measured for finding in content.findings)


@pytest.mark.parametrize("item", PAPER.items)
def test_every_number_of_ours_says_what_it_is_from(item, study):
    assert without_source(PAPER.items[item].build(study)) == set()


def test_table1_has_the_papers_rows_and_says_what_is_missing_at_this_scale(study):
    ours, paper = table1.build(study).tables
    assert [row[:2] for row in texts(ours)] == [row[:2] for row in texts(paper)]
    assert {row[3] for row in texts(ours)} == {"–"}
    assert any("no English-French" in note for note in ours.notes)
    [row] = study.rows(
        "shaw-table1", "BLEU", {"model": "big", "position": "relative"}, dataset="test"
    )
    assert ours.rows[3][2].value == row.value
    assert texts(paper)[3] == ["big", "relative", "29.2", "41.5"]


def test_the_big_model_of_table1_has_the_papers_distance_and_shares_tables_between_heads(study):
    [cell] = study.cells("shaw-table1", {"model": "big", "position": "relative"})
    [part] = cell.config.position.parts
    assert (part["max_distance"], part["per_head"]) == (8, False)


def test_table2_is_measured_on_validation_and_its_figure_shows_the_table(study):
    content = table2.build(study)
    ours, paper = content.tables
    assert [row[0] for row in texts(ours)] == ["0", "1", "2", "4", "16", "64", "256"]
    assert [row[1] for row in texts(paper)] == [
        "12.5",
        "25.5",
        "25.8",
        "25.9",
        "25.8",
        "25.9",
        "25.8",
    ]
    for row in ours.rows:
        [valid] = study.rows("shaw-table2", "BLEU", {"k": row[0].text}, dataset="valid")
        assert row[1].value == valid.value
    [drawn] = content.figures
    assert drawn.about.table == ours.name
    [line] = drawn.figure.axes[0].containers
    assert list(line[0].get_ydata()) == [row[1].value for row in ours.rows]


@pytest.mark.parametrize(
    ("test", "verdict"),
    [
        (against(15.0, 30.0), HOLDS),
        (against(22.5, 30.0), HOLDS),
        (against(23.0, 30.0), NOT),  # worse, but no collapse
        (against(31.0, 30.0), NOT),
        (against(15.0, 30.0, p=0.2), UNTOLD),
        (against(0.1, 0.5), UNTOLD),  # nothing was learned
        (claims.Untested("no run"), UNTOLD),
    ],
)
def test_collapse(test, verdict):
    assert table2.judge_collapse(test) == verdict


def test_table3_has_the_papers_rows(study):
    ours, paper = table3.build(study).tables
    assert [row[:2] for row in texts(ours)] == [row[:2] for row in texts(paper)]
    assert [row[2] for row in texts(paper)] == ["25.8", "25.8", "25.3", "12.5"]


def test_table3_tells_which_claim_rests_on_which_runs(study, monkeypatch):
    """Keys alone as good as both, values alone worse, neither far worse."""
    bleu = {("yes", "yes"): 30.0, ("no", "yes"): 29.8, ("yes", "no"): 27.0, ("no", "no"): 14.0}

    def versus(study, grid, axis, pair, axes, *, split):
        if split == "test":  # of which the claims are not
            return claims.Untested("not asked")
        new, old = ({**axes, axis: setting} for setting in pair)
        scores = [bleu[each["values"], each["keys"]] for each in (new, old)]
        return against(*scores)

    monkeypatch.setattr(table3, "versus", versus)
    findings = table3.build(study).findings
    assert [finding.verdict for finding in findings] == [HOLDS, HOLDS, HOLDS]
    assert "29.80 against 30.00" in findings[0].measured
    assert "30.00 against 27.00" in findings[1].measured
    assert "14.00 against 29.80" in findings[2].measured


@pytest.mark.parametrize(
    ("speeds", "verdict"),
    [
        ([0.93, 0.86], HOLDS),
        ([0.93, 0.84], NOT),
        ([None, 0.5], NOT),
        ([None, 0.95], UNTOLD),
        ([], UNTOLD),
    ],
)
def test_a_modest_cost(speeds, verdict):
    assert speed.judge(speeds) == verdict


def test_one_setting_against_another_over_the_seeds_that_both_have(make_study):
    def done(cell):
        return (cell.axes["k"], cell.seed) in [("16", 1), ("16", 7), ("0", 1)]

    some = make_study("shaw-table2", done=done, seeds=(1, 7))
    found = claims.versus(some, "shaw-table2", "k", ("0", "16"))
    assert list(found.p_values) == [1]
    assert (found.system, found.baseline) == ("0", "16")
    missing = claims.versus(some, "shaw-table2", "k", ("0", "16"), {"seed": 7})
    assert missing.reason == "no finished run with seed = 7, k = 0"


def test_a_finding_names_the_run_that_is_missing(make_study):
    """Not the one that the claim is about, which is finished."""

    def done(cell):
        return (cell.axes["k"], cell.seed) in [("0", 5), ("4", 6)]

    some = make_study("shaw-table2", done=done, seeds=(5, 6))
    collapse, flat = table2.build(some).findings
    assert collapse.measured == "k = 0: not measured (no finished run with k = 16)"
    assert "k = 4: not measured (no finished run with k = 16)" in flat.measured
    assert "no finished run with k = 2 or with k = 16" in flat.measured
    apart = claims.versus(some, "shaw-table2", "k", ("0", "4"))
    assert apart.reason == "no finished seed of both k = 0 and k = 4"
