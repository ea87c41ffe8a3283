import pytest

from shapeshift.errors import ShapeshiftError
from shapeshift.papers.curves import read_validations


def test_a_run_without_times_still_has_updates_and_one_without_validations_is_refused(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"update": 10, "valid_loss": 0.0}\n', encoding="utf-8")
    assert [line["update"] for line in read_validations(tmp_path)] == [10]
    log.write_text('{"update": 10, "loss": 0.0}\n', encoding="utf-8")
    with pytest.raises(ShapeshiftError, match="no validation is logged"):
        read_validations(tmp_path)
