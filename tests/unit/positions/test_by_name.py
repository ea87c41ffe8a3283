"""Positions by the names of presets and kinds."""

from __future__ import annotations

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.interop.torch_nn import MultiheadAttention, TransformerDecoderLayer
from shapeshift.model import ModelConfig, build
from shapeshift.positions import KINDS, PRESETS, Rotary, Shaw, fitted, get


def test_a_preset_brings_its_options_and_others_replace_them() -> None:
    rope = get("rope", head_dim=8, base=500.0)
    assert isinstance(rope, Rotary)
    assert rope.base == 500.0
    rpe = get("rpe", num_heads=2, head_dim=4)
    assert isinstance(rpe, Shaw)
    assert rpe.clip.max_distance == PRESETS["rpe"].parts[0].options["max_distance"] == 16
    assert get("rpe", num_heads=2, head_dim=4, max_distance=3).clip.max_distance == 3
    assert get("shaw", num_heads=2, head_dim=4, causal=True).clip.causal


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_fits_an_attention_by_its_name(name: str) -> None:
    built = fitted(name, dim=16, num_heads=2)
    assert type(built) is KINDS[name].build
    if "self" in built.places and not built.causal_only:
        attention = MultiheadAttention(16, 2, batch_first=True, position=name)
        assert type(attention.position) is KINDS[name].build
        assert attention(*[torch.randn(1, 5, 16)] * 3)[0].shape == (1, 5, 16)


def test_layers_and_models_take_names() -> None:
    layer = TransformerDecoderLayer(16, 2, position="rope", cross_position="sinusoidal")
    assert isinstance(layer.self_attn.position, Rotary)
    model = build(ModelConfig(size="tiny", dim=16, num_heads=2), "rpe", 11, 11)
    assert isinstance(model.encoder[0].attention.position, Shaw)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: get("rop", head_dim=8), "no preset or kind 'rop'; did you mean 'rope'"),
        (lambda: get("rope"), "'rope' needs head_dim"),
        (lambda: get("rpe", head_dim=8), "'rpe' needs num_heads"),
        (lambda: get("rope", head_dim=8, bass=2), "has no option 'bass'.*did you mean 'base'"),
        (lambda: get("shape"), "use shapeshift.SHAPE"),
        (lambda: get("less-feeding", dim=8), "more than one kind in all layers"),
        (lambda: get("cross-pe", dim=8), "more than one kind in all layers"),
        (lambda: MultiheadAttention(16, 2, position="rop"), "did you mean 'rope'"),
        (lambda: TransformerDecoderLayer(16, 2, cross_position="alibi"), "no meaning at 'cross'"),
        (lambda: build(ModelConfig(size="tiny"), "rop", 9, 9), "no preset 'rop'"),
    ],
)  # fmt: skip
def test_what_is_refused(make, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        make()
