"""Models that do something else with positions than their configuration says: `declared` finds it.

Each bug is one that a library had, or a close relative.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit import tiny_models
from tests.unit.interop.test_measure import rows
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, rotate_half
from typer.testing import CliRunner

from shapeshift import use_position
from shapeshift._system.errors import ShapeshiftError
from shapeshift.check import Reading, declared
from shapeshift.cli import app
from shapeshift.model import ModelConfig, build
from shapeshift.model.catalogue import cells
from shapeshift.positions import ALiBi, Scheme

hf = tiny_models.hf
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 16.0}
YARN |= {"original_max_position_embeddings": 10, "beta_fast": 4.0}
LLAMA_3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
LOCAL = {"rope_type": "default", "rope_theta": 100.0}
LINEAR = {"rope_type": "linear", "rope_theta": 5000.0, "factor": 8.0}
SHARE = {"rope_type": "proportional", "rope_theta": 5000.0, "partial_rotary_factor": 0.5}
TYPES = ["sliding_attention", "full_attention"]


def by_type(full: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Return settings of a model whose layers differ."""
    parameters = {"sliding_attention": LOCAL, "full_attention": full}
    return {"layer_types": TYPES, "rope_parameters": parameters, **settings}


GEMMA_3 = by_type({"rope_type": "default", "rope_theta": 5000.0}, sliding_window=16)
GEMMA_4 = by_type(SHARE, global_head_dim=16)
IMAGES = "Qwen2_5_VLForConditionalGeneration"
Seed = Callable[[Any, Any], object]
"""Puts a bug into a model, or what it should do into a copy of its configuration."""

Turn = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Rotates heads by cosines and sines."""


@dataclass(frozen=True)
class Bug:
    """A model of transformers with a bug.

    Attributes:
        finds: the property that finds it, the layers, and a part of what was measured.
        like: threads with such a bug.
        config: what the configuration says instead.
        code: functions of the model's file that are replaced.
    """

    model: str
    finds: tuple[str, tuple[int, ...], str]
    like: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    seed: Seed = lambda model, config: None
    config: dict[str, Any] = field(default_factory=dict)
    code: dict[str, Callable[..., Any]] = field(default_factory=dict)

    def readings(self, monkeypatch: pytest.MonkeyPatch) -> list[Reading]:
        model = tiny_models.build(self.model, **{"positions": 512, **self.settings})
        config = deepcopy(model.config)
        for name, value in self.config.items():
            assert hasattr(config, name)
            setattr(config, name, value)
        self.seed(model, config)
        for name, function in self.code.items():
            monkeypatch.setattr(sys.modules[type(model).__module__], name, function)
        return declared(model, config)


def uninitialised(model: Any, config: Any) -> None:
    theta = model.model.rotary_emb.inv_freq
    theta.copy_(torch.rand(theta.shape, generator=torch.Generator().manual_seed(0)))


def in_bfloat16(positions_too: bool) -> Seed:
    """θ and the angles are rounded, or the positions alone."""

    def seed(model: Any, config: Any) -> None:
        rotary = model.model.rotary_emb

        def forward(x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
            theta = rotary.inv_freq if positions_too else rotary.inv_freq.bfloat16()
            angles = (position_ids.bfloat16()[..., None] * theta).float().repeat(1, 1, 2)
            return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

        rotary.forward = forward

    return seed


def local_everywhere(model: Any, config: Any) -> None:
    rotary = model.model.rotary_emb
    rotary.full_attention_inv_freq.copy_(rotary.sliding_attention_inv_freq)


def slopes_of_more_heads(num_heads: int, device: torch.device) -> Tensor:
    return ALiBi(num_heads=2 * num_heads).slopes()[:num_heads]


def plain(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return apply_rotary_pos_emb(x, x, cos, sin)[0]


def still(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x


def backwards(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return plain(x, cos, -sin)


def interleaved(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates channels 2m and 2m + 1 instead of m and m + E/2."""
    cos, sin = (x.chunk(2, dim=-1)[0].repeat_interleave(2, dim=-1)[:, None] for x in (cos, sin))
    swapped = torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)
    return x * cos + swapped * sin


