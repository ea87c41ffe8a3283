"""Random positions with gaps: what is drawn while training, and what stands still at inference."""

from __future__ import annotations

import copy
from collections import Counter

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Randomized


def test_training_draws_distinct_numbers_in_order_for_each_sequence() -> None:
    pos = Randomized(max_position=50, max_length=50)(200, 20)
    assert pos.shape == (200, 20)
    assert pos.dtype == torch.int64
    assert (pos.diff(dim=1) > 0).all()
    assert pos.min() == 0
    assert pos.max() == 49
    assert len({tuple(row) for row in pos.tolist()}) == 200


def test_every_subset_is_as_likely() -> None:
    torch.manual_seed(1)
    counts = Counter(
        tuple(row) for row in Randomized(max_position=5, max_length=5)(10_000, 2).tolist()
    )
    assert len(counts) == 10
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_square < 21.67  # 99th percentile with 9 degrees of freedom


def test_as_many_tokens_as_numbers_leave_no_choice() -> None:
    assert Randomized(max_position=7, max_length=1)(2, 7).tolist() == [[0, 1, 2, 3, 4, 5, 6]] * 2


def test_inference_spreads_the_longest_sequence_evenly() -> None:
    position_ids = Randomized(max_position=10, max_length=4).eval()
    assert position_ids(3, 4).tolist() == [[0, 2, 5, 7]]
    assert Randomized(max_position=2048, max_length=512).eval()(1, 4).tolist() == [[0, 4, 8, 12]]
    assert Randomized(max_position=9, max_length=9).eval()(1, 9).tolist() == [list(range(9))]


@pytest.mark.parametrize("sample", [False, True])
def test_inference_does_not_depend_on_length_start_or_calls(sample: bool) -> None:
    position_ids = Randomized(max_position=2048, max_length=64, sample_at_inference=sample).eval()
    whole = position_ids(5, 64)
    assert whole.shape == (1, 64)
    assert whole.max() < 2048
    assert (whole.diff(dim=1) > 0).all()
    assert torch.equal(position_ids(1, 9), whole[:, :9])
    assert torch.equal(torch.cat([position_ids(2, 1, start=t) for t in range(64)], dim=1), whole)


def test_sampling_at_inference_is_uneven_and_always_the_same() -> None:
    first = Randomized(max_position=2048, max_length=64, sample_at_inference=True).eval()(1, 64)
    assert not torch.equal(first.diff(dim=1), first.diff(dim=1)[:, :1].expand(1, 63))
    torch.manual_seed(3)
    assert torch.equal(
        Randomized(max_position=2048, max_length=64, sample_at_inference=True).eval()(3, 64), first
    )


def test_an_explicit_offset_shifts_the_numbers_of_inference() -> None:
    position_ids = Randomized(max_position=10, max_length=5)
    for module in (position_ids, copy.deepcopy(position_ids).eval()):
        assert module(2, 3, offset=0).tolist() == [[0, 2, 4]]
        assert module(2, 3, offset=100).tolist() == [[100, 102, 104]]
        each = module(2, 2, start=1, offset=torch.tensor([30, 0]))
        assert each.tolist() == [[32, 34], [2, 4]]


def test_too_long_a_sequence_is_refused_with_the_setting_to_change() -> None:
    position_ids = Randomized(max_position=10, max_length=4)
    with pytest.raises(ShapeshiftError, match=r"max_position=10 .*11 tokens.*larger max_position"):
        position_ids(1, 11)
    with pytest.raises(ShapeshiftError, match=r"max_length=4 .*5 tokens.*larger max_length"):
        position_ids.eval()(1, 1, start=4)


@pytest.mark.parametrize(
    ("upper", "length", "message"),
    [
        (10, 11, "max_length must lie between 1 and max_position=10, got 11"),
        (10, 0, "max_length must be at least 1, got 0"),
        (0, 1, "max_position must be at least 1, got 0"),
        (10.5, 5, "max_position must be a whole number, got 10.5"),
    ],
)
def test_numbers_that_do_not_suffice_are_refused(upper: int, length: int, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        Randomized(max_position=upper, max_length=length)
