"""Position numbers: counted, shifted (SHAPE), randomized or given by tokens; the drop-in module."""

import copy
from collections import Counter

import pytest
import torch
from torch import Tensor

from shapeshift import SHAPE
from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import (
    Abacus,
    Absolute,
    Coupled,
    Packed,
    Part,
    PositionIds,
    Randomized,
    Scheme,
    Shifted,
    Sinusoidal,
    Stack,
    place,
)


def test_absolute_positions_are_shared_and_can_start_later():
    assert Absolute()(5, 3).tolist() == [[0, 1, 2]]
    assert Absolute()(5, 3, start=7).tolist() == [[7, 8, 9]]
    assert Absolute()(5, 3).dtype == torch.int64


def test_an_explicit_offset_shifts_all_or_each():
    for position_ids in (Absolute(), Shifted(max_offset=500), Shifted(max_offset=500).eval()):
        assert position_ids(2, 3, offset=10).tolist() == [[10, 11, 12]]
        assert position_ids(2, 3, offset=0).tolist() == [[0, 1, 2]]
        each = position_ids(2, 2, start=1, offset=torch.tensor([4, 0]))
        assert each.tolist() == [[5, 6], [1, 2]]
        for offset in (torch.tensor(10), torch.tensor([10], dtype=torch.int32)):
            assert position_ids(2, 3, offset=offset).tolist() == [[10, 11, 12]]


@pytest.mark.parametrize(
    ("options", "expected", "at_inference"),
    [
        ({"max_offset": 0}, {0}, 0),
        ({"max_offset": 7}, set(range(8)), 0),
        ({"max_offset": 3, "authors": True}, {0, 1, 2}, 3),
    ],
)
def test_draws_reach_both_ends_and_nothing_else(options, expected, at_inference):
    torch.manual_seed(3)
    position_ids = Shifted(**options)
    pos = position_ids(500, 3)
    assert set(pos[:, 0].tolist()) == expected
    assert (pos.diff(dim=1) == 1).all()
    assert position_ids.eval()(4, 2).tolist() == [[at_inference, at_inference + 1]]


MODULES = [Absolute(), Shifted(max_offset=9), Randomized(max_position=9, max_length=9)]


@pytest.mark.parametrize("position_ids", MODULES, ids=repr)
def test_an_offset_or_size_that_fits_no_batch_is_refused(position_ids):
    refused = {
        "offset must be at least 0, got -3": {"offset": -3},
        "offset must be a whole number, got True": {"offset": True},
        "offset must be at least 0, got -1": {"offset": torch.tensor([0, -1])},
        r"integer.* \(2,\).* got float32 \(2,\)": {"offset": torch.tensor([0.0, 1.0])},
        r"got int64 \(3,\)": {"offset": torch.tensor([1, 2, 3])},
        "start must be a whole number, got 1.0": {"start": 1.0},
        r"start must be a whole number, got tensor\(True\)": {"start": torch.tensor(True)},
    }
    for message, options in refused.items():
        with pytest.raises(ShapeshiftError, match=message):
            position_ids(2, 3, **options)


def test_an_offset_that_is_not_on_the_cpu_is_checked_without_its_values():
    meta = torch.device("meta")
    offset = torch.zeros(2, dtype=torch.int64, device=meta)
    assert Shifted(max_offset=9)(2, 3, offset=offset, device=meta).shape == (2, 3)
    with pytest.raises(ShapeshiftError, match=r"got int64 \(2,\)"):
        Shifted(max_offset=9)(5, 3, offset=offset, device=meta)


def test_randomized_draws_distinct_numbers_in_order_for_each_sequence():
    pos = Randomized(max_position=50, max_length=50)(200, 20)
    assert (pos.shape, pos.dtype) == ((200, 20), torch.int64)
    assert (pos.diff(dim=1) > 0).all()
    assert (pos.min(), pos.max()) == (0, 49)
    assert len({tuple(row) for row in pos.tolist()}) == 200
    assert Randomized(max_position=4, max_length=1)(2, 4).tolist() == [[0, 1, 2, 3]] * 2


def test_every_subset_is_as_likely():
    torch.manual_seed(1)
    rows = Randomized(max_position=5, max_length=5)(10_000, 2).tolist()
    counts = Counter(map(tuple, rows))
    assert len(counts) == 10
    chi_square = sum((count - 1000) ** 2 / 1000 for count in counts.values())
    assert chi_square < 21.67  # 99th percentile with 9 degrees of freedom


