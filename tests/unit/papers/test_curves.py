import math

import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.papers.curves import read_validations
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
    first, second = read_validations(tmp_path)
    assert (first["update"], second["update"]) == (10, 20)
    assert (first["perplexity"], second["perplexity"]) == pytest.approx((8, 4))
    assert first["elapsed_s"] < 60 <= 3600 <= second["elapsed_s"] < 3660


def test_a_run_without_times_still_has_updates_and_one_without_validations_is_refused(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"update": 10, "valid_loss": 0.0}\n', encoding="utf-8")
    assert [line["update"] for line in read_validations(tmp_path)] == [10]
    log.write_text('{"update": 10, "loss": 0.0}\n', encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="no validation is logged"):
        read_validations(tmp_path)
