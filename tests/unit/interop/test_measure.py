"""Which models `use_position` changes: a table of the guide names them, and each row is tried."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.tiny_models import ids, logits, make, make_with_images
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaAttention, apply_rotary_pos_emb

import shapeshift.interop.numbering as numbering
from shapeshift import unshift, use_position
from shapeshift._system.errors import ShapeshiftError
from shapeshift.check import check
from shapeshift.interop import own_rotation
from shapeshift.interop.measure import measure, rotate_by_zero, silence
from shapeshift.positions import Representation

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "hugging-face.md"
SAMPLE = {
    "BertForMaskedLM", "DeepseekV3ForCausalLM", "Gemma2ForCausalLM", "Gemma4ForCausalLM",
    "GptOssForCausalLM", "Llama4ForCausalLM", "BloomForCausalLM", "StableLmForCausalLM",
    "CTRLLMHeadModel", "MiniMaxForCausalLM", "DeepseekV32ForCausalLM",
    "Qwen2_5_VLForConditionalGeneration",
}  # fmt: skip
"""Tested in the default suite: one for each way to be served, and for each reason to be refused."""


def rows() -> list[Any]:
    """Return each class of the guide's table, with what is expected: "", or a part of the error."""
    found = []
    table = GUIDE.read_text(encoding="utf-8").split("<!-- families -->")[1]
    for line in filter(re.compile("^. (served|refused)").match, table.splitlines()):
        expected, models = line.strip("| ").split(" | ")
        for name in re.findall(r"`(\w+)`", models):
            marks = () if name in SAMPLE else pytest.mark.slow
            refused = re.sub("^served|^refused: ", "", expected).replace("`", "")
            found.append(pytest.param(name, refused, marks=marks, id=name))
    return found


@pytest.mark.parametrize(("head", "refused"), rows())
def test_each_model_is_served_or_refused_as_the_guide_says(head: str, refused: str) -> None:
    model = make(head)
    before, weights = logits(model, ids()), list(model.state_dict())
    if refused:
        with pytest.raises(ShapeshiftError, match=re.escape(refused)):
            use_position(model, "alibi")
    else:
        own = measure(model)
        assert measure(deepcopy(model).bfloat16()).layers == own.layers
        undo = silence(own)  # the attention is still its own
        expected = logits(model, ids())
        for restore in undo:
            restore()
        use_position(model, "nope")
        torch.testing.assert_close(logits(model, ids()), expected, rtol=0, atol=1e-5)
        unshift(model)
        use_position(model, "alibi")
        assert not torch.allclose(logits(model, ids()), expected, atol=1e-5)
        assert not [each for each in check(model, max_length=5) if each.outcome == "FAIL"]
        unshift(model)
    assert torch.equal(logits(model, ids()), before)
    assert list(model.state_dict()) == weights


def test_the_table_has_enough_families() -> None:
    served = [row for row in rows() if not row.values[1]]
    assert len(served) >= 40
    assert {row.values[0] for row in rows()} >= SAMPLE


def test_a_model_whose_images_are_numbered_as_text_reads_images() -> None:
    model = make_with_images("LlavaForConditionalGeneration", axes=False)
    text_and_image = ids(rows=1, length=70)
    text_and_image[text_and_image == 5] = 6
    text_and_image[0, 3:67] = 5
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    given = {"pixel_values": pixels}
    before = logits(model, text_and_image, **given)
    use_position(model, "rope")
    torch.testing.assert_close(logits(model, text_and_image, **given), before, rtol=0, atol=1e-5)
    unshift(model)
    use_position(model, "alibi")
    assert not torch.allclose(logits(model, text_and_image, **given), before, atol=1e-5)


