"""Skew, T5, ALiBi, rotary, xPos and TUPE beyond their equations: shapes, limits, where they may
stand."""

from __future__ import annotations

import math

import pytest
import torch

from shapeshift.config import parse_config
from shapeshift.errors import ShapeshiftError
from shapeshift.positions import (
    PRESETS,
    T5,
    TUPE,
    Chain,
    Learned,
    Part,
    Representation,
    Rotary,
    Scheme,
    Sinusoidal,
    Skew,
    Stack,
    XPos,
    check,
    place,
)

ENCODER = Stack("encoder", dim=8, num_heads=2, num_layers=3, causal=False)
DECODER = Stack("decoder", dim=8, num_heads=2, num_layers=3, causal=True)


def shapes(module: Representation) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in module.state_dict().items()}


def test_what_is_learned_and_saved() -> None:
    assert shapes(Skew(num_heads=2, head_dim=4)) == {"keys": (2, 129, 4)}
    assert shapes(Skew(num_heads=2, head_dim=4, max_distance=3, per_head=False, causal=True)) == {
        "keys": (1, 4, 4)
    }
    assert (
        shapes(T5(dim=8, num_heads=2))
        == shapes(T5(dim=8, num_heads=2, causal=True))
        == {"weight": (32, 2)}
    )
    projections = {"query": (8, 8), "key": (8, 8)}
    assert shapes(TUPE(dim=8, num_heads=2, num_positions=5)) == {
        "vectors.weight": (5, 8),
        **projections,
    }
    assert shapes(TUPE(dim=8, num_heads=2, vectors="sinusoidal")) == projections


@pytest.mark.parametrize("kind", ["alibi", "rotary", "xpos"])
def test_nothing_to_learn(kind: str) -> None:
    part = Part(kind, stacks="decoder" if kind == "xpos" else "both")
    layers = place(Scheme(parts=(part,)), DECODER).self_attention
    assert not [name for layer in layers for name in layer.state_dict()]


def test_initial_values() -> None:
    torch.manual_seed(0)
    assert Skew(num_heads=8, head_dim=64).keys.norm(dim=-1).mean().item() == pytest.approx(
        1, rel=0.02
    )
    assert T5(dim=64, num_heads=64).weight.std().item() == pytest.approx(64**-0.5, rel=0.05)
    assert TUPE(dim=64, num_heads=2).vectors.weight.std().item() == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("kind", ["t5", "tupe"])
def test_layers_share_by_default_and_stacks_do_not(kind: str) -> None:
    scheme = Scheme(parts=(Part(kind),))
    encoder, decoder = (place(scheme, stack).self_attention for stack in (ENCODER, DECODER))
    assert encoder[0] is encoder[1] is encoder[2]
    assert encoder[0] is not decoder[0]
    own = Scheme(parts=(Part(kind, share_layers=False),))
    assert len({id(layer) for layer in place(own, ENCODER).self_attention}) == 3


def test_shared_and_unshared_parts_stand_side_by_side() -> None:
    layers = place(Scheme(parts=(Part("t5", layers=2), Part("skew"))), ENCODER).self_attention
    first, second, third = layers
    assert isinstance(first, Chain)
    assert first.parts[0] is second.parts[0]
    assert first.parts[1] is not second.parts[1]
    assert isinstance(third, Skew)


@pytest.mark.parametrize("stacks", ["both", "encoder"])
def test_xpos_is_refused_where_keys_stand_on_the_right(stacks: str) -> None:
    message = r"'xpos' .*encoder.*stacks: decoder and another kind .*'rotary'"
    with pytest.raises(ShapeshiftError, match=message):
        check(Scheme(parts=(Part("xpos", stacks=stacks),)))
    with pytest.raises(ShapeshiftError, match="position: " + message):
        parse_config({"position": {"parts": [{"kind": "xpos", "stacks": stacks}]}})


def test_the_preset_xpos_is_rotary_in_the_encoder() -> None:
    assert isinstance(place(PRESETS["xpos"], ENCODER).self_attention[0], Rotary)
    assert isinstance(place(PRESETS["xpos"], DECODER).self_attention[0], XPos)


def test_a_part_of_the_channels_turns_and_the_rest_stays() -> None:
    x, pos = torch.randn(1, 1, 3, 10), torch.tensor([[1, 2, 7]])
    for fraction, turning in ((1.0, 10), (0.5, 4), (0.25, 2), (0.01, 2)):
        got, _ = Rotary(head_dim=10, fraction=fraction).rotate(x, x, pos, pos)
        assert torch.equal(got[..., turning:], x[..., turning:])
        assert (got[..., :turning] != x[..., :turning]).all()