def test_inference_does_not_depend_on_length_start_or_calls():
    position_ids = Randomized(max_position=2048, max_length=64).eval()
    whole = position_ids(5, 64)
    assert whole.shape == (1, 64)
    assert whole.max() < 2048
    assert (whole.diff(dim=1) > 0).all()
    assert torch.equal(position_ids(1, 9), whole[:, :9])
    assert torch.equal(torch.cat([position_ids(2, 1, start=t) for t in range(64)], dim=1), whole)


def test_an_explicit_offset_shifts_the_numbers_of_inference():
    position_ids = Randomized(max_position=10, max_length=5)
    for module in (position_ids, copy.deepcopy(position_ids).eval()):
        assert module(2, 3, offset=0).tolist() == [[0, 2, 4]]
        each = module(2, 2, start=1, offset=torch.tensor([30, 0]))
        assert each.tolist() == [[32, 34], [2, 4]]


def test_too_long_a_sequence_is_refused_with_the_setting_to_change():
    position_ids = Randomized(max_position=10, max_length=4)
    with pytest.raises(ShapeshiftError, match=r"max_position=10 .*11 tokens.*larger max_position"):
        position_ids(1, 11)
    with pytest.raises(ShapeshiftError, match=r"max_length=4 .*5 tokens.*larger max_length"):
        position_ids.eval()(1, 1, start=4)


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (Shifted, {"max_offset": -1}, "max_offset must be at least 0, got -1"),
        (Shifted, {"max_offset": 0, "authors": True}, "with authors=True must be at least 1, got"),
        (Randomized, {"max_position": 10, "max_length": 11}, "1 and max_position=10, got 11"),
        (Randomized, {"max_position": 0}, "max_position must be at least 1, got 0"),
        (SHAPE, {"dim": 8, "max_offset": 2.5}, "max_offset: expected a whole number, got 2.5"),
    ],
)
def test_numbers_that_do_not_suffice_are_refused(build, options, message):
    with pytest.raises(ShapeshiftError, match=message):
        build(**options)


def sines(x: Tensor, first: int = 0) -> Tensor:
    pos = torch.arange(first, first + x.shape[1])[None]
    return x + Sinusoidal(dim=x.shape[2]).encode(pos, x)


def test_ids_begin_again_after_each_separator():
    tokens = torch.tensor([[5, 5, 9, 5, 9, 9, 5, 5], [9, 5, 5, 5, 5, 5, 5, 9]])
    pos = Packed(separator=9)(2, 8, tokens=tokens)
    assert pos.tolist() == [[0, 1, 2, 0, 1, 0, 0, 1], [0, 0, 1, 2, 3, 4, 5, 6]]
    later = Packed(separator=9)(2, 3, start=5, offset=torch.tensor([10, 0]), tokens=tokens)
    assert later.tolist() == [[10, 10, 11], [4, 5, 6]]


# What `Abacus` of the released code (github.com/mcleish7/arithmetic) gives for digits 5 to 14.
TOKENS = [
    [5, 7, 9, 2, 6, 6, 0, 0, 8, 8, 1],
    [1, 2, 5, 2, 7, 7, 7, 7, 2, 3, 14],
    [14, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5],
]
PLACES = [
    [1, 2, 3, 0, 1, 2, 0, 0, 1, 2, 0],
    [0, 0, 1, 0, 1, 2, 3, 4, 0, 0, 1],
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
]


def test_abacus_is_that_of_the_authors():
    tokens, places = torch.tensor(TOKENS), torch.tensor(PLACES)
    abacus = Abacus(digits=range(5, 15), max_offset=3)
    assert torch.equal(abacus.eval()(3, 11, tokens=tokens), places)
    k = torch.tensor([4, 0, 2])
    moved = torch.where(places > 0, places + k[:, None], 0)
    assert torch.equal(abacus(3, 11, tokens=tokens, offset=k), moved)
    torch.manual_seed(2)
    pos = abacus.train()(300, 11, tokens=tokens[2:].expand(300, -1))
    drawn = pos - places[2]
    assert (drawn == drawn[:, :1]).all()
    assert {*drawn[:, 0].tolist()} == {0, 1, 2, 3}


PLUS, EQUALS = 10, 11


def addition(tokens: Tensor) -> Tensor:
    """Ids of `653+049=2070`, whose answer begins with its lowest digit."""
    index = torch.arange(1, tokens.shape[1] + 1)
    ends = index.where((tokens == PLUS) | (tokens == EQUALS), 0).cummax(dim=1).values
    places = index - torch.cat((torch.zeros_like(ends[:, :1]), ends[:, :-1]), dim=1)
    length = places.where(tokens == EQUALS, 0).cummax(dim=1).values  # of a number, and its sign
    in_answer = (length > 0) & (tokens != EQUALS)
    return torch.where(in_answer, length + 1 - places, places + 1)