ROPE: dict[str, dict[str, Any]] = {
    "CohereForCausalLM": {},
    "Gemma2ForCausalLM": {},  # caps scores
    "Gemma3ForCausalLM": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
        },
    },
    "Glm4ForCausalLM": {},
    # With sinks.
    "GptOssForCausalLM": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
    "Llama4ForCausalLM": {"no_rope_layers": [1, 0]},
    "ModernBertForMaskedLM": {},
    "PhiForCausalLM": {"partial_rotary_factor": 0.5},
    "Qwen2ForCausalLM": {"use_mrope": False},
    "SmolLM3ForCausalLM": {"no_rope_layers": [1, 0]},
}
"""Rotary models of each kind: pairs, fractions, layers of several types, layers without."""


@pytest.mark.parametrize(("head", "settings"), ROPE.items())
def test_rope_takes_over_the_rotation_of_a_model(head: str, settings: dict[str, Any]) -> None:
    model = make(head, **settings)
    for name, weight in model.named_parameters():
        if name.endswith("sinks"):
            weight.data.normal_()
    before = logits(model, ids())
    use_position(model, "rope")
    torch.testing.assert_close(logits(model, ids()), before, rtol=0, atol=1e-5)
    placed = [vars(part)["shapeshift"] for part in model.modules() if "shapeshift" in vars(part)]
    rotates = [positions[n].acts("rotate") for positions, n in placed]
    assert rotates == [True, "no_rope_layers" not in settings]


@pytest.mark.parametrize("factor", [8, 1.02])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_slow_rotation_that_differs_is_refused(dtype: torch.dtype, factor: float) -> None:
    """Its first tokens hide it: θ = 0.0003 turns them by less than half precision resolves."""
    model = make("LlamaForCausalLM", head_dim=64)
    model.model.rotary_emb.inv_freq[28:] /= factor
    with pytest.raises(ShapeshiftError, match="differs from what its configuration says"):
        use_position(model.to(dtype), "rope")


def test_an_error_of_rotary_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def rotary(**_: Any) -> Any:
        raise ShapeshiftError("an odd width")

    monkeypatch.setattr(own_rotation, "Rotary", rotary)
    with pytest.raises(ShapeshiftError, match=r"\(an odd width\); for another rotation"):
        use_position(make("LlamaForCausalLM"), "rope")


class Clipped(nn.Module):
    """Rotates positions from 100 on alike."""

    def __init__(self, rotary: nn.Module):
        super().__init__()
        self.rotary = rotary

    def forward(self, x: Tensor, position_ids: Tensor) -> Any:
        return self.rotary(x, position_ids.clamp(max=100))


class TurnedValues(LlamaAttention):
    def forward(self, hidden_states: Tensor, position_embeddings: Any, **kwargs: Any) -> Any:
        heads = [
            part(hidden_states).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for part in (self.q_proj, self.k_proj, self.v_proj)
        ]
        turned = [apply_rotary_pos_emb(x, x, *position_embeddings)[0] for x in heads]
        attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        mask = kwargs.pop("attention_mask")
        out, _ = attend(self, *turned, mask, scaling=self.scaling, **kwargs)
        return self.o_proj(out.flatten(2)), None


def clipped() -> Any:
    model = make("LlamaForCausalLM")
    model.model.rotary_emb = Clipped(model.model.rotary_emb)
    return model


def turned_values() -> Any:
    model = make("LlamaForCausalLM")
    model.model.layers[-1].self_attn.__class__ = TurnedValues
    return model