def test_options_reach_the_module_through_the_configuration() -> None:
    part = {"kind": "rotary", "scaling": "yarn", "factor": 4, "original_length": 50}
    scheme = parse_config({"position": {"parts": [part]}}).position.scheme
    (rotary, *_) = place(scheme, ENCODER).self_attention
    assert (rotary.scaling, rotary.factor, rotary.original_length) == ("yarn", 4, 50)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Skew(num_heads=2, head_dim=4, max_distance=-1),
            "max_distance must not be negative, got -1",
        ),
        (lambda: T5(dim=8, num_heads=2, num_buckets=30), r"num_buckets must be 4, 8, 12, ….*30"),
        (lambda: T5(dim=8, num_heads=2, num_buckets=0), "num_buckets"),
        (
            lambda: T5(dim=8, num_heads=2, max_distance=16),
            "more than half of num_buckets=32, got 16",
        ),
        (lambda: Rotary(head_dim=7), "heads have 7; .*even"),
        (lambda: Rotary(head_dim=8, base=0.0), "base must be positive"),
        (
            lambda: Rotary(head_dim=8, pairs="half"),
            "pairs must be one of interleaved, halves, got 'half'",
        ),
        (lambda: Rotary(head_dim=8, fraction=0.0), "fraction"),
        (lambda: Rotary(head_dim=8, fraction=1.5), "fraction"),
        (lambda: Rotary(head_dim=8, scaling="dynamic"), "none, linear, ntk, yarn, got 'dynamic'"),
        (lambda: Rotary(head_dim=8, factor=2.0), "factor=2.0 has no meaning with scaling='none'"),
        (lambda: Rotary(head_dim=8, scaling="linear", factor=0.5), "factor=0.5"),
        (lambda: Rotary(head_dim=8, scaling="yarn", factor=2.0), "needs original_length"),
        (lambda: Rotary(head_dim=8, original_length=9), "no other scaling takes it"),
        (lambda: Rotary(head_dim=8, scaling="yarn", original_length=0), "at least 1, got 0"),
        (
            lambda: Rotary(head_dim=8, beta_fast=1.0),
            "0 < beta_slow < beta_fast < inf, got 1.0 and 1.0",
        ),
        (lambda: Rotary(head_dim=8, temperature=0.0), "temperature must be positive"),
        (lambda: Rotary(head_dim=8, scaling="ntk", fraction=0.25), "only one pair"),
        (lambda: XPos(head_dim=7), "heads have 7"),
        (lambda: XPos(head_dim=8, gamma=0.0), "gamma must be positive and finite, got 0"),
        (
            lambda: XPos(head_dim=8, scale_base=-1.0),
            "scale_base must be positive and finite, got -1",
        ),
        (lambda: XPos(head_dim=8, gamma=math.inf), "gamma must be positive and finite, got inf"),
        (lambda: XPos(head_dim=8, scale_base=math.inf), "scale_base must be positive and finite"),
        (lambda: XPos(head_dim=8, gamma=math.nan), "gamma must be positive and finite, got nan"),
        (lambda: XPos(head_dim=8, centre=math.nan), "centre must be a whole number, got nan"),
        (lambda: Rotary(head_dim=8, beta_fast=math.inf), "beta_fast < inf, got 1.0 and inf"),
        (lambda: Rotary(head_dim=8, base=math.nan), "base must be positive and finite, got nan"),
        (
            lambda: Rotary(head_dim=8, scaling="linear", factor=math.inf),
            "factor=inf has no meaning",
        ),
        (lambda: Sinusoidal(dim=8, base=0.0), "base must be positive and finite, got 0"),
        (lambda: Sinusoidal(dim=7), r"even width .* got 7; choose such a model\.dim"),
        (lambda: Learned(dim=8, std=-1.0), "std must be finite and not negative, got -1"),
        (lambda: Learned(dim=8, std=math.nan), "std must be finite and not negative, got nan"),
        (
            lambda: TUPE(dim=8, num_heads=2, vectors="sines"),
            "'learned' or 'sinusoidal', got 'sines'",
        ),
        (lambda: TUPE(dim=8, num_heads=2, num_positions=0), "num_positions"),
        (
            lambda: TUPE(dim=8, num_heads=2, vectors="sinusoidal", num_positions=3),
            "num_positions=3 has no meaning with vectors='sinusoidal', .*; leave it out",
        ),
    ],
)
def test_settings_that_have_no_meaning(make, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_learned_tupe_names_its_limit() -> None:
    tupe, pos = TUPE(dim=8, num_heads=2, num_positions=4), torch.arange(5)[None]
    with pytest.raises(ShapeshiftError, match=r"position 4, but the learned table ends at 3"):
        tupe.bias(pos, pos, dtype=torch.float32)
