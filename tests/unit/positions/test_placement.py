"""From names and schemes to modules in the layers of a stack."""

import numpy as np
import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import parse_config
from shapeshift.interop.torch_nn import MultiheadAttention
from shapeshift.model import ModelConfig, build
from shapeshift.positions import (
    KINDS,
    SCHEMES,
    Chain,
    Part,
    PositionIds,
    Representation,
    Rotary,
    Scheme,
    Shaw,
    Sinusoidal,
    Skew,
    Stack,
    XPos,
    build_position_ids,
    check,
    get,
    place,
)

ENCODER = Stack("encoder", dim=8, num_heads=2, num_layers=3)
DECODER = Stack("decoder", dim=8, num_heads=2, num_layers=3)


def scheme(*parts: Part) -> Scheme:
    return Scheme(parts=parts)


def is_none(module: Representation) -> bool:
    return type(module) is Representation


def test_a_part_stands_at_its_kinds_first_place_by_default():
    placed = place(scheme(Part("sinusoidal"), Part("shaw")), ENCODER)
    assert isinstance(placed.embedding, Sinusoidal)
    assert all(isinstance(layer, Shaw) for layer in placed.self_attention)
    assert all(is_none(layer) for layer in placed.cross_attention)


def test_layers_have_their_own_tables_unless_they_share():
    own = place(scheme(Part("shaw")), ENCODER).self_attention
    assert len({id(layer.keys) for layer in own}) == 3
    assert not torch.equal(own[0].keys, own[1].keys)
    shared = place(scheme(Part("shaw", share_layers=True)), ENCODER).self_attention
    assert shared[0] is shared[1] is shared[2]


def test_first_layers_and_single_stacks():
    parts = scheme(Part("shaw", layers=2, stacks="decoder"))
    assert [is_none(m) for m in place(parts, DECODER).self_attention] == [False, False, True]
    assert all(is_none(m) for m in place(parts, ENCODER).self_attention)


@pytest.mark.parametrize(
    ("layers", "stored"),
    [
        (np.int64(2), 2), ([np.int64(0), 2], [0, 2]), ((np.int32(1),), (1,)),
        ({"except": {"every": np.int64(2)}}, {"except": {"every": 2}}),
    ],
)  # fmt: skip
def test_layers_are_integers_of_any_type(layers, stored):
    part = Part("shaw", layers=layers)
    assert repr(part.layers) == repr(stored)
    assert len(place(scheme(part), ENCODER).self_attention) == 3


EVERY_SECOND = {"every": 2, "offset": 1}


@pytest.mark.parametrize(
    ("layers", "chosen", "words"),
    [
        (2, [0, 1], "first 2 layers"),
        ([4, 0], [0, 4], "layers 4, 0"),
        ((3,), [3], "layer 3"),
        ({"every": 3}, [0, 3], "every 3 layers from layer 0"),
        (EVERY_SECOND, [1, 3], "every 2 layers from layer 1"),
        ({"except": EVERY_SECOND}, [0, 2, 4], "all layers except every 2 layers from layer 1"),
        ({"except": [3, 1]}, [0, 2, 4], "all layers except layers 3, 1"),
        ({"except": 1}, [1, 2, 3, 4], "all layers except first layer"),
    ],
)
def test_patterns_of_layers(layers, chosen, words):
    part = Part("t5", layers=layers)
    assert f"({words})" in str(part)
    for name in ("encoder", "decoder"):
        placed = place(scheme(part), Stack(name, 8, 2, num_layers=5)).self_attention
        assert [n for n, module in enumerate(placed) if not is_none(module)] == chosen
        assert len({id(placed[n]) for n in chosen}) == 1, "T5 shares its layers"


