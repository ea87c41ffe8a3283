import math

import pytest

from shapeshift.analysis.k_search import compute, plot, tabulate
from shapeshift.errors import ShapeshiftError


@pytest.fixture
def search(make_scores):
    def make(values, others=None):
        return compute(
            {offset: [make_scores(x) for x in runs] for offset, runs in values.items()},
            {name: [make_scores(x) for x in runs] for name, runs in (others or {}).items()},
        )

    return make


VALUES = {500: [22.96], 10: [22.8], 40: [23.0, 23.2]}


def test_the_best_k_has_the_highest_mean_over_its_runs(search):
    data = search(VALUES)
    assert data.max_offsets == (10, 40, 500)
    assert data.best == 40
    assert data.runs[1].mean == pytest.approx(23.1)
    assert data.runs[1].spread == pytest.approx(0.2 / math.sqrt(2))
    assert data.runs[0].spread == 0


def test_of_equals_the_smallest_k_is_best(search):
    assert search({100: [20.0], 20: [20.0], 10: [19.0]}).best == 20


@pytest.mark.parametrize(
    ("values", "message"),
    [({}, "no K to compare"), ({10: []}, "'K = 10' has no runs")],
)
def test_nothing_to_compare_is_refused(values, message, search):
    with pytest.raises(ShapeshiftError, match=message):
        search(values)


def test_scores_without_bleu_are_refused(make_scores):
    with pytest.raises(ShapeshiftError, match="'K = 10' was scored without BLEU"):
        compute({10: [make_scores(50, metric="chrF2")]})


def test_scores_of_other_references_are_refused(make_scores):
    other = make_scores(20).model_copy(update={"references_sha256": "other"})
    with pytest.raises(ShapeshiftError, match="against different references"):
        compute({10: [make_scores(20)]}, {"APE": [other]})


def test_the_figure_fills_the_best_and_draws_other_systems_as_levels(search):
    [axes] = plot(search(VALUES, {"APE": [22.18]})).axes
    line, best, level = (each for each in axes.lines if each.get_label() != "_nolegend_")
    assert list(line.get_xdata()) == [10, 40, 500]
    assert list(best.get_xdata()) == [40]
    assert list(level.get_ydata()) == [22.18] * 2
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["10", "40", "500"]
    assert {text.get_text() for text in axes.texts} == {"K = 40: 23.10", "SHAPE", "APE"}


def test_the_table_marks_the_best_and_shows_the_spread(search):
    table = tabulate(search(VALUES, {"APE": [22.18]}))
    assert table.rows == [
        ("K = 10", "22.80", "1"),
        ("K = 40 (best)", "23.10 ± 0.14", "2"),
        ("K = 500", "22.96", "1"),
        ("APE", "22.18", "1"),
    ]
    assert table.notes == ["BLEU: tok:13a"]