def far_ones_alike(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates from the sixth of the measured positions on as there."""
    kept = torch.arange(cos.shape[-2]).clamp(max=5)
    return plain(x, cos[..., kept, :], sin[..., kept, :])


def half_of_the_heads(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=1)
    return torch.cat((plain(first, cos, sin), second), dim=1)


def rotating(of_queries: Turn, of_keys: Turn) -> dict[str, Callable[..., Any]]:
    """Return the code of a model that rotates its heads in these ways."""

    def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        return of_queries(q, cos, sin), of_keys(k, cos, sin)

    return {"apply_rotary_pos_emb": rotate}


def window_from_the_end(inputs_embeds: Tensor, **_: Any) -> Tensor:
    """Each query sees itself, and those of the last 16 tokens that are before it."""
    at = torch.arange(inputs_embeds.shape[1])
    near = (at > at[-1] - 16) & (at <= at[:, None])
    return (near | (at == at[:, None]))[None, None]


def with_slopes(module: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any, **_: Any) -> Any:
    """Eager attention with the bias of ALiBi."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    at = torch.arange(q.shape[2])
    bias = ALiBi(num_heads=q.shape[1]).distance_bias(at - at[:, None], torch.float64)
    scores = torch.matmul(q, k.transpose(2, 3)) * module.scaling + bias
    if mask is not None:
        scores = scores + mask
    probs = nn.functional.softmax(scores, dim=-1).to(v.dtype)
    return torch.matmul(probs, v).transpose(1, 2).contiguous(), probs


def in_first_half(x: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Tensor:
    """Rotates the pairs of a share within that share of the channels, in layers of 16."""
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    if x.shape[-1] != 16:
        return x * cos + rotate_half(x) * sin
    first, rest = x[..., :8], x[..., 8:]
    cos, sin = (torch.cat((x[..., :4], x[..., :4]), dim=-1) for x in (cos, sin))
    return torch.cat((first * cos + rotate_half(first) * sin, rest), dim=-1)


def image_positions(change: Callable[..., tuple[Tensor, Tensor]]) -> Seed:
    """What the model computes is changed: positions `(3, B, T)`, and what is added to those of
    later tokens, `(B, 1)`."""

    def seed(model: Any, config: Any) -> None:
        compute = model.model.get_rope_index

        def wrong(input_ids: Tensor, *, mm_token_type_ids: Tensor, **given: Any) -> Any:
            given["mm_token_type_ids"] = mm_token_type_ids
            out = compute(input_ids, **given)
            return change(*out, mm_token_type_ids > 0, given["attention_mask"])

        model.model.get_rope_index = wrong

    return seed


def in_time(pos: Tensor, later: Tensor, is_image: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """A still image has the time of a video of four tokens a second."""
    return torch.stack((torch.where(is_image, 4 * pos[0], pos[0]), pos[1], pos[2])), later


def first_image_alone(
    pos: Tensor, later: Tensor, is_image: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor]:
    """Later images count on, as text does."""
    begins = is_image & ~is_image.roll(1, dims=1)
    second = begins.cumsum(1) > 1
    first = second.long().argmax(1, keepdim=True)
    counted = torch.arange(pos.shape[2]) - first + pos[0].gather(1, first)
    return torch.where(second & (mask > 0), counted, pos), later


def one_axis(model: Any, config: Any) -> None:
    """All pairs read the first axis."""
    rotary = model.model.language_model.rotary_emb
    rotary.register_forward_pre_hook(lambda _, args: (args[0], args[1][:1].expand_as(args[1])))


BUGS = {
    "θ of the configuration is not read": Bug(
        "Llama", ("θ", (0, 1), "base 10000; from position 1"),
        "MarinFold #184, DeepSpeed #4442 and #8345, SpecForge #265",
        config={"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    ),
    "θ of uninitialised memory": Bug(
        "Llama", ("θ", (0, 1), "from position 1"), "transformers #45902, torchtitan #4783",
        seed=uninitialised,
    ),
    "θ is no number": Bug(
        "Llama", ("θ", (0, 1), "not finite"),
        seed=lambda model, config: model.model.rotary_emb.inv_freq.fill_(torch.nan),
    ),
    "attention factor dropped": Bug(
        "Llama", ("attention factor", (0, 1), "1"), "vLLM #48351, prime-rl #2802",
        settings={"rope_parameters": YARN},
        seed=lambda model, config: setattr(model.model.rotary_emb, "attention_scaling", 1.0),
    ),
    "mscale of YaRN not read": Bug(
        "Llama", ("attention factor", (0, 1), "1.277"), "vLLM #48623",
        settings={"rope_parameters": YARN},
        config={"rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
    "layers without positions inverted": Bug(
        "SmolLM3ForCausalLM", ("rotated channels", (0,), "0"), "transformers #43756",
        settings={"no_rope_layers": [0, 1]}, config={"no_rope_layers": [1, 0]},
    ),
    "layers without positions rotate": Bug(
        "SmolLM3ForCausalLM", ("rotated channels", (1,), "8"), "executorch #22043",
        settings={"no_rope_layers": [1, 1]}, config={"no_rope_layers": [1, 0]},
    ),
    "interleaved instead of halves": Bug(
        "Llama", ("pairing", (0, 1), "interleaved"), "timm #2692",
        code=rotating(interleaved, interleaved),
    ),
    "rotation backwards": Bug(
        "Llama", ("pairing", (0, 1), "halves, 4 apart, backwards"),
        code=rotating(backwards, backwards),
    ),
    "keys do not rotate": Bug(
        "Llama", ("keys", (0, 1), "from position 1"), code=rotating(plain, still),
    ),
    "keys pair other channels": Bug(
        "Llama", ("keys", (0, 1), "from position 1"), code=rotating(plain, interleaved),
    ),
    "far keys rotate by the same angle": Bug(
        "Llama", ("keys", (0, 1), "from position 6"), code=rotating(plain, far_ones_alike),
    ),
    "half of the heads do not rotate": Bug(
        "Llama", ("rotated channels, heads 2-3", (0, 1), "0"),
        code=rotating(half_of_the_heads, half_of_the_heads),
    ),
    "proportional pairs within the share": Bug(
        "Gemma4ForCausalLM", ("pairing", (1,), "halves, 4 apart"),
        "Megatron-Bridge #4195, coreai-models #66", settings=GEMMA_4,
        code={"apply_rotary_pos_emb": in_first_half},
    ),
    "local θ in global layers": Bug(
        "Gemma3ForCausalLM", ("θ", (1,), "base 100; from position 1"), "sglang #21537",
        settings=GEMMA_3, seed=local_everywhere,
    ),
    "all channels rotate": Bug(
        "PhiForCausalLM", ("rotated channels", (0, 1), "8"),
        settings={"partial_rotary_factor": 1.0},
        config={"rope_parameters": {**LOCAL, "partial_rotary_factor": 0.5}},
    ),
    "proportional share not read": Bug(
        "Gemma4ForCausalLM", ("rotated channels", (1,), "16"),
        settings=by_type({**SHARE, "partial_rotary_factor": 1.0}, global_head_dim=16),
        config={"rope_parameters": GEMMA_4["rope_parameters"]},
    ),
    "scaling of Llama 3 not applied": Bug(
        "Llama", ("θ", (0, 1), "from position 1"), config={"rope_parameters": LLAMA_3},
    ),
    "scaling of global layers not applied": Bug(
        "Gemma3ForCausalLM", ("θ", (1,), "base 5000; from position 1"), "mlx-vlm #1709",
        settings=GEMMA_3, config=by_type(LINEAR),
    ),
    "window one token too long": Bug(
        "Mistral", ("window", (0, 1), "17 tokens"), settings={"sliding_window": 17},
        config={"sliding_window": 16},
    ),
    "window missing": Bug(
        "Mistral", ("window", (0, 1), "none in"), settings={"sliding_window": None},
        config={"sliding_window": 16},
    ),
    "window counted from the end": Bug(
        "Mistral", ("window", (0, 1), "16 tokens at the end"), settings={"sliding_window": 16},
        code={"create_sliding_window_causal_mask": window_from_the_end},
    ),
    "window in all layers": Bug(
        "Gemma2ForCausalLM", ("window", (1,), "16 tokens"), "vLLM #21863",
        settings={"layer_types": 2 * ["sliding_attention"], "sliding_window": 16},
        config={"layer_types": ["sliding_attention", "full_attention"]},
    ),
    "slopes of another number of heads": Bug(
        "BLOOM", ("bias", (0, 1), "slopes 0.5, 0.25"),
        code={"_get_alibi_slopes": slopes_of_more_heads},
    ),
    "buckets of another distance": Bug(
        "T5", ("bias", (0, 1), "from distance 11"), config={"relative_attention_max_distance": 64},
    ),
    "offset of the table lost": Bug(
        "OPT", ("row of the first token, model.decoder.embed_positions", (), "0"),
        seed=lambda model, config: setattr(model.model.decoder.embed_positions, "offset", 0),
    ),
    "angles in bfloat16": Bug(
        "Llama", ("angles", (0, 1), "from position 3"),
        "Modalities #462, gpt-neox #1016, sglang-jax #1473", seed=in_bfloat16(False),
    ),
    "positions in bfloat16": Bug(
        "Llama", ("angles", (0, 1), "from position 257"), settings={"positions": 4096},
        seed=in_bfloat16(True),
    ),
    "images have the time of a video": Bug(
        IMAGES,
        ("positions of images", (), "wrong positions, for an image of 2 × 3 tokens after 1 token"),
        "lerobot #3648, transformers #45325", seed=image_positions(in_time),
    ),
    "later images counted as text": Bug(
        IMAGES, ("positions of images", (), "wrong positions, for two images"), "mlx-vlm #1282",
        seed=image_positions(first_image_alone),
    ),
    "positions end before the padding": Bug(
        IMAGES, ("positions of images", (), "9 positions for 13 tokens, for two rows"),
        "LlamaFactory #10783",
        seed=image_positions(lambda pos, later, _, mask: (pos[..., : mask.sum(1).min()], later)),
    ),
    "rows have the positions of the first": Bug(
        IMAGES, ("positions of images", (), "wrong positions in row 1, for two rows"),
        seed=image_positions(lambda pos, later, *_: (pos[:, :1].expand_as(pos), later)),
    ),
    "tokens after an image counted on": Bug(
        IMAGES, ("positions of images", (), "a wrong position of the next token, with a cache"),
        seed=image_positions(lambda pos, later, *_: (pos, 0 * later)),
    ),
    "sections of other sizes": Bug(
        IMAGES, ("pairs of each axis", (0, 1), "0: 0-3; 1: 4-5; 2: 6-7"),
        seed=lambda _, config: config.text_config.rope_parameters.update(mrope_section=[2, 2, 4]),
    ),
    "one axis in place of three": Bug(
        IMAGES, ("pairs of each axis", (0, 1), "0: 0-7; 1: ; 2: "), "mlx-lm #1768", seed=one_axis,
    ),
}  # fmt: skip


MORE: dict[str, dict[str, Any]] = {
    "SmolLM3ForCausalLM": {"no_rope_layers": [1, 0]},
    "Gemma3ForCausalLM": GEMMA_3,
    "Gemma4ForCausalLM": GEMMA_4,
    "PhiForCausalLM": {},
    "CohereForCausalLM": {},
    "DeepseekV3ForCausalLM": {},
    "GptOssForCausalLM": {},
    "GPTJForCausalLM": {},
    "MptForCausalLM": {},
    "GPTNeoForCausalLM": {"window_size": 16},
    "Qwen3NextForCausalLM": {},
    "DebertaForMaskedLM": {},
    "EsmForMaskedLM": {},
    "YosoForMaskedLM": {},
    "XLMWithLMHeadModel": {},
}
NOTHING = ("DebertaForMaskedLM",)
"""Scores that depend on tokens are not measured."""

MEASURED = {"rotary": "base 10000", "alibi": "slopes 0.25, 0.0625", "t5": "at -1", "xpos": "base"}


@pytest.mark.parametrize("name", BUGS)
def test_a_seeded_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    wrong = [x for x in bug.readings(monkeypatch) if x.outcome == "DIFFERS"]
    by_name = {x.property: x for x in wrong if x.layers == bug.finds[1]}
    assert bug.finds[2] in by_name[bug.finds[0]].measured
    # The rest agrees, except θ and pairs of other channels, and θ of rounded angles.
    assert {x.property for x in wrong} <= {bug.finds[0], "θ", "pairing", "positions of images"}


@pytest.mark.parametrize("name", [*tiny_models.ARCHITECTURES, "ModernBERT", *MORE])
def test_there_is_no_false_alarm_on_a_model_of_transformers(name: str) -> None:
    readings = declared(tiny_models.build(name, **MORE.get(name, {})))
    assert {x.outcome for x in readings} <= {"agrees", "not measured"}
    assert any(x.outcome == "agrees" for x in readings) or name in NOTHING


@pytest.mark.parametrize(("head", "refused"), rows())
def test_a_family_does_what_its_configuration_says(head: str, refused: str) -> None:
    default = getattr(hf, head).config_class()
    windows = ("sliding_window", "attention_window_size", "window_size", "local_attention")
    model = tiny_models.make(head, **{x: 16 for x in windows if getattr(default, x, None)})
    wrong = [x for x in declared(model) if x.outcome == "DIFFERS"]
    # The default attention of Moshi ignores the window.
    assert [x.property for x in wrong] == (["window"] if head == "MoshiForCausalLM" else [])


WITH_IMAGES = (
    "Cosmos3EdgeForConditionalGeneration", "Cosmos3OmniForConditionalGeneration",
    "Glm46VForConditionalGeneration", "Glm4vForConditionalGeneration",
    "Glm4vMoeForConditionalGeneration", "GlmOcrForConditionalGeneration",
    "PaddleOCRVLForConditionalGeneration", "Qwen2VLForConditionalGeneration",
    "Qwen2_5_VLForConditionalGeneration", "Qwen3VLForConditionalGeneration",
    "Qwen3VLMoeForConditionalGeneration", "Qwen3_5ForConditionalGeneration",
    "Qwen3_5MoeForConditionalGeneration",
)  # fmt: skip
NUMBERED_OTHERWISE = "GlmImageForConditionalGeneration", "HunYuanVLForConditionalGeneration"


@pytest.mark.parametrize("head", [*WITH_IMAGES, *NUMBERED_OTHERWISE])
def test_images_have_the_positions_of_qwen2_vl(head: str) -> None:
    if not hasattr(hf, head):
        pytest.skip(f"this transformers has no {head}")
    readings = declared(tiny_models.make_with_images(head))
    assert {x.outcome for x in readings} <= {"agrees", "not declared", "not measured"}
    agrees = {x.property for x in readings if x.outcome == "agrees"}
    assert ("positions of images" in agrees) == (head in WITH_IMAGES)
    assert ("pairs of each axis" in agrees) == bool(re.match("Qwen[23].*VL|Cosmos3Omni", head))


@pytest.mark.parametrize("name", ["VideoLlama3", "HyperCLOVAXVisionV2", "Lfm3Vl"])
def test_images_have_the_positions_of_text_in_other_models(name: str) -> None:
    head = f"{name}ForConditionalGeneration"
    if not hasattr(hf, head):
        pytest.skip(f"this transformers has no {head}")
    readings = declared(tiny_models.make_with_images(head, axes=False))
    assert not [x for x in readings if x.property == "positions of images"]


@pytest.mark.parametrize("part", [*cells()], ids=str)
def test_our_models_are_measured_without_a_configuration(part: Any) -> None:
    torch.manual_seed(0)
    shape = {"dim": 32, "num_heads": 4, "ff_dim": 32, "encoder_layers": 1, "decoder_layers": 1}
    readings = declared(build(ModelConfig(**shape), Scheme(parts=(part,)), 60, 60))
    assert {x.outcome for x in readings} <= {"not declared", "not measured"}
    if part.place == "self" and part.kind in MEASURED:
        sides = {x.side for x in readings if MEASURED[part.kind] in x.measured}
        assert sides == ({"encoder", "decoder"} if part.stacks == "both" else {part.stacks})


def test_a_replaced_position_is_measured_and_not_compared() -> None:
    model = tiny_models.build("Llama")
    use_position(model, "rope", base=500.0)
    measured = {x.property: (x.measured, x.outcome) for x in declared(model)}
    assert measured["θ"] == ("base 500", "not declared")


def test_a_model_that_fails_for_such_an_input_is_not_measured() -> None:
    def refuse(part: nn.Module, args: tuple[Tensor]) -> None:
        if args[0].shape[1] > 9:
            raise RuntimeError("nine tokens are enough\nfor anybody")

    model = tiny_models.build("Llama")
    model.register_forward_pre_hook(refuse)
    [reading] = declared(model)
    assert reading.outcome == "not measured"
    assert reading.measured == "RuntimeError: nine tokens are enough"


def test_both_lists_of_longrope_are_compared() -> None:
    parameters = {
        "rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 64,
        "short_factor": [1.0, 1.0, 1.0, 1.0], "long_factor": [1.0, 2.0, 4.0, 8.0],
    }  # fmt: skip
    more = {"rope_parameters": parameters, "original_max_position_embeddings": 64}
    model = tiny_models.build("Phi3ForCausalLM", positions=128, **more)
    agrees = {x.property for x in declared(model) if x.outcome == "agrees"}
    assert agrees >= {"θ", "θ, beyond 64 tokens", "attention factor, beyond 64 tokens"}
    config = deepcopy(model.config)
    config.rope_parameters["long_factor"] = [1.0, 2.0, 4.0, 9.0]
    wrong = {x.property for x in declared(model, config) if x.outcome == "DIFFERS"}
    assert wrong == {"θ, beyond 64 tokens"}


def test_a_cast_rounds_theta_and_loading_does_not(tmp_path: Path) -> None:
    model = tiny_models.build("Llama")
    model.save_pretrained(tmp_path)
    loaded = hf.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert {x.outcome for x in declared(loaded)} == {"agrees"}
    assert [x.property for x in declared(model.bfloat16()) if x.outcome == "DIFFERS"] == ["θ"]


@pytest.mark.parametrize(
    ("head", "old"),
    [
        ("Gemma2ForCausalLM", {}),
        ("Gemma3ForCausalLM", {"sliding_window_pattern": 2}),
        ("Cohere2ForCausalLM", {"sliding_window_pattern": 2}),
        ("GptOssForCausalLM", {}),
        ("Qwen2ForCausalLM", {"use_sliding_window": True, "max_window_layers": 1}),
    ],
)
def test_windows_in_the_names_of_older_files_are_read(head: str, old: dict[str, Any]) -> None:
    model = tiny_models.build(head, sliding_window=16, **old)
    config = model.config.to_dict() | old
    assert sorted(config.pop("layer_types")) == ["full_attention", "sliding_attention"]
    windows = [x for x in declared(model, config) if x.property == "window"]
    assert {x.outcome for x in windows} == {"agrees"}
    assert {x.measured for x in windows} == {"16 tokens", "none in 71 tokens"}


def test_the_text_of_a_configuration_with_several_parts_is_read() -> None:
    model = tiny_models.make_with_images("Qwen3VLForConditionalGeneration")
    assert declared(model, model.config.to_dict()) == declared(model)


def test_chunks_are_named() -> None:
    readings = declared(tiny_models.build("Llama4ForCausalLM", attention_chunk_size=16))
    [window] = (x for x in readings if x.property == "window")
    assert window.measured == "chunked_attention is not known here"


def test_windows_of_an_encoder_reach_both_ways() -> None:
    model = tiny_models.build("ModernBERT", local_attention=8)
    [window] = (x for x in declared(model) if x.property == "window")
    assert (window.measured, window.layers) == ("4 tokens before and 4 after", (1,))
    config = deepcopy(model.config)
    config.local_attention = 10
    assert [x.property for x in declared(model, config) if x.outcome == "DIFFERS"] == ["window"]


def test_tables_belong_to_their_side() -> None:
    rows = [x for x in declared(tiny_models.build("BART")) if x.property.startswith("row of")]
    assert {x.side for x in rows} == {"encoder", "decoder"}
    assert all(f"model.{x.side}.embed" in x.property for x in rows)


def test_other_configurations_and_weights_without_numbers_are_refused() -> None:
    model = tiny_models.build("Llama")
    with pytest.raises(ShapeshiftError, match="or its dictionary, got str"):
        declared(model, "llama")
    with pytest.raises(ShapeshiftError, match="on the device meta"):
        declared(model.to("meta"))


def layers_inverted() -> nn.Module:
    model = tiny_models.build("SmolLM3ForCausalLM", no_rope_layers=[0, 1])
    model.config.no_rope_layers = [1, 0]
    return model


def test_the_command_prints_what_differs(tmp_path: Path) -> None:
    model = tiny_models.build("Llama")
    model.save_pretrained(tmp_path)
    run = CliRunner().invoke
    good = run(app, ["check", str(tmp_path), "--declared"])
    assert good.exit_code == 0, good.output
    assert "decoder 0-1" in good.output
    bad = run(app, ["check", f"{__name__}:layers_inverted", "--declared"])
    assert bad.exit_code == 1
    assert bad.output.count("DIFFERS") == 2
    useless = run(app, ["check", str(tmp_path), "--declared", "--max-length", "9"])
    assert "--declared takes neither" in str(useless.exception or useless.output)


def unseen(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, *_: Any, **__: Any) -> Any:
    """An attention that calls no function of PyTorch that is watched, as flex_attention."""
    return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1).transpose(1, 2), None


def other_attention() -> nn.Module:
    hf.AttentionInterface.register("unseen", unseen)
    model: nn.Module = tiny_models.build("Llama", attn_implementation="unseen")
    return model


def test_the_command_fails_where_nothing_is_measured() -> None:
    result = CliRunner().invoke(app, ["check", f"{__name__}:other_attention", "--declared"])
    assert result.exit_code == 1
    assert "not measured" in result.output
    assert "nothing was measured in this LlamaForCausalLM" in str(result.exception)


SMALLEST = {
    "θ": "position 1", "rotated channels": "position 1", "pairing": "position 1",
    "attention factor": "position 0", "row of the first token": "position 0",
    "window": "17 tokens", "bias": "distance 1", "pairs of each axis": "position 1",
    "positions of images": "an image after 1 token",
}  # fmt: skip
"""The smallest input with such a bug, where the reading does not say it."""


def test_keys_that_rotate_alone_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_models.build("Llama")
    [(name, function)] = rotating(still, plain).items()
    monkeypatch.setattr(sys.modules[type(model).__module__], name, function)
    wrong = {x.property: x.measured for x in declared(model) if x.outcome == "DIFFERS"}
    assert wrong == {"keys": "other than queries from position 1", "rotated channels": "0"}


def test_a_bias_is_measured_in_an_eager_attention_that_rotates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_models.build("Llama", attn_implementation="eager")
    assert not any(x.property == "bias" for x in declared(model))
    monkeypatch.setattr(sys.modules[type(model).__module__], "eager_attention_forward", with_slopes)
    found = [x for x in declared(model) if x.property == "bias"]
    assert {n for x in found for n in x.layers} == {0, 1}
    for bias in found:
        assert bias.measured.startswith("slopes 0.25, 0.0625, 0.0156")
        assert bias.outcome == "not declared"


def test_wide_heads_are_measured_in_seconds() -> None:
    """Of the computations, not of the clock, which other processes slow down."""
    sizes = {"head_dim": 256, "hidden_size": 320, "vocab_size": 600, "positions": 8192}
    model = tiny_models.build("Llama", **sizes)
    start = time.process_time()
    assert {x.outcome for x in declared(model)} == {"agrees"}
    assert time.process_time() - start < 5


def test_the_guide_lists_the_threads_and_what_finds_them() -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/declared.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]*)\|$", guide, re.M)
    listed = {name: (*finds, like.strip()) for name, *finds, like in rows}
    for name, bug in BUGS.items():
        what, _, measured = bug.finds
        what = what.partition(",")[0]
        smallest = measured.partition("from ")[2] or SMALLEST[what]
        smallest = next((x for x in ("two images", "two rows") if x in measured), smallest)
        assert listed.get(name) == (what, smallest, bug.like), name


def test_a_causal_model_whose_tokens_see_later_ones_differs() -> None:
    model = tiny_models.build("Llama")
    assert not any(x.property == "mask" for x in declared(model))
    for layer in model.model.layers:
        layer.self_attn.is_causal = False
    [reading] = (x for x in declared(model) if x.property == "mask")
    assert (reading.measured, reading.outcome) == ("tokens see later ones", "DIFFERS")


def test_a_declared_rotation_that_is_not_there_has_a_line() -> None:
    config = tiny_models.build("Llama").config
    readings = declared(tiny_models.build("GPT2LMHeadModel"), config)
    assert any((x.property, x.outcome) == ("θ", "not measured") for x in readings)
