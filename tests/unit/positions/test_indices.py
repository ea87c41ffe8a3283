"""Position numbers: absolute ones, and the offsets that SHAPE draws."""

from __future__ import annotations

import copy

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.model import ModelConfig, Transformer, build
from shapeshift.positions import PRESETS, Absolute, Shifted


def drawn(indices: Absolute, count: int) -> list[int]:
    return indices(count, 1)[:, 0].tolist()


def test_absolute_positions_are_shared_and_can_start_later() -> None:
    assert Absolute()(5, 3).tolist() == [[0, 1, 2]]
    assert Absolute()(5, 3, start=7).tolist() == [[7, 8, 9]]
    assert Absolute()(5, 3).dtype == torch.int64


def test_an_explicit_offset_shifts_all_or_each() -> None:
    for indices in (Absolute(), Shifted(500), Shifted(500).eval()):
        assert indices(2, 3, offset=10).tolist() == [[10, 11, 12]]
        assert indices(2, 3, offset=0).tolist() == [[0, 1, 2]]
        each = indices(2, 2, start=1, offset=torch.tensor([4, 0]))
        assert each.tolist() == [[5, 6], [1, 2]]


@pytest.mark.parametrize("max_offset", [0, 1, 7])
def test_draws_reach_both_ends_and_nothing_else(max_offset: int) -> None:
    assert set(drawn(Shifted(max_offset, seed=3), 500)) == set(range(max_offset + 1))


def test_draws_are_uniform() -> None:
    counts = torch.bincount(torch.tensor(drawn(Shifted(9, seed=1), 10_000)), minlength=10)
    chi_square = ((counts - 1000.0).square() / 1000).sum()
    assert chi_square < 21.67  # 99th percentile with 9 degrees of freedom


def test_tokens_of_a_sequence_keep_their_distance() -> None:
    pos = Shifted(500, seed=0)(64, 20)
    assert pos.shape == (64, 20)
    assert (pos.diff(dim=1) == 1).all()
    assert len(set(pos[:, 0].tolist())) > 40  # sequences draw apart


def test_every_call_draws_anew() -> None:
    indices = Shifted(10_000)
    assert drawn(indices, 8) != drawn(indices, 8)


def test_seed_makes_the_next_draws_reproducible() -> None:
    indices, other = Shifted(500), Shifted(500, seed=99)
    indices.seed(4)
    first = drawn(indices, 20)
    other.seed(4)
    assert drawn(other, 20) == first
    indices.seed(5)
    assert drawn(indices, 20) != first


def test_evaluation_does_not_shift() -> None:
    indices = Shifted(500).eval()
    assert indices(4, 3).tolist() == [[0, 1, 2]]


def test_as_the_authors_released_it() -> None:
    indices = Shifted(3, authors=True, seed=0)
    assert set(drawn(indices, 500)) == {0, 1, 2}
    assert indices.eval()(4, 2).tolist() == [[3, 4]]


def test_drawing_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    drawn(Shifted(500, seed=8), 100)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_global_seed_does_not_reach_the_draws() -> None:
    torch.manual_seed(1)
    first = drawn(Shifted(500, seed=8), 20)
    torch.manual_seed(2)
    assert drawn(Shifted(500, seed=8), 20) == first


def test_a_copy_continues_the_same_draws() -> None:
    indices = Shifted(500)
    drawn(indices, 3)
    twin = copy.deepcopy(indices)
    assert drawn(twin, 20) == drawn(indices, 20)


@pytest.mark.parametrize(
    ("max_offset", "authors", "message"),
    [
        (-1, False, "max_offset must be at least 0, got -1"),
        (0, True, "max_offset with authors=True must be at least 1, got 0"),
    ],
)
def test_nothing_to_draw_from_is_refused(max_offset: int, authors: bool, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        Shifted(max_offset, authors=authors)


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(0)
    config = ModelConfig(size="tiny", dim=8, num_heads=2, ff_dim=8, dropout=0.3)
    return build(config, PRESETS["shape"], 9, 9)


def both_sides(model: Transformer) -> tuple[list[int], list[int]]:
    return drawn(model.source.indices, 20), drawn(model.target.indices, 20)


def test_source_and_target_of_a_model_draw_apart(model: Transformer) -> None:
    source, target = both_sides(model)  # fresh, without a call of seed
    assert source != target
    model.seed(3)
    source, target = both_sides(model)
    assert source != target
    model.seed(3)
    assert both_sides(model) == (source, target)


def test_the_seed_of_offsets_does_not_move_dropout(model: Transformer) -> None:
    ids = torch.randint(4, 9, (6, 12))
    dropped = []
    for seed in (1, 2):
        model.seed(seed)
        torch.manual_seed(0)
        x, pos = model.source(ids)
        dropped.append((x == 0, pos))
    assert torch.equal(dropped[0][0], dropped[1][0])
    assert not torch.equal(dropped[0][1], dropped[1][1])
