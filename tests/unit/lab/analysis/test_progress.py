import math

from shapeshift.lab.analysis.progress import Panel, Progress, plot


def drawn(*panels):
    return plot(Progress(("ape", "shape-10"), (100, 200), panels))


def test_a_system_is_a_line_with_one_look_in_every_panel():
    figure = drawn(
        Panel("BLEU", ((1.0, 2.0), (3.0, 4.0))),
        Panel("drop", ((5.0, 6.0), (7.0, 8.0))),
        Panel("similarity", ((0.5, 0.6), (0.7, math.nan))),
    )
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == ["BLEU", "drop", "similarity"]
    for axes in shown:
        assert [list(line.get_xdata()) for line in axes.lines] == [[100, 200]] * 2
        assert axes.get_xlim()[0] == 0
    assert [list(line.get_ydata()) for line in shown[1].lines] == [[5.0, 6.0], [7.0, 8.0]]
    assert math.isnan(shown[2].lines[1].get_ydata()[1])
    looks = [[(line.get_color(), line.get_marker()) for line in axes.lines] for axes in shown]
    assert looks[0] == looks[1] == looks[2]
    assert len(set(looks[0])) == 2


def test_one_legend_names_the_systems():
    [legend] = drawn(Panel("BLEU", ((1.0, 2.0), (3.0, 4.0)))).legends
    assert [text.get_text() for text in legend.get_texts()] == ["ape", "shape-10"]
