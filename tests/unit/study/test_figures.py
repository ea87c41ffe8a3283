"""Figures: their looks, lines and files."""

import math
from itertools import pairwise

import pytest

from shapeshift.positions import KINDS, SCHEMES
from shapeshift.study.figures import Line, Panel, bars_note, draw_lines, look, looks, save

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def drawn(*panels):
    return draw_lines(panels, "x")


def test_a_figure_becomes_one_file_for_each_format_always_the_same(tmp_path):
    panel = Panel([Line("ape", [0, 1], [[1.0], [2.0]])], "BLEU")
    paths = save(drawn(panel), tmp_path / "new" / "bleu.v1")
    assert [path.name for path in paths] == ["bleu.v1.png", "bleu.v1.svg", "bleu.v1.pdf"]
    assert all(path.read_bytes().startswith(MAGIC[path.suffix[1:]]) for path in paths)
    again = save(drawn(panel), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_names_are_text_not_mathematics(tmp_path):
    lines = [Line(r"for $5 \& $6", [0, 1], [[1.0], [2.0]]), Line(r"\lambda_K $x$", [0], [[1.0]])]
    panel = Panel(lines, "$ per hour_", "a $title", places=("$1", "$2_"))
    files = save(draw_lines([panel], "x $"), tmp_path / "figure")
    assert all(file.stat().st_size for file in files)


def test_a_scheme_looks_the_same_in_every_figure_and_its_variants_have_its_colour():
    def distinct(looks):
        return len({str(each) for each in looks})

    assert distinct(look(number) for number in range(196)) == 196
    assert distinct(looks(["first", "ape", "second", "rpe"]).values()) == 4
    every = looks([*SCHEMES, *KINDS])
    assert distinct(every.values()) == len(every)
    for systems in (["shape", "ape"], ["rope", "mine", "alibi"], ["skew-cross-pe", "skew"]):
        assert all(looks(systems)[name] == every[name] for name in systems if name in SCHEMES)
    assert looks(["SHAPE"])["SHAPE"] == every["shape"]
    _, *variants = looks(["ape", "shape-10", "shape-40", "shape-500"]).values()
    assert distinct(variants) == 3
    assert len({each["color"] for each in variants}) == 1


def test_a_line_is_the_mean_of_its_seeds_with_their_deviation():
    line = Line("ape", [1, 2, 3], [[1.0, 3.0], [], [5.0]], hollow=[2])
    figure = drawn(Panel([line], "BLEU"))
    [axes] = figure.axes
    [[points], [name]] = axes.get_legend_handles_labels()
    assert name == "ape"
    assert not axes.texts  # a single line needs no name
    mean, _, [bars] = points.lines
    assert list(mean.get_xdata()) == [1, 2, 3]
    assert list(mean.get_ydata()) == pytest.approx([2, math.nan, 5], nan_ok=True)
    (_, low), (_, high) = bars.get_segments()[0]
    assert (low, high) == pytest.approx((2 - math.sqrt(2), 2 + math.sqrt(2)))
    [hollow] = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert list(hollow.get_ydata()) == [5]
    [dots] = [line for line in axes.lines if line.get_marker() == "."]
    assert [*zip(*dots.get_data(), strict=True)] == [(1, 1), (1, 3)]
    assert "means of 1–2 seeds" in bars_note([line])
    assert bars_note([Line("ape", [1], [[5.0]])]) == "; one seed"
    assert bars_note([line, line]) == ""  # a line for each run


@pytest.mark.parametrize("log", [False, True])
def test_lines_are_named_at_their_ends_without_overlap(log):
    lines = [Line(f"name {y}", [1, 2], [[9.0], [5 + y / 50]]) for y in range(6)]
    figure = drawn(Panel([*lines, Line("high", [1, 2], [[5.0], [9.0]])], "BLEU", log=log))
    figure.draw_without_rendering()
    [axes] = figure.axes
    boxes = sorted((text.get_window_extent().y0, text) for text in axes.texts if text.get_text())
    assert [text.get_text() for _, text in boxes] == [*(f"name {y}" for y in range(6)), "high"]
    extents = [text.get_window_extent() for _, text in boxes]
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(extents))
    assert all(figure.bbox.x0 < axes.bbox.x1 < box.x0 < box.x1 <= figure.bbox.x1 for box in extents)


def test_runs_of_one_system_look_alike_and_are_named_once():
    lines = [Line(name, [1, 2], [[9.0], [y]]) for name, y in (("ape", 6), ("ape", 5), ("shape", 4))]
    figure = drawn(Panel(lines, "perplexity", log=True), *[Panel(lines[2:], "BLEU")] * 2)
    assert [axes.axison for axes in figure.axes] == [True, True, True, False]
    handles, names = figure.axes[0].get_legend_handles_labels()
    assert names == ["ape", "ape", "shape"]
    one, other, shape = [handle.lines[0].get_color() for handle in handles]
    assert one == other != shape
    assert sorted(text.get_text() for text in figure.axes[0].texts) == ["", "", "ape", "shape"]


def test_small_differences_do_not_fill_the_panel():
    lines = [Line("ape", [0, 1], [[20.0], [20.1]])]
    [axes] = drawn(Panel(lines, "BLEU", min_span=2.0)).axes
    assert axes.get_ylim() == pytest.approx((19.05, 21.05))
    [axes] = drawn(Panel(lines, "perplexity", min_span=4.0, log=True)).axes
    low, high = axes.get_ylim()
    assert high / low == pytest.approx(4.0)


@pytest.mark.parametrize("places", [["0–9", "10–15"], ["100–150"] * 9])
def test_names_of_places_do_not_touch(places):
    line = Line("ape", range(len(places)), [[1.0]] * len(places))
    panels = [Panel([line], "BLEU", places=places)] * 4
    figure = draw_lines(panels, "source length")
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
        assert (axes.get_xticklabels()[0].get_size() < 7) == (len(places) > 2)
