"""What the log keeps, over restarts too."""

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from shapeshift._system.errors import ShapeshiftError
from shapeshift.training.log import Log, read_log


def write(folder, done, updates):
    log = Log(folder, done)
    for update in updates:
        log.write(update, loss=update / 4)
        last = read_log(folder / "log.jsonl")[-1]  # it is there as soon as it is written
        assert (last["update"], last["loss"]) == (update, update / 4)
    log.close()


def test_lines_and_curves_that_a_restart_undid_are_taken_out(tmp_path, monkeypatch):
    # Files of one process and second are read in the order of this number, as text.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(10))
    write(tmp_path, 0, [1, 2, 3, 4])
    write(tmp_path, 2, [3, 4, 5])
    lines = read_log(tmp_path / "log.jsonl")
    assert all(line.pop("elapsed_s") >= 0 for line in lines)
    assert lines == [{"update": u, "loss": u / 4} for u in (1, 2, 3, 4, 5)]
    assert [x.name for x in tmp_path.iterdir() if x.name.startswith(".")] == []
    curves = EventAccumulator(str(tmp_path / "tensorboard"))
    curves.Reload()
    points = [(x.step, x.value) for x in curves.Scalars("loss")]
    assert points == [(u, u / 4) for u in (1, 2, 3, 4, 5)]


def test_a_torn_last_line_does_not_count(tmp_path):
    path = tmp_path / "log.jsonl"
    assert read_log(path) == []
    path.write_bytes(b'{"update": 1, "loss": 3.0}\n{"update": 2, "lo\xc3')
    assert read_log(path) == [{"update": 1, "loss": 3.0}]
    write(tmp_path, 1, [2])
    assert [line["update"] for line in read_log(path)] == [1, 2]


@pytest.mark.parametrize("line", ["not json", '{"loss": 1}', "[1]", '{"update": null}', ""])
def test_a_line_that_is_none_is_named(tmp_path, line):
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"update": 1}) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(ShapeshiftError, match=r"log\.jsonl:2: not a line of a log") as caught:
        Log(tmp_path, 1)
    assert (caught.value.path, caught.value.line) == (path, 2)