def test_position_coupling_is_that_of_the_paper():
    """Cho et al. 2024, figure 1, with the ids from 1."""
    tokens = torch.tensor([[6, 5, 3, PLUS, 0, 4, 9, EQUALS, 2, 0, 7, 0]])
    coupled = Coupled(function=addition, max_offset=5)
    ids = torch.tensor([[2, 3, 4, 5, 2, 3, 4, 5, 4, 3, 2, 1]])
    assert torch.equal(coupled.eval()(1, 12, tokens=tokens), ids)
    assert torch.equal(coupled(1, 4, start=8, offset=7, tokens=tokens), ids[:, 8:] + 7)
    torch.manual_seed(2)
    drawn = coupled.train()(200, 12, tokens=tokens.expand(200, -1)) - ids
    assert (drawn == drawn[:, :1]).all()
    assert {*drawn[:, 0].tolist()} == {*range(6)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Packed(separator=-1), "separator must be at least 0, got -1"),
        (lambda: Abacus(digits=[]), r"digits must be a list of the token ids .*, got \[\]"),
        (lambda: Abacus(digits="0123"), "digits must be a list of the token ids"),
        (lambda: Abacus(digits=[1, "2"]), "a token id in digits must be a whole number, got '2'"),
        (lambda: Coupled(function=3), "function must be a function of token ids, got 3"),
        (
            lambda: Coupled(function="math:sqrt")(2, 3, tokens=torch.ones(2, 3).long()),
            r"function of position ids, sqrt, fails for token ids \(2, 3\): .*take a tensor",
        ),
        (lambda: Coupled(function="math:nothing"), "no function of position ids 'math:nothing'"),
        (
            lambda: Coupled(function=lambda x: x[:, :1])(2, 3, tokens=torch.ones(2, 3).long()),
            r"must return integers \(2, 3\), one for each token, got int64 \(2, 1\)",
        ),
        (lambda: Packed(separator=1)(2, 3), r"tokens must be integers \(2, 3\).*got NoneType"),
        (
            lambda: Packed(separator=1)(2, 3, start=4, tokens=torch.ones(2, 3).long()),
            r"must be integers \(2, 7\), those before start included, got int64 \(2, 3\)",
        ),
        (
            lambda: place(
                Scheme(
                    PositionIds("abacus", {"digits": [5]}),
                    (Part("learned", options={"num_positions": 90}),),
                ),
                Stack("decoder", 8, 2, 1),
            ),
            "position ids go up to 99, but Learned takes positions up to 89; use a smaller max_off",
        ),
    ],
)
def test_ids_of_tokens_that_do_not_exist_are_refused(make, message):
    with pytest.raises(ShapeshiftError, match=message):
        make()


def test_the_drop_in_module_adds_sines_and_moves_them_by_offset_and_start():
    module, x = SHAPE(dim=8).eval(), torch.randn(2, 5, 8)
    assert torch.equal(module(x), sines(x))
    assert torch.equal(module(x, offset=300), sines(x, 300))
    assert torch.equal(module(x[:, 3:], start=3), module(x)[:, 3:])
    each = module(x, offset=torch.tensor([0, 41]), start=2)
    assert torch.equal(each, torch.cat([sines(x[:1], 2), sines(x[1:], 43)]))
    assert torch.equal(SHAPE(dim=8)(x, offset=12), sines(x, 12))  # given offsets win while training


def test_the_drop_in_module_shifts_each_sequence_within_the_range():
    x = torch.zeros(200, 4, 8)
    choices = torch.stack([sines(x[0:1], k)[0] for k in range(4)])  # (4, T, D)
    matches = (SHAPE(dim=8, max_offset=3)(x)[:, None] == choices).flatten(2).all(-1)  # (200, 4)
    assert (matches.sum(1) == 1).all()
    assert matches.any(0).all()


@pytest.mark.parametrize(
    ("x", "got"),
    [(torch.ones(2, 5).long(), r"int64 \(2, 5\)"), (torch.ones(2, 5, 1), r"float32 \(2, 5, 1\)")],
)
def test_what_is_no_embedding_is_refused(x, got):
    with pytest.raises(ShapeshiftError, match=rf"floating point of shape \(B, T, 8\), got {got}"):
        SHAPE(dim=8)(x)
