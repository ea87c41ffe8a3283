import math

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.lab.analysis.curves import read_run
from shapeshift.training.log import Log


def test_a_log_becomes_a_curve_and_the_time_of_a_stop_does_not_count(tmp_path):
    log = Log(tmp_path, 0)
    log.write(10, loss=3.0, nll=2.9)
    log.write(10, valid_loss=math.log(8))
    log.write(20, valid_loss=1.5)  # undone: training goes on from update 10
    log.close()
    log = Log(tmp_path, 10, elapsed_s=3600.0)
    log.write(20, valid_loss=math.log(4))
    log.close()
    curve = read_run(tmp_path)
    assert curve.updates == (10, 20)
    assert curve.perplexity == pytest.approx((8, 4))
    first, second = curve.elapsed_s
    assert first < 60 <= 3600 <= second < 3660


def test_a_run_without_times_still_has_updates(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"update": 10, "valid_loss": 0.0}\n', encoding="utf-8")
    assert read_run(tmp_path).elapsed_s is None
    assert read_run(tmp_path).perplexity == (1,)


def test_a_run_that_has_not_validated_is_refused(tmp_path):
    (tmp_path / "log.jsonl").write_text('{"update": 10, "loss": 0.0}\n', encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="no validation is logged"):
        read_run(tmp_path)
