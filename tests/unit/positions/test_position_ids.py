"""Position numbers: absolute ones, and the offsets that SHAPE draws."""

from __future__ import annotations

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Absolute, Randomized, Shifted


def drawn(position_ids: Absolute, count: int) -> list[int]:
    return position_ids(count, 1)[:, 0].tolist()


def test_absolute_positions_are_shared_and_can_start_later() -> None:
    assert Absolute()(5, 3).tolist() == [[0, 1, 2]]
    assert Absolute()(5, 3, start=7).tolist() == [[7, 8, 9]]
    assert Absolute()(5, 3).dtype == torch.int64


def test_an_explicit_offset_shifts_all_or_each() -> None:
    for position_ids in (Absolute(), Shifted(max_offset=500), Shifted(max_offset=500).eval()):
        assert position_ids(2, 3, offset=10).tolist() == [[10, 11, 12]]
        assert position_ids(2, 3, offset=0).tolist() == [[0, 1, 2]]
        each = position_ids(2, 2, start=1, offset=torch.tensor([4, 0]))
        assert each.tolist() == [[5, 6], [1, 2]]


@pytest.mark.parametrize("max_offset", [0, 1, 7])
def test_draws_reach_both_ends_and_nothing_else(max_offset: int) -> None:
    torch.manual_seed(3)
    assert set(drawn(Shifted(max_offset=max_offset), 500)) == set(range(max_offset + 1))


def test_tokens_of_a_sequence_keep_their_distance() -> None:
    pos = Shifted(max_offset=500)(64, 20)
    assert pos.shape == (64, 20)
    assert (pos.diff(dim=1) == 1).all()
    assert len(set(pos[:, 0].tolist())) > 40  # sequences draw apart


def test_as_the_authors_released_it() -> None:
    position_ids = Shifted(max_offset=3, authors=True)
    assert set(drawn(position_ids, 500)) == {0, 1, 2}
    assert position_ids.eval()(4, 2).tolist() == [[3, 4]]


@pytest.mark.parametrize(
    ("max_offset", "authors", "message"),
    [
        (-1, False, "max_offset must be at least 0, got -1"),
        (0, True, "max_offset with authors=True must be at least 1, got 0"),
    ],
)
def test_nothing_to_draw_from_is_refused(max_offset: int, authors: bool, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        Shifted(max_offset=max_offset, authors=authors)


MODULES = [
    Absolute(),
    Shifted(max_offset=9),
    Shifted(max_offset=9).eval(),
    Randomized(max_position=9, max_length=9),
]


@pytest.mark.parametrize("position_ids", MODULES, ids=repr)
@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (-3, "offset must be at least 0, got -3"),
        (2.5, "offset must be a whole number, got 2.5"),
        (True, "offset must be a whole number, got True"),
        ([1, 2], "offset must be a whole number"),
        (torch.tensor([0, -1]), "offset must be at least 0, got -1"),
        (torch.tensor([0.0, 1.0]), r"offset must be an integer.* \(2,\).* got float32 \(2,\)"),
        (torch.tensor([True, False]), r"got bool \(2,\)"),
        (torch.tensor([1, 2, 3]), r"got int64 \(3,\)"),
        (torch.tensor([[1], [2]]), r"got int64 \(2, 1\)"),
    ],
)
def test_an_offset_that_fits_no_batch_is_refused(
    position_ids: Absolute, offset: object, message: str
) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        position_ids(2, 3, offset=offset)


@pytest.mark.parametrize("position_ids", MODULES, ids=repr)
def test_an_offset_may_be_one_number_of_any_integer_kind(position_ids: Absolute) -> None:
    expected = position_ids(2, 3, offset=4)
    for offset in (torch.tensor(4), torch.tensor([4]), torch.tensor([4, 4], dtype=torch.int32)):
        assert torch.equal(*torch.broadcast_tensors(position_ids(2, 3, offset=offset), expected))
    # A batch of 1 stays one.
    assert position_ids(1, 3, offset=torch.tensor([4])).shape == (1, 3)


def test_an_offset_that_is_not_on_the_cpu_is_checked_without_its_values() -> None:
    elsewhere = torch.device("meta")
    offset = torch.zeros(2, dtype=torch.int64, device=elsewhere)
    assert Shifted(max_offset=9)(2, 3, offset=offset, device=elsewhere).shape == (2, 3)
    with pytest.raises(ShapeshiftError, match=r"got int64 \(2,\)"):
        Shifted(max_offset=9)(5, 3, offset=offset, device=elsewhere)


@pytest.mark.parametrize("position_ids", MODULES, ids=repr)
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((2, 3, -1), "start must be at least 0, got -1"),
        ((2, 3, 1.0), "start must be a whole number, got 1.0"),
        ((2, 3.0, 0), "length must be a whole number, got 3.0"),
        ((2, -3, 0), "length must be at least 0, got -3"),
        ((-2, 3, 0), "num_sequences must be at least 0, got -2"),
    ],
)
def test_sizes_that_no_batch_has_are_refused(
    position_ids: Absolute, sizes: tuple[int, int, int], message: str
) -> None:
    num_sequences, length, start = sizes
    with pytest.raises(ShapeshiftError, match=message):
        position_ids(num_sequences, length, start=start)