def test_layers_of_cross_attention_are_the_decoders():
    model = ModelConfig(size="tiny", encoder_layers=1, decoder_layers=3)
    built = build(model, scheme(Part("rotary", "cross", layers=[2])), 9, 9)
    acts = [layer.cross_attention.position.acts("rotate") for layer in built.decoder]
    assert acts == [False, False, True]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([0, 3], r"no layer 3 in the encoder, whose layers are 0 to 2; .*layers=\[0, 3\], or"),
        ({"except": [7]}, r"no layer 7 in the encoder"),
        ([2, 0, 1], r"selects all of the 3 layers of the encoder; leave layers out, .*stacks"),
        ({"except": {"every": 4, "offset": 3}}, r"selects all of the 3 layers of the encoder"),
        ({"every": 4, "offset": 3}, r"selects none of the 3 layers .* \(encoder_layers\)"),
        ({"except": 3}, "selects none of the 3 layers"),
        (4, r"layers=4, but the encoder has 3; give a number up to 3, or"),
        ({"except": 9}, r"layers=9, but the encoder has 3"),
    ],
)
def test_patterns_that_select_too_much_or_nothing(layers, message):
    with pytest.raises(ShapeshiftError, match=message):
        place(scheme(Part("rotary", layers=layers)), ENCODER)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (scheme(Part("shaw", "sefl")), r"unknown place 'sefl'; did you mean 'self'\?"),
        (scheme(Part("shaw", "cross")), "'shaw' has no meaning at 'cross'; use it at self"),
        (scheme(Part("sinusoidal", "cross", stacks="encoder")), "no cross-attention"),
        (scheme(Part("sinusoidal", layers=2)), "layers has no meaning for sinusoidal .*; leave"),
        (scheme(Part("learned", options={"add_to": "v"})), "add_to has no meaning"),
        (scheme(Part("shaw", options={"distance": 2})), r"did you mean 'max_distance'\?"),
        (Scheme(PositionIds("shift")), r"unknown position ids 'shift'; did you mean 'shifted'\?"),
        (Scheme(PositionIds("shifted", {"max_ofset": 2})), r"did you mean 'max_offset'\?"),
    ],
)
def test_cells_that_do_not_exist(wrong, message):
    with pytest.raises(ShapeshiftError, match=message):
        check(wrong)


@pytest.mark.parametrize(
    "part",
    [
        Part("alibi", share_layers=True),
        Part("rotary", share_layers=False),
        Part("learned", "embedding", share_layers=True),
        Part("shaw", layers=1, share_layers=True),
        Part("shaw", layers=[2], share_layers=True),
    ],
)
def test_sharing_what_cannot_be_shared_is_refused(part):
    with pytest.raises(ShapeshiftError, match=r"share_layers has no meaning .*; leave it out"):
        place(scheme(part), ENCODER)


def test_parts_that_share_layers_by_default_and_parts_that_do_not_stand_side_by_side():
    parts = Scheme(parts=(Part("t5", layers=2), Part("skew")))
    first, second, third = place(parts, ENCODER).self_attention
    assert place(parts, DECODER).self_attention[0].parts[0] is not first.parts[0]
    assert isinstance(first, Chain)
    assert first.parts[0] is second.parts[0]
    assert first.parts[1] is not second.parts[1]
    assert isinstance(third, Skew)


def test_xpos_is_refused_where_keys_stand_on_the_right_and_its_scheme_is_rotary_there():
    message = r"position: 'xpos' .*encoder.*\(stacks: decoder\), or another kind.*'rotary'"
    for stacks in ("both", "encoder"):
        with pytest.raises(ShapeshiftError, match=message):
            parse_config({"position": {"parts": [{"kind": "xpos", "stacks": stacks}]}})
    assert isinstance(place(SCHEMES["xpos"], ENCODER).self_attention[0], Rotary)
    assert isinstance(place(SCHEMES["xpos"], DECODER).self_attention[0], XPos)


def test_a_scheme_brings_its_options_and_others_replace_them():
    rope = get("rope", head_dim=8, base=500.0)
    assert isinstance(rope, Rotary)
    assert rope.base == 500.0
    rpe = get("rpe", num_heads=2, head_dim=4)
    assert isinstance(rpe, Shaw)
    assert rpe.max_distance == SCHEMES["rpe"].parts[0].options["max_distance"] == 16
    assert get("rpe", num_heads=2, head_dim=4, max_distance=3).max_distance == 3
    assert get("shaw", num_heads=2, head_dim=4, causal=True).causal_only


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_fits_an_attention_by_its_name(name):
    built = get(name, dim=16, num_heads=2, head_dim=8)
    assert type(get(name, dim=16, num_heads=2, head_dim=8, causal=True)) is type(built)
    assert type(built) is KINDS[name].build
    if "self" in built.places and not built.causal_only:
        position = built if name == "learned" else name  # a scheme at the embedding, too
        attention = MultiheadAttention(16, 2, batch_first=True, position=position)
        assert type(attention.position) is KINDS[name].build
        assert attention(*[torch.randn(1, 5, 16)] * 3)[0].shape == (1, 5, 16)