class Maskless(LlamaAttention):
    """Relies on is_causal, in place of a mask."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **{**kwargs, "attention_mask": None})


def test_a_causal_attention_without_a_mask_stays_causal() -> None:
    model = make("LlamaForCausalLM")
    other = ids().clone()
    other[:, -1] = 5 + other[:, -1] % 50
    for layer in model.model.layers:
        layer.self_attn.__class__ = Maskless
    before = logits(model, ids())
    use_position(model, "rope")
    torch.testing.assert_close(logits(model, ids()), before, rtol=0, atol=1e-5)
    assert torch.equal(logits(model, other)[:, :-1], logits(model, ids())[:, :-1])
    unshift(model)
    del model.model.layers[0].self_attn.is_causal
    with pytest.raises(ShapeshiftError, match=r"set is_causal of this module"):
        use_position(model, "alibi")


class Multiplied(nn.Module):
    """A table that multiplies embeddings."""

    def __init__(self, embedding: nn.Module):
        super().__init__()
        self.embedding, self.table = embedding, nn.Embedding(40, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        at = torch.arange(tokens.shape[1]).unsqueeze(0)
        return self.embedding(tokens) * self.table(at)


def test_a_table_that_multiplies_tokens_is_refused() -> None:
    model = make("Qwen2ForCausalLM")  # whose biases give queries without tokens
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            weight.data.normal_()
    model.model.rotary_emb.register_forward_hook(rotate_by_zero)
    model.model.embed_tokens = Multiplied(model.model.embed_tokens)
    model.get_input_embeddings = lambda: model.model.embed_tokens.embedding
    with pytest.raises(ShapeshiftError, match=r"queries of layers.0.self_attn .* do not depend on"):
        use_position(model, "nope")


class Doubled(Representation):
    """A kind that changes scores."""

    def score(self, scores: Tensor, *_: Any) -> Tensor:
        return 2 * scores


@pytest.mark.parametrize(("kind", "factor"), [(Representation, 1), (Doubled, 2)])
def test_capped_scores_and_sinks_are_those_of_the_papers(kind: Any, factor: int) -> None:
    """Gemma Team 2024, section 2: s = cap · tanh(s / cap); a sink is a score without a value."""
    torch.manual_seed(0)
    module = nn.Module()
    vars(module).update(shapeshift=([kind()], 0), shapeshift_causal=True)
    q, k = (torch.randn(2, 4, 5, 6, dtype=torch.float64) for _ in range(2))
    v, sinks = torch.randn(2, 4, 5, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    out, _ = numbering.attention(
        module, q, k, v, None, 0.5, 0.0, torch.arange(5).unsqueeze(0), None, 2.0, sinks
    )
    for b, h, i in ((0, 0, 0), (1, 3, 4), (0, 2, 3)):
        scores = [2 * factor * torch.tanh(0.5 * q[b, h, i] @ k[b, h, j] / 2) for j in range(i + 1)]
        shares = torch.stack([*scores, sinks[h]]).softmax(0)
        expected = sum((shares[j] * v[b, h, j] for j in range(i + 1)), torch.zeros(3))
        torch.testing.assert_close(out[b, i, h], expected, check_dtype=False)


class Scaled(nn.Module):
    """Scales tokens by their position, which no module returns."""

    def __init__(self, attention: nn.Module):
        super().__init__()
        self.attention = attention

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Any:
        count = torch.arange(hidden_states.shape[1]).view(-1, 1)
        return self.attention(hidden_states=hidden_states * (1 + count), **kwargs)


class ScaledFarAway(Scaled):
    """Scales tokens from position 1000 on."""

    def forward(self, hidden_states: Tensor, position_ids: Tensor, **kwargs: Any) -> Any:
        hidden_states = hidden_states * (1 + (position_ids >= 1000)).unsqueeze(-1)
        return self.attention(hidden_states=hidden_states, position_ids=position_ids, **kwargs)


class Biased(Scaled):
    """Adds numbers by position to the mask."""

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> Any:
        count = torch.arange(hidden_states.shape[1])
        kwargs["attention_mask"] = 0.1 * count.expand(2, 1, len(count), -1)
        return self.attention(hidden_states=hidden_states, **kwargs)


class Mixed(nn.Module):
    """A convolution over tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x + F.pad(x, (0, 0, 1, 0))[:, :-1]


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        ("model.layers.1.self_attn", Scaled, "uses positions where use_position cannot remove"),
        ("model.layers.1.self_attn", Biased, "the mask of layers.1.self_attn.attention of Llama"),
        ("model.layers.0.mlp", lambda _: Mixed(), "tokens outside of .*as layers.1.self_attn"),
    ],
    ids=["scaled", "biased", "mixed"],
)
def test_what_acts_outside_of_modules_is_measured(place: str, change: Any, message: str) -> None:
    """In a class whose name is known and whose code is not what it was."""
    model = make("LlamaForCausalLM")
    model.set_submodule(place, change(model.get_submodule(place)))
    with pytest.raises(ShapeshiftError, match=message):
        use_position(model, "alibi")


