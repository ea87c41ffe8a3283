from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from shapeshift.lab.analysis.labels import End, label_ends, spread


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


def test_names_stand_level_with_their_lines_on_any_scale():
    axes = Figure().subplots()
    axes.set_yscale("log")
    axes.set_ylim(1, 100)
    label_ends(axes, [End(10, "ten", "red"), End(1, "one", "blue")], height_in=3)
    assert [(text.get_text(), text.xy, text.get_color()) for text in axes.texts] == [
        ("ten", (1, pytest.approx(0.5)), "red"),
        ("one", (1, pytest.approx(0)), "blue"),
    ]