def test_a_table_that_ends_before_the_numbers_of_its_tokens_is_refused():
    short = Part("learned", "self", options={"num_positions": 9})
    for ids in (PositionIds("shifted", {"max_offset": 9}), PositionIds("randomized")):
        with pytest.raises(ShapeshiftError, match="Learned takes positions up to 8; use a smaller"):
            build(ModelConfig(size="tiny"), Scheme(ids, (short,)), 11, 11)
        with pytest.raises(ShapeshiftError, match="Learned takes positions up to 8; use a smaller"):
            place(Scheme(ids, (short,)), ENCODER)
    build(
        ModelConfig(size="tiny"), Scheme(PositionIds("shifted", {"max_offset": 8}), (short,)), 9, 9
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: get("rop", head_dim=8), "unknown scheme or kind 'rop'; did you mean 'rope'"),
        (lambda: get("rope", head_dim=8, bass=2), "has no option 'bass'.*did you mean 'base'"),
        (lambda: get("shape"), "use shapeshift.SHAPE"),
        (lambda: get("rope", head_dim=8, base="10000"), "Rotary.base: expected a finite .*'10000'"),
        (lambda: get("xpos", head_dim=8, causal=False), "'xpos' .* tokens on the right.*'rotary'"),
        (lambda: Part("shaw", layers=1.5), r"layers must be a number n .*\[0, 2, 5\].*, got 1.5"),
        (lambda: Part("shaw", layers=[]), r"layers must be a number n .*, got \[\]"),
        (lambda: Part("shaw", layers="first"), "layers must be a number n .*, got 'first'"),
        (lambda: Part("shaw", layers=[-1]), "a layer in layers must be at least 0, got -1"),
        (lambda: Part("shaw", layers=[1, 1]), r"names a layer twice, got \[1, 1\]"),
        (lambda: Part("shaw", layers={"every": 0}), "layers.every must be at least 1, got 0"),
        (lambda: Part("shaw", layers={"offset": 1}), "layers must be a number n .*'offset': 1"),
        (
            lambda: Part("shaw", layers={"except": {"except": 1}}),
            r"layers.except must be a number n .*offset: 3\}, got \{'except': 1\}",
        ),
        (lambda: Stack("enc", 8, 2, 1), "unknown stack 'enc'; did you mean 'encoder'"),
        (lambda: Part("shaw", layers=0), "layers must be at least 1, got 0"),
        (lambda: Stack("encoder", 10, 4, 1), "dim must be a multiple of num_heads"),
        (lambda: Stack("encoder", 8, 2, 0), "num_layers must be at least 1, got 0"),
        (lambda: build_position_ids(Scheme(PositionIds("shift"))), "did you mean 'shifted'"),
        (lambda: str(Part("rotari")), "unknown kind 'rotari'; did you mean 'rotary'"),
        (lambda: Scheme("shifted"), "needs PositionIds .*, got 'shifted' and"),
        (lambda: Scheme(parts=Part("shaw")), r"a tuple of Parts.* and Part\(kind='shaw'"),
        (lambda: Scheme(parts=("shaw",)), r"a tuple of Parts.* and \('shaw',\)"),
        (lambda: place("rpe", ENCODER), r"must be a Scheme, .*SCHEMES\['rope'\].*, got 'rpe'"),
        (lambda: build(ModelConfig(size="tiny"), Part("shaw"), 9, 9), "must be a Scheme"),
        (lambda: build(ModelConfig(size="tiny"), "rpe", 9, "9"), "target_size must be a whole nu"),
    ],
)  # fmt: skip
def test_names_that_are_refused(make, message):
    with pytest.raises(ShapeshiftError, match=message):
        make()
