"""Settings of decoding: the penalties' values, the length limit, what is refused."""

import pytest
from pydantic import ValidationError

from shapeshift.decoding.config import AveragePenalty, DecodingConfig, GnmtPenalty, NoPenalty


def test_penalties_by_hand():
    assert [NoPenalty()(n) for n in (1, 50)] == [1.0, 1.0]
    assert [AveragePenalty()(n) for n in (1, 50)] == [1.0, 50.0]
    gnmt = GnmtPenalty(alpha=0.5)
    assert gnmt(1) == 1.0
    assert gnmt(19) == pytest.approx(2.0)  # sqrt(24 / 6)
    assert gnmt(49) == pytest.approx(3.0)  # sqrt(54 / 6)
    assert GnmtPenalty(alpha=0)(30) == 1.0


@pytest.mark.parametrize(
    "section",
    [
        {"length_penalty": {"name": "gnmt", "alpha": -0.1}},  # would reward short output twice
        {"length_penalty": {"name": "none", "alpha": 0.6}},
        {"max_length_b": float("inf")},
        {"length_penalty": {"name": "gnmt", "alpha": 60}},  # more than float32 holds
        {"max_length_a": 1e9},  # of these lengths there are tables
        {"max_length_b": 1e9},
        {"beam": 1_000_000},
        {"buffer_size": 2**63},
    ],
)
def test_bad_settings_are_refused(section):
    with pytest.raises(ValidationError):
        DecodingConfig.model_validate(section)


def test_length_limit_rounds_down_and_leaves_room_for_the_end():
    config = DecodingConfig(max_length_a=1.5, max_length_b=2)
    assert [config.length_limit(n) for n in (1, 2, 3, 100)] == [3, 5, 6, 152]
    assert DecodingConfig(max_length_a=0, max_length_b=0).length_limit(7) == 1
