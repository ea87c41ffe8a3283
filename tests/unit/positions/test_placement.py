"""From a scheme to modules in the layers of a stack."""

from __future__ import annotations

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import (
    Chain,
    Part,
    PositionIds,
    Representation,
    Scheme,
    Shaw,
    Shifted,
    Sinusoidal,
    Stack,
    build_position_ids,
    check,
    place,
)

ENCODER = Stack("encoder", dim=8, num_heads=2, num_layers=3, causal=False)
DECODER = Stack("decoder", dim=8, num_heads=2, num_layers=3, causal=True)


def scheme(*parts: Part) -> Scheme:
    return Scheme(parts=parts)


def is_none(module: Representation) -> bool:
    return type(module) is Representation


def test_a_part_stands_at_its_kinds_first_place_by_default() -> None:
    placed = place(scheme(Part("sinusoidal"), Part("shaw")), ENCODER)
    assert isinstance(placed.embedding, Sinusoidal)
    assert all(isinstance(layer, Shaw) for layer in placed.self_attention)
    assert all(is_none(layer) for layer in placed.cross_attention)


def test_layers_have_their_own_tables_unless_they_share() -> None:
    own = place(scheme(Part("shaw")), ENCODER).self_attention
    assert len({id(layer.keys) for layer in own}) == 3
    assert not torch.equal(own[0].keys, own[1].keys)
    shared = place(scheme(Part("shaw", share_layers=True)), ENCODER).self_attention
    assert shared[0] is shared[1] is shared[2]


def test_first_layers_and_single_stacks() -> None:
    parts = scheme(Part("shaw", layers=2, stacks="decoder"))
    assert [is_none(m) for m in place(parts, DECODER).self_attention] == [False, False, True]
    assert all(is_none(m) for m in place(parts, ENCODER).self_attention)
    many = place(scheme(Part("shaw", layers=9)), ENCODER)
    assert len(many.self_attention) == 3


def test_only_the_decoders_self_attention_is_causal() -> None:
    parts = scheme(Part("shaw", options={"max_distance": 4}))
    assert place(parts, DECODER).self_attention[0].keys.shape == (1, 5, 4)
    assert place(parts, ENCODER).self_attention[0].keys.shape == (1, 9, 4)


def test_two_parts_at_one_place_are_chained_in_order() -> None:
    (first, *_) = place(scheme(Part("sinusoidal", "self"), Part("shaw")), ENCODER).self_attention
    assert isinstance(first, Chain)
    assert [type(part) for part in first.parts] == [Sinusoidal, Shaw]


def test_position_ids_are_fresh_for_each_side() -> None:
    shifted = Scheme(PositionIds("shifted", {"max_offset": 7}))
    first, second = build_position_ids(shifted), build_position_ids(shifted)
    assert isinstance(first, Shifted)
    assert first is not second
    assert first.max_offset == 7


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (scheme(Part("sinusodal")), r"unknown kind 'sinusodal'; did you mean 'sinusoidal'\?"),
        (scheme(Part("shaw", "sefl")), r"unknown place 'sefl'; did you mean 'self'\?"),
        (scheme(Part("shaw", "cross")), "'shaw' has no meaning at 'cross'; use it at self"),
        (scheme(Part("shaw", stacks="encoders")), r"did you mean 'encoder'\?"),
        (scheme(Part("sinusoidal", "cross", stacks="encoder")), "no cross-attention"),
        (scheme(Part("sinusoidal", layers=2)), "layers=2 has no meaning .*'embedding'"),
        (scheme(Part("shaw", layers=0)), "layers=0 has no meaning"),
        (scheme(Part("learned", options={"add_to": "v"})), "add_to='v' .*'embedding'.*; leave it"),
        (scheme(Part("sinusoidal", "embedding", options={"add_to": "qk"})), "at self or cross"),
        (scheme(Part("shaw", options={"distance": 2})), r"did you mean 'max_distance'\?"),
        (Scheme(PositionIds("shift")), r"unknown position ids 'shift'; did you mean 'shifted'\?"),
        (Scheme(PositionIds("shifted", {"max_ofset": 2})), r"did you mean 'max_offset'\?"),
        # The model seeds the draws itself, so a seed here would have no effect.
        (Scheme(PositionIds("shifted", {"seed": 2})), "has no option 'seed'"),
    ],
)
def test_cells_that_do_not_exist(wrong: Scheme, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message) as raised:
        check(wrong)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "part",
    [
        Part("alibi", share_layers=True),
        Part("rotary", share_layers=False),
        Part("learned", "embedding", share_layers=True),
        Part("shaw", layers=1, share_layers=True),
    ],
)
def test_sharing_what_cannot_be_shared_is_refused(part: Part) -> None:
    with pytest.raises(ShapeshiftError, match=r"share_layers=.* has no meaning .*; leave it out"):
        place(scheme(part), ENCODER)


def test_every_kind_with_weights_can_share_them() -> None:
    layers = place(scheme(Part("skew", share_layers=True)), ENCODER).self_attention
    assert layers[0] is layers[1] is layers[2]
