"""Configurations of rotary positions: what is read, what is refused, and one θ for a sequence."""

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from shapeshift._system.errors import ShapeshiftError
from shapeshift.config import parse_config
from shapeshift.positions import Rotary

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 12,
    "max_position_embeddings": 64, "rope_theta": 10000.0,
}  # fmt: skip
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
BY_TYPE = {"full_attention": {**DEFAULT, "rope_theta": 1e6}, "sliding_attention": DEFAULT}
LAYERED = {"layer_types": 2 * [*5 * ["sliding_attention"], "full_attention"]}
LAYERED |= {"rope_theta": None}
NO_HEADS = {"hidden_size": 64, "num_attention_heads": None}


def scaling(kind: Any, **parameters: Any) -> dict[str, Any]:
    return {"rope_scaling": {"rope_type": kind, "factor": 2.0, **parameters}}


@pytest.mark.parametrize(
    ("settings", "answer"),
    [
        ({"rope_theta": None}, "names no rope_theta; add the one"),
        ({"rope_theta": None, "model_type": "bert"}, "'bert' is about rotary positions; if the"),
        (NO_HEADS | {"rope_theta": None, "model_type": "gpt_neo"}, "nothing in .* 'gpt_neo'"),
        ({"rope_theta": None, "model_type": "roformer", "rotary_value": True}, "'rotary_value'"),
        ({"rotary_embedding_base": 10000}, "has 'rotary_embedding_base', which is not known"),
        ({"model_type": "internlm2"}, "'internlm2' is not known here; give pairs='halves'"),
        ({"model_type": "phi"}, "a phi needs partial_rotary_factor or"),
        ({"model_type": "gpt_neox", "rotary_pct": 0.5}, "needs .* rotary_emb_base: without"),
        ({"model_type": "gemma3_text", "head_dim": 8}, "rope_parameters or rope_local_base_freq"),
        ({"model_type": "gptj", "rotary_dim": 8, "rotary_pct": 0.4}, "factor=0.4 differ; give one"),
        ({"model_type": "gptj", "rotary_dim": 0}, "rotary_dim must be at least 1, got 0"),
        ({"model_type": "gptj", "rotary_dim": "8"}, "rotary_dim must be a whole number, got '8'"),
        ({"model_type": "gptj", "rotary_dim": 32}, "rotary_dim must not be above the 16 channels"),
        ({"hidden_size": "64"}, "hidden_size must be a whole number, got '64'"),
        ({"num_attention_heads": 0}, "num_attention_heads must be at least 1, got 0"),
        ({"head_dim": 0}, "head_dim must be at least 1, got 0"),
        ({"kv_channels": 32}, "kv_channels=32 differs from the 16 channels"),
        ({"rope_theta": 10**400}, "rope_theta must be a number above 1 and below 1e38"),
        ({"per_layer_config": [{}]}, "per_layer_config must have names and values"),
        ({"use_dynamic_ntk": True}, "has 'use_dynamic_ntk', which is not known"),
        ({"use_irope": True}, "has 'use_irope', which is not known"),
        ({"nope_layer_interval": 4}, "has 'nope_layer_interval', which is not known"),
        ({"model_type": "granitemoehybrid"}, "needs position_embedding_type"),
        ({"position_embedding_type": "nope"}, "has no rotary positions, but others or none"),
        (
            scaling("yarn", original_max_position_embeddings="32"),
            "must be a whole number, got '32'",
        ),
        (scaling("yarn", original_max_position_embeddings=0), "must be at least 1, got 0"),
        ({"model_type": "phi3"} | scaling("longrope"), "phi3 needs original_max_position_emb"),
        (
            {"rope_parameters": {"full_attention": DEFAULT, "sliding_attention": {"factor": 2}}},
            "rope_parameters of 'sliding_attention' need a rope_theta of their own",
        ),
        ({"rope_scaling": {"type": "mrope"}}, "'mrope' needs mrope_section"),
        (
            scaling("default", mrope_section=[4, 2, 2]),
            "the order of the mrope_section of .*'llama'",
        ),
        ({"text_config": {}}, "give its text_config"),
        ({"alibi": True}, "has no rotary positions"),
        ({"rotary": False}, "has no rotary positions"),
        (NO_HEADS, "num_attention_heads or head_dim, got dict"),
        ({"head_dim": "8"}, "head_dim must be a whole number, got '8'"),
        ({"rotary_emb_base": 5e5}, "rope_theta and rotary_emb_base differ"),
        ({"rope_scaling": "yarn"}, "rope_scaling must be names and values, got 'yarn'"),
        ({"rope_parameters": DEFAULT} | scaling("linear"), "and rope_scaling differ"),
        ({"rope_parameters": {**DEFAULT, "rope_theta": 5e5}}, "rope_theta=10000.0 and 5.*differ"),
        (LAYERED | {"rope_parameters": BY_TYPE}, "differ: full_attention, sliding_attention; give"),
        (LAYERED | {"rope_parameters": {**BY_TYPE, "factor": 2}}, "has 'factor' next to those of"),
        ({"rope_scaling": {"name": "dynamic", "factor": 2.0}}, "'default' has no 'name'"),
        ({"rope_interleaved": True}, "a llama has pairs='halves', whatever rope_interleave=True"),
        (scaling(["yarn"]), "unknown rope_type"),
        (scaling("dynamc"), "unknown rope_type 'dynamc'; did you mean 'dynamic'"),
        (scaling("linear", finetuned=True), "'linear' has no 'finetuned' .*; remove it if"),
        (scaling("linear", factor=None), "'linear' needs factor"),
        (scaling("linear", factor=0), "factor must be a positive number, got 0"),
        (scaling("linear", type="yarn"), "rope_type 'linear' and type 'yarn' differ"),
        (scaling("dynamic"), "depends on the length of the whole sequence; give length"),
        (scaling("dynamic", original_max_position_embeddings=8), "=64 and 8 of .* differ"),
        (scaling("yarn", mscale=1.0), "what mscale means without mscale_all_dim"),
        (scaling("yarn", beta_fast=0.5), "beta_slow is above beta_fast"),
        (scaling("yarn", truncate=1), "truncate must be true or false, got 1"),
        (scaling("yarn", llama_4_scaling_beta=0.1), "llama_4_scaling_beta multiplies queries"),
        (
            scaling("default", factor=None, mrope_section=[2, 3, 2], mrope_interleaved=False),
            "sections must add up to 8",
        ),
        ({"model_type": "qwen2_vl"}, "a qwen2_vl needs mrope_section"),
        (
            {"model_type": "qwen3_vl_text", "head_dim": 16}
            | scaling("default", mrope_section=[4, 2, 2], mrope_interleaved=False),
            "has section_order='interleaved'; remove mrope_interleaved",
        ),
        (scaling("axial"), "axial rotates by the row and the column"),
        (scaling("llama3", low_freq_factor=4, high_freq_factor=1), "low_freq_factor is above"),
        ({"partial_rotary_factor": 0.2}, "of head_dim=16 rotates 3 channels"),
        ({"partial_rotary_factor": 0.125} | scaling("dynamic"), "only one pair of channels"),
        ({"rope_theta": 1.0}, "rope_theta must be a number above 1 and .*, got 1.0"),
    ],
)
def test_what_is_not_understood_is_refused(settings, answer):
    config = {name: value for name, value in {**LLAMA, **settings}.items() if value is not None}
    with pytest.raises(ShapeshiftError, match=answer):
        Rotary.from_config(config)


