"""Figures: their looks, lines and files."""

import math

import pytest

from shapeshift.lab.figures import (
    Line,
    Panel,
    draw_lines,
    save,
)
from shapeshift.lab.looks import look, looks
from shapeshift.positions import KINDS, PRESETS

MAGIC = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def drawn(*panels):
    return draw_lines(panels, "x")


def line_named(axes, name):
    [found] = [line for line in axes.lines if line.get_label() == name]
    return found


def names(axes):
    """The names that are written, without the thin lines that lead to them."""
    return [text for text in axes.texts if text.get_text()]


def assert_apart(axes):
    """Assert that no name is written over another."""
    axes.figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in names(axes)]
    assert not any(boxes[a].overlaps(boxes[b]) for a in range(len(boxes)) for b in range(a))


def test_a_figure_becomes_one_file_for_each_format_always_the_same(tmp_path):
    panel = Panel([Line("ape", [0, 1], [[1.0], [2.0]])], "BLEU")
    paths = save(drawn(panel), tmp_path / "new" / "bleu.v1")
    assert [path.name for path in paths] == ["bleu.v1.png", "bleu.v1.svg", "bleu.v1.pdf"]
    assert all(path.read_bytes().startswith(MAGIC[path.suffix[1:]]) for path in paths)
    again = save(drawn(panel), tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in paths]


def test_a_preset_looks_the_same_in_every_figure_and_its_variants_have_its_colour():
    assert len({look(number) for number in range(28)}) == 28
    assert len(set(looks(["first", "ape", "second", "rpe"]).values())) == 4
    every = looks([*PRESETS, *KINDS])
    assert len(set(every.values())) == len(every)
    assert looks(["kerple", "fire", "ape"])["fire"] == every["fire"]
    for systems in (["shape", "ape"], ["rope", "mine", "alibi"], ["skew-cross-pe", "skew"]):
        assert all(looks(systems)[name] == every[name] for name in systems if name in PRESETS)
    assert looks(["SHAPE"])["SHAPE"] == every["shape"]
    _, *variants = looks(["ape", "shape-10", "shape-40", "shape-500"]).values()
    assert len(set(variants)) == 3
    assert len({each.colour for each in variants}) == 1


def test_a_line_is_the_mean_of_its_seeds_with_their_deviation_and_a_dot_for_each():
    [axes] = drawn(Panel([Line("ape", [1, 2, 3], [[1.0, 3.0], [], [5.0]])], "BLEU")).axes
    line = line_named(axes, "ape")
    assert list(line.get_xdata()) == [1, 2, 3]
    assert line.get_ydata()[0] == 2.0
    assert math.isnan(line.get_ydata()[1])
    [bars] = axes.containers
    [[(_, low), (_, high)]] = [each.tolist() for each in bars[2][0].get_segments()]
    assert (low, high) == pytest.approx((2 - math.sqrt(2), 2 + math.sqrt(2)))
    [dots] = [each for each in axes.lines if list(each.get_ydata()) == [1.0, 3.0]]
    assert dots.get_linestyle() == "None"


@pytest.mark.parametrize(
    ("values", "title"),
    [
        ([[1.0], [2.0]], "BLEU (one seed)"),
        ([[1.0, 2.0], []], "BLEU (mean of 2 seeds)"),
        ([[1.0, 2.0], [1.0, 2.0, 3.0]], "BLEU (mean of 2–3 seeds)"),
    ],
)
def test_the_axis_says_how_many_seeds_there_are(values, title):
    [axes] = drawn(Panel([Line("ape", [0, 1], values)], "BLEU")).axes
    assert axes.get_ylabel() == title
    assert not axes.texts  # a single line needs no name


@pytest.mark.parametrize("log", [False, True])
def test_lines_are_named_at_their_ends_without_overlap(log):
    systems = [*PRESETS][:12]
    lines = [Line(name, [1, 2], [[9.0], [20.0 + 0.01 * n]]) for n, name in enumerate(systems)]
    [axes] = drawn(Panel(lines, "BLEU", log=log)).axes
    assert [text.get_text() for text in names(axes)] == systems
    assert_apart(axes)
    boxes = [text.get_window_extent() for text in names(axes)]
    assert min(box.x0 for box in boxes) > axes.get_window_extent().x1
    assert max(box.x1 for box in boxes) < axes.figure.bbox.x1


def test_runs_of_one_system_look_alike_and_are_named_once():
    lines = [Line(name, [1, 2], [[9.0], [y]]) for name, y in (("ape", 6), ("ape", 5), ("shape", 4))]
    [axes] = drawn(Panel(lines, "perplexity", log=True)).axes
    one, other, shape = [line for line in axes.lines if line.get_label() in ("ape", "shape")]
    assert one.get_color() == other.get_color() != shape.get_color()
    assert [text.get_text() for text in names(axes)] == ["ape", "shape"]
    assert axes.get_ylabel() == "perplexity"


def test_small_differences_do_not_fill_the_panel():
    lines = [Line("ape", [0, 1], [[20.0], [20.1]])]
    [axes] = drawn(Panel(lines, "BLEU", min_span=2.0)).axes
    assert axes.get_ylim() == pytest.approx((19.05, 21.05))
    [axes] = drawn(Panel(lines, "perplexity", min_span=4.0, log=True)).axes
    low, high = axes.get_ylim()
    assert high / low == pytest.approx(4.0)
