import math

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.curves import (
    Curves,
    RunCurve,
    SystemCurves,
    plot,
    read_run,
    wall_clock,
)
from shapeshift.training.log import Log


def write_events(folder, made, values):
    """A file of TensorBoard that was made at a moment and got values of updates at others."""
    folder.mkdir(exist_ok=True)
    path = folder / f"events.out.tfevents.{int(made)}.host"
    with path.open("wb") as file:
        writer = RecordWriter(file)
        writer.write(Event(wall_time=made, file_version="brain.Event:2").SerializeToString())
        for update, moment in values:
            summary = Summary(value=[Summary.Value(tag="valid_loss", simple_value=1.0)])
            event = Event(wall_time=moment, step=update, summary=summary)
            writer.write(event.SerializeToString())
        writer.flush()
    return path


def test_time_counts_from_when_the_first_file_was_made(tmp_path):
    write_events(tmp_path, 1000, [(10, 1004), (20, 1009)])
    assert wall_clock(tmp_path) == {10: 4, 20: 9}


def test_the_time_of_a_stop_and_of_what_was_undone_does_not_count(tmp_path):
    # Stopped after update 35 at 1019, long after, continued from the checkpoint of update 20.
    write_events(tmp_path, 9000, [(30, 9003), (40, 9008)])
    write_events(tmp_path, 1000, [(10, 1004), (20, 1009), (30, 1014), (35, 1019)])
    assert wall_clock(tmp_path) == {10: 4, 20: 9, 30: 12, 40: 17}


def test_a_stretch_that_wrote_nothing_and_a_torn_file_are_no_harm(tmp_path):
    write_events(tmp_path, 2000, [])
    path = write_events(tmp_path, 1000, [(10, 1004), (20, 1009)])
    path.write_bytes(path.read_bytes()[:-3])
    (tmp_path / "events.out.tfevents.3000.host").touch()
    assert wall_clock(tmp_path) == {10: 4}


def test_no_files_have_no_times(tmp_path):
    assert wall_clock(tmp_path / "missing") == {}


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


def test_runs_of_a_system_look_alike_and_its_name_stands_once():
    [axes] = plot(DATA).axes
    one, other, shape = axes.lines
    assert one.get_color() == other.get_color() != shape.get_color()
    assert list(one.get_xdata()) == [100, 200]
    assert list(shape.get_ydata()) == [7, 4]
    assert [text.get_text() for text in axes.texts] == ["APE", "SHAPE"]
    assert axes.get_yscale() == "log"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("updates", "validation perplexity")


def test_many_systems_are_named_once_each_in_a_legend():
    names = [f"system {number}" for number in range(9)]
    runs = (curve((9.0, 6.0)), curve((8.0, 5.0)))
    figure = plot(Curves(tuple(SystemCurves(name, runs) for name in names)))
    [axes] = figure.axes
    assert len(axes.lines) == 18
    assert not axes.texts
    [legend] = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    assert len({(line.get_color(), line.get_linestyle()) for line in legend.get_lines()}) == 9


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