@pytest.mark.parametrize(
    ("settings", "options", "answer"),
    [
        ({}, {"layer": "full_attention"}, "has no meaning: all layers of this model"),
        ({}, {"layer": 12}, "a number below 12, .* got 12"),
        ({}, {"pairs": "interleaved"}, "a llama has pairs='halves'.*leave pairs out"),
        ({"model_type": "mine"}, {"pairs": "both"}, "expected 'interleaved' or 'halves'"),
        (scaling("linear"), {"length": 9}, "length=9 has no effect on rope_type 'linear'"),
        ({}, {"layer": -1}, "layer must be at least 0, got -1"),
        ({}, {"layer": True}, "layer must be a type of layers or a number, got True"),
        ({"layer_types": 7}, {"layer": 5}, "layer_types must be a list of 12 values, .* got 7"),
        ({"no_rope_layers": 3}, {"layer": 5}, "no_rope_layers must be a list, got 3"),
        ({"no_rope_layers": [1, 1]}, {"layer": 5}, "no_rope_layers must be a list of 12 values"),
        ({"sliding_window_pattern": 0}, {"layer": 5}, "sliding_window_pattern must be at least 1"),
        (
            {"model_type": "smollm3", "no_rope_layer_interval": 0}, {"layer": 5},
            "no_rope_layer_interval must be at least 1, got 0",
        ),
        ({"model_type": "smollm3"}, {"layer": 3}, "layer 3 of this model has no rotary positions"),
        *(
            ({"model_type": model, "sliding_window": 8, **LAYERED}, {"layer": layer}, "no rotary")
            for model in ("cohere2", "exaone4", "llama4_text") for layer in ("full_attention", 5)
            if (model, layer) != ("llama4_text", 5)
        ),
        ({"model_type": "lfm2", "full_attn_idxs": [2, 5]}, {"layer": 1}, "layer 1 .* no rotary"),
        ({"full_attention_interval": 4}, {"layer": 4}, "layer 4 .* no rotary"),
        ({"model_type": "qwen3_next"}, {"layer": 0}, "add layer_types"),
        *(
            ({"layer_types": 12 * ["linear_attention"]}, {"layer": layer}, "have|has no rotary")
            for layer in (0, "linear_attention")
        ),
        (
            {"model_type": "llama4_text", "no_rope_layers": 6 * [1, 0]}, {"layer": 1},
            "layer 1 .*no rotary",
        ),
        (
            {"model_type": "cohere2", "sliding_window_pattern": 4}, {"layer": 7},
            "layer 7 of this model has no rotary positions; use kind 'none'",
        ),
        (
            LAYERED | {"rope_parameters": BY_TYPE | {"full_attention": None}}, {"layer": 5},
            "'full_attention' have no rotary positions",
        ),
        (
            {"rope_scaling": {"type": "longrope", "short_factor": 8 * [1.0], "long_factor": [2.0]}},
            {"length": 9}, "long_factor has 1 numbers, and 8 pairs of channels rotate",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(settings, options, answer):
    config = {name: value for name, value in {**LLAMA, **settings}.items() if value is not None}
    with pytest.raises(ShapeshiftError, match=answer):
        Rotary.from_config(config, **options)


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        ({"base": 500.0, "rope_parameters": DEFAULT}, "rope_parameters replace base, fraction"),
        ({"length": 9}, "length=9 has no meaning without rope_parameters"),
        ({"rope_parameters": {"type": "default"}}, "need a rope_type, which .* called type"),
        ({"rope_parameters": {**DEFAULT, "type": "x"}}, "no 'type'; did you mean 'rope_type'"),
    ],
)
def test_options_that_exclude_each_other(options, answer):
    with pytest.raises(ShapeshiftError, match=answer):
        Rotary(head_dim=8, **options)


GEMMA_3 = {**LLAMA, "model_type": "gemma3_text", "head_dim": 8, "rope_local_base_freq": 100.0}
GEMMA_3 |= {"sliding_window_pattern": 6}
GEMMA_4 = {**LLAMA, **LAYERED, "model_type": "gemma4_text", "head_dim": 8, "global_head_dim": 16}
GEMMA_4 |= {"rope_parameters": BY_TYPE}
EXAONE_4 = {**LLAMA, "model_type": "exaone4", "layer_types": 12 * ["full_attention"]}
MODERNBERT = {**LLAMA, "model_type": "modernbert", "global_attn_every_n_layers": 3}
MODERNBERT |= {"rope_theta": None, "global_rope_theta": 1e6, "local_rope_theta": 1e4}


@pytest.mark.parametrize(
    ("config", "layer", "head_dim", "base"),
    [
        (GEMMA_3, 4, 8, 100.0), (GEMMA_3, 5, 8, 10000.0), (GEMMA_4, 4, 8, 10000.0),
        (GEMMA_4, 5, 16, 1e6), (GEMMA_4, "full_attention", 16, 1e6), (MODERNBERT, 2, 16, 1e4),
        (MODERNBERT, 3, 16, 1e6), ({**EXAONE_4, "sliding_window": None}, "full_attention", 16, 1e4),
        ({**LLAMA, "model_type": "llama4_text", "head_dim": 16}, 2, 16, 1e4),
        ({**LLAMA, "model_type": "falcon_h1", "layer_types": 12 * ["hybrid"]}, "hybrid", 16, 1e4),
        ({**LLAMA, "model_type": "smollm3"}, 2, 16, 10000.0),
    ],
)  # fmt: skip
def test_each_layer_has_its_own(config, layer, head_dim, base):
    position = Rotary.from_config(config, layer)
    plain = Rotary(head_dim=head_dim, base=base, pairs="halves")
    torch.testing.assert_close(position.frequencies(), plain.frequencies(), rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("model", "settings", "order"),
    [
        ("qwen2_vl", {}, "blocks"), ("qwen3_vl_text", {"head_dim": 16}, "interleaved"),
        ("mine", {"mrope_interleaved": False}, "blocks"),
        ("mine", {"mrope_interleaved": True}, "interleaved"),
    ],
)  # fmt: skip
def test_sections_of_several_axes(model, settings, order):
    rope = {"type": "mrope", "mrope_section": [4, 2, 2], **settings}
    config = {**LLAMA, "model_type": model, "head_dim": rope.pop("head_dim", 16)}
    pairs: Any = "halves" if model == "mine" else None
    position = Rotary.from_config(config | {"rope_scaling": rope}, pairs=pairs)
    assert (position.sections, position.section_order) == ([4, 2, 2], order)
    assert position.num_axes == 3


LONG = {**LLAMA, "original_max_position_embeddings": 8}
LONGROPE = {
    "type": "longrope",
    "short_factor": [1.0] * 8,
    "long_factor": [2.0 + n for n in range(8)],
}
DYNAMIC = LLAMA | scaling("dynamic") | {"max_position_embeddings": 8}
LONG["rope_scaling"] = LONGROPE


@pytest.mark.parametrize("config", [DYNAMIC, LONG], ids=["dynamic", "longrope"])
def test_keys_of_a_cache_have_the_theta_of_the_whole_sequence(config):
    """Not that of the tokens so far: the release changes it, and keys of two bases meet."""
    position = Rotary.from_config(config, length=20)
    x = torch.randn(1, 2, 20, 16, generator=torch.Generator().manual_seed(0))
    pos = torch.arange(20)[None]
    steps = [position.rotate(x[:, :, [n]], x[:, :, [n]], pos[:, [n]], pos[:, [n]]) for n in pos[0]]
    for cached, whole in zip(
        zip(*steps, strict=True), position.rotate(x, x, pos, pos), strict=True
    ):
        torch.testing.assert_close(torch.cat(cached, dim=2), whole, rtol=0, atol=0)
    short = Rotary.from_config(config, length=8)
    assert not torch.equal(short.frequencies(), position.frequencies())
    assert torch.equal(short.frequencies(), Rotary.from_config(config, length=1).frequencies())
    short.turn(torch.tensor([[7]]), torch.float32)
    with pytest.raises(ShapeshiftError, match="positions up to 7, got 8; build it with length=9"):
        short.turn(torch.tensor([[8]]), torch.float32)


def test_a_length_beyond_the_original_is_a_limit_of_dynamic_alone():
    assert Rotary.from_config(DYNAMIC, length=20).max_position() == 19
    assert Rotary.from_config(LONG, length=20).max_position() is None
    assert Rotary.from_config(LLAMA).max_position() is None


def test_theta_survives_other_dtypes_and_the_meta_device():
    options: dict[str, Any] = {"head_dim": 16, "rope_parameters": DEFAULT}
    theta = Rotary(**options).frequencies()
    assert torch.equal(Rotary(**options).to(torch.bfloat16).frequencies(), theta)
    with torch.device("meta"):
        position = Rotary(**options)
    assert torch.equal(position.to_empty(device="cpu").frequencies(), theta)
    assert not position.state_dict()


def test_numbers_of_numpy_are_numbers_and_what_was_given_is_copied():
    parameters = {**DEFAULT, "rope_type": "longrope", "original_max_position_embeddings": 8}
    parameters |= {"rope_theta": 10000, "short_factor": 8 * [1.0], "long_factor": 8 * [2.0]}
    original = deepcopy(parameters)
    given = {name: x if isinstance(x, str) else np.array(x)[()] for name, x in parameters.items()}
    position = Rotary(head_dim=np.int64(16), rope_parameters=given, length=np.int64(20))
    plain = Rotary(head_dim=16, rope_parameters=parameters, length=20)
    assert torch.equal(position.frequencies(), plain.frequencies())
    parameters["long_factor"][0] = parameters["rope_theta"] = 5.0
    assert repr(position) == repr(plain)
    assert position.rope_parameters == plain.rope_parameters == original
    assert Rotary.from_config({**LLAMA, "hidden_size": np.int64(64)}, np.int64(3)).head_dim == 16


def test_a_configuration_of_ours_has_them_as_an_option():
    parameters = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
    part = {"kind": "rotary", "pairs": "halves", "rope_parameters": parameters}
    document = {"position": {"name": "mine", "parts": [part]}}
    config = parse_config(document, ["position.parts.0.rope_parameters.factor=4.0"])
    (read,) = config.position.scheme.parts
    assert read.options["rope_parameters"] == {**parameters, "factor": 4.0}
    with pytest.raises(ShapeshiftError, match="'linear' has no 'beta_fast'"):
        parse_config(document, ["position.parts.0.rope_parameters.beta_fast=4.0"])


@pytest.mark.parametrize(
    ("model", "name", "value", "pairs"),
    [
        ("llama", "rope_interleaved", False, "halves"),  # SmolLM2
        ("deepseek_v3", "rope_interleave", False, "halves"),
        ("deepseek_v3", "rope_interleave", True, "interleaved"),
        ("mine", "rope_interleaved", True, "interleaved"),
    ],
)
def test_pairs_that_the_configuration_states(model, name, value, pairs):
    config = {**LLAMA, "model_type": model, name: value, "qk_rope_head_dim": 16}
    assert Rotary.from_config(config).pairs == pairs


def test_rotary_dim_and_a_share_of_the_channels_may_agree():
    """A saved MiniMax-M2 has both."""
    config = {**LLAMA, "model_type": "minimax_m2", "head_dim": 16, "rotary_dim": 8}
    assert Rotary.from_config({**config, "partial_rotary_factor": 0.5}).width == 8