def test_a_rotation_by_length_is_as_before_after_a_refusal() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = make("LlamaForCausalLM", max_position_embeddings=16, rope_parameters=rope)
    model.model.layers[1].self_attn = ScaledFarAway(model.model.layers[1].self_attn)
    rotary = model.model.rotary_emb
    before, theta = rotary.max_seq_len_cached, rotary.inv_freq.clone()
    with pytest.raises(ShapeshiftError, match=r"as layers.1.self_attn.attention shows"):
        use_position(model, "alibi")
    assert rotary.max_seq_len_cached == before
    assert torch.equal(rotary.inv_freq, theta)


MAKE: dict[str, Callable[[], nn.Module]] = {
    "torch": lambda: nn.Linear(2, 2),
    "pictures": lambda: make("ViTModel", image_size=8, patch_size=4),
    "meta": lambda: make("LlamaForCausalLM").to("meta"),
    "axes": lambda: make("Qwen2_5_VLForConditionalGeneration").model.language_model,
    "latent": lambda: make("DeepseekV3ForCausalLM"),
    "unknown setting": lambda: make("LlamaForCausalLM", rotary_mystery=3),
    "clipped": clipped,
    "turned values": turned_values,
}


@pytest.mark.parametrize(
    ("model", "position", "message"),
    [
        ("torch", "rope", "models of Hugging Face, not Linear"),
        ("pictures", "rope", "ViTModel does not"),
        ("meta", "rope", "device meta"),
        ("axes", "rope", "gives each token several positions"),
        ("latent", "rope", r"own rotation in layers.0.self_attn \(it differs"),
        ("latent", "rpe", "Shaw adds to values, whose width in this model is"),
        ("unknown setting", "rope", r"\(the configuration has 'rotary_mystery', which is"),
        ("clipped", "rope", "it differs from"),
        ("turned values", "rope", "its values rotate, too"),
    ],
)
def test_models_that_cannot_be_changed_are_refused(model: str, position: str, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        use_position(MAKE[model](), position)


def test_measuring_leaves_a_model_as_it_was() -> None:
    model = make("GPT2LMHeadModel").train()
    modes = [part.training for part in model.modules()]
    attributes = [{*vars(part)} for part in model.modules()]
    config = model.config
    measure(model)
    assert [part.training for part in model.modules()] == modes
    assert [{*vars(part)} for part in model.modules()] == attributes
    assert model.config is config
    assert not any(part._forward_hooks for part in model.modules())


def test_a_mask_is_only_made_where_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fused kernels, such as FlexAttention for a bias, compute a causal mask themselves."""
    seen = []

    def attend(*args: Any, causal: bool) -> Tensor:
        seen.append((args[3] is None, causal))
        return own(*args, causal=causal)

    own = numbering.attend
    monkeypatch.setattr(numbering, "attend", attend)
    for head, causal in (("LlamaForCausalLM", True), ("BertForMaskedLM", False)):
        model, mask = make(head), torch.ones_like(ids())
        use_position(model, "alibi")
        plain = logits(model, ids(), attention_mask=mask)
        assert seen == [(True, causal)] * 2
        mask[1, 9:] = 0
        padded = logits(model, ids(), attention_mask=mask)
        assert seen[2:] == [(False, False)] * 2
        torch.testing.assert_close(padded[0], plain[0])
        seen.clear()


@pytest.mark.parametrize("head", ["Gemma3ForCausalLM", "GptOssForCausalLM"])
def test_a_window_and_static_caches_generate_the_same(head: str) -> None:
    settings = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
    model = make(head, **settings)
    use_position(model, "alibi")
    greedy = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 1, "eos_token_id": None}
    expected = model.generate(ids(), use_cache=False, **greedy)
    for cache in ("dynamic", "static"):
        found = model.generate(ids(), cache_implementation=cache, **greedy)
        assert torch.equal(found, expected), cache
