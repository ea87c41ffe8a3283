"""The figure of quality against cost."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.tradeoff import Point, Tradeoff, plot, spread


def data(*points, **options):
    return Tradeoff(points, "speed", "BLEU", **options)


def test_names_of_points_at_one_place_do_not_overlap():
    figure = plot(data(*(Point(name, 1.0, 20.0 + 0.01 * n) for n, name in enumerate("abcdef"))))
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert [text.get_text() for text in figure.axes[0].texts] == list("abcdef")
    for number, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[number + 1 :])


def test_marked_points_are_filled_and_the_title_says_why():
    figure = plot(data(Point("a", 1.0, 2.0, marked=True), Point("b", 0.9, 3.0), marked="sure"))
    filled = [line.get_markerfacecolor() != "white" for line in figure.axes[0].lines]
    assert filled == [True, False]
    assert figure.axes[0].get_title(loc="left") == "filled: sure"


def test_one_point_and_points_alike_can_be_drawn():
    for points in ([Point("a", 1.0, 2.0)], [Point("a", 1.0, 2.0), Point("b", 1.0, 2.0)]):
        low, high = plot(data(*points, baseline="a")).axes[0].get_xlim()
        assert low < 1.0 < high


def test_nothing_to_draw_is_an_error():
    with pytest.raises(ShapeshiftError, match="at least one point"):
        plot(data())


def test_what_stands_apart_stays_where_it_is():
    assert spread([0.9, 0.1, 0.5], 0.1) == [0.9, 0.1, 0.5]


def test_neighbours_part_around_their_middle():
    assert spread([0.5, 0.52], 0.1) == pytest.approx([0.46, 0.56])


def test_a_block_that_grows_into_another_takes_it_in():
    assert spread([0.5, 0.5, 0.6], 0.1) == pytest.approx([0.4333333, 0.5333333, 0.6333333])


@given(st.lists(st.floats(0, 1), max_size=9), st.floats(0.01, 0.3))
def test_no_two_are_nearer_than_the_gap_and_order_is_kept(wanted, gap):
    places = spread(wanted, gap)
    ordered = sorted(range(len(wanted)), key=lambda n: (wanted[n], n))
    for lower, upper in pairwise(ordered):
        assert places[upper] - places[lower] >= gap - 1e-9
    assert sum(places) == pytest.approx(sum(wanted), abs=1e-9)
