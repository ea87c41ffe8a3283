import math

from shapeshift.lab.analysis.by_setting import BySetting, Line, plot


def drawn(*lines):
    [axes] = plot(BySetting("k", ("0", "1", "16"), "BLEU", lines)).axes
    return axes


def test_each_system_is_a_line_over_evenly_spaced_settings():
    axes = drawn(Line("a", (1.0, 2.0, 4.0), (0.5, 0.0, 0.1)), Line("b", (3.0, 2.0, 4.0), (0, 0, 0)))
    first, second = (container[0] for container in axes.containers)
    assert list(first.get_ydata()) == [1.0, 2.0, 4.0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1", "16"]
    assert max(abs(x - place) for place, x in enumerate(first.get_xdata())) < 0.1
    assert first.get_xdata()[0] != second.get_xdata()[0]  # equal scores do not hide each other
    assert first.get_color() != second.get_color()


def test_what_was_not_measured_is_a_gap():
    axes = drawn(Line("a", (1.0, math.nan, 4.0), (0.5, math.nan, 0.1)))
    [line] = axes.containers
    assert math.isnan(line[0].get_ydata()[1])
    assert axes.get_ylim()[1] < 10


def test_several_systems_have_a_legend_and_one_has_none():
    line = Line("a", (1.0, 2.0, 3.0), (0.0, 0.0, 0.0))
    one = plot(BySetting("k", ("0", "1", "16"), "BLEU", (line,)))
    two = plot(BySetting("k", ("0", "1", "16"), "BLEU", (line, Line("b", *(line.mean,) * 2))))
    assert [len(figure.legends) for figure in (one, two)] == [0, 1]
