import math

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.curves import (
    Curves,
    RunCurve,
    SystemCurves,
    plot,
    read_run,
)
from shapeshift.training.log import Log


def test_a_log_becomes_a_curve(tmp_path):
    log = Log(tmp_path, 0)
    log.write(10, loss=3.0, nll=2.9)
    log.write(10, valid_loss=math.log(8))
    log.write(20, loss=2.0, nll=1.9)
    log.write(20, valid_loss=math.log(4), valid_bleu=12.5)
    log.close()
    curve = read_run(tmp_path)
    assert curve.updates == (10, 20)
    assert curve.perplexity == pytest.approx((8, 4))
    assert math.isnan(curve.bleu[0])
    assert curve.bleu[1] == 12.5
    first, second = curve.elapsed_s
    assert 0 <= first <= second < 60


def test_the_time_of_a_stop_does_not_count(tmp_path):
    log = Log(tmp_path, 0)
    log.write(10, valid_loss=2.0)
    log.write(20, valid_loss=1.5)  # undone: training goes on from update 10
    log.close()
    log = Log(tmp_path, 10, elapsed_s=3600.0)
    log.write(20, valid_loss=1.0)
    log.close()
    first, second = read_run(tmp_path).elapsed_s
    assert first < 60 <= 3600 <= second < 3660


def test_a_run_without_times_still_has_updates(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"update": 10, "valid_loss": 0.0}\n', encoding="utf-8")
    assert read_run(tmp_path).elapsed_s is None
    assert read_run(tmp_path).perplexity == (1,)


def test_a_run_that_has_not_validated_is_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"update": 10, "loss": 0.0}\n', encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="no validation is logged"):
        read_run(tmp_path)


def curve(perplexity, bleu=(math.nan, math.nan), elapsed_s=(3600.0, 9000.0)):
    return RunCurve((100, 200), elapsed_s, perplexity, bleu)


DATA = Curves(
    (
        SystemCurves("APE", (curve((9.0, 6.0)), curve((8.0, 5.0)))),
        SystemCurves("SHAPE", (curve((7.0, 4.0), (math.nan, 20.0)),)),
    )
)


def figure_names(figure):
    [legend] = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_runs_of_a_system_look_alike_and_its_name_stands_once():
    [axes] = plot(DATA).axes
    one, other, shape = axes.lines
    assert one.get_color() == other.get_color() != shape.get_color()
    assert list(one.get_xdata()) == [100, 200]
    assert list(shape.get_ydata()) == [7, 4]
    assert figure_names(plot(DATA)) == ["APE", "SHAPE"]
    assert axes.get_yscale() == "log"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("updates", "validation perplexity")


def test_time_has_a_unit_that_suits_it():
    [axes] = plot(DATA, against="time").axes
    assert axes.get_xlabel() == "training time (hours)"
    assert list(axes.lines[0].get_xdata()) == [1.0, 2.5]
    short = Curves((SystemCurves("APE", (curve((9.0, 6.0), elapsed_s=(60.0, 150.0)),)),))
    [axes] = plot(short, against="time").axes
    assert axes.get_xlabel() == "training time (minutes)"
    assert list(axes.lines[0].get_xdata()) == [1.0, 2.5]


def test_bleu_is_drawn_where_it_was_measured():
    [axes] = plot(DATA, "bleu").axes
    [shape] = axes.lines
    assert list(shape.get_xdata()) == [200]
    assert axes.get_yscale() == "linear"


def test_a_measure_that_nobody_has_is_refused():
    data = Curves(DATA.systems[:1])
    with pytest.raises(ShapeshiftError, match="no run has validation BLEU"):
        plot(data, "bleu")


def test_times_that_are_not_there_are_refused():
    data = Curves((SystemCurves("APE", (curve((9.0, 6.0), elapsed_s=None),)),))
    with pytest.raises(ShapeshiftError, match="has no times"):
        plot(data, against="time")
