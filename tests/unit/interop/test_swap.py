"""`use_position`: other positions in Hugging Face models, checked by our own suite, and undone."""

from __future__ import annotations

import gc
import weakref
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.tiny_models import DECODER_ONLY, build, hf, ids, logits, make, make_with_images
from torch import nn
from torch.ao.quantization import quantize_dynamic

from shapeshift import SHAPE, shift_positions, unshift, use_position
from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import recording
from shapeshift.check import check
from shapeshift.positions import SCHEMES, T5, ALiBi, Chain, Shaw

FAST = [
    *(("Llama", "alibi"), ("GPT-2", "rope"), ("OPT", "t5"), ("Mistral", "rpe")),
    *(("GPT-2", "cope"), ("Llama", "deberta"), ("Llama", "pope")),
]
LONG = [
    *(("Qwen3", x) for x in ("nope", "skew", "kerple", "tupe", "xpos", "transformer-xl")),
    *((family, "rope") for family in DECODER_ONLY if family != "GPT-2"),
]
"""Every family, and every kind."""


@pytest.mark.parametrize(
    ("family", "position"), [*FAST, *(pytest.param(*x, marks=pytest.mark.slow) for x in LONG)]
)
def test_positions_conform_and_are_undone(family: str, position: str) -> None:
    model = build(family)
    before, names = logits(model, ids()), list(model.state_dict())
    use_position(model, position)
    findings = {finding.property: finding for finding in check(model, max_length=18)}
    assert not [finding for finding in findings.values() if finding.outcome == "FAIL"]
    assert not [finding for finding in findings.values() if finding.outcome == "not applicable"]
    is_same = family not in ("GPT-2", "OPT") and position == "rope"
    assert torch.allclose(logits(model, ids()), before, atol=1e-5) == is_same
    unshift(model)
    assert torch.equal(logits(model, ids()), before)
    assert list(model.state_dict()) == names


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "Gemma2ForCausalLM"])
def test_attention_probabilities_are_those_of_eager(family: str) -> None:
    model = make(family) if family.startswith("Gemma") else build(family)
    table = model.transformer.wpe if family == "GPT-2" else nn.Embedding(1, 1)
    model.set_attn_implementation("eager")
    padded = {"attention_mask": torch.ones(2, 12).index_fill(1, torch.arange(3), 0)}
    with torch.no_grad():
        weight = table.weight.clone()
        table.weight.zero_()
        expected = model(ids(), **padded, output_attentions=True).attentions
        table.weight.copy_(weight)
    use_position(model, "nope" if family == "GPT-2" else "rope")
    with recording() as recorded:
        assert model(ids(), **padded).attentions is None
    asked = model(ids(), **padded, output_attentions=True).attentions
    for given in (asked, recorded):  # after the padding, which sees nothing
        assert len(given) == len(expected) == 2
        for probs, eager in zip(given, expected, strict=True):
            torch.testing.assert_close(probs[:, :, 3:], eager[:, :, 3:], rtol=0, atol=1e-6)
    assert asked[1].requires_grad


SCALED: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 8},
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", SCALED)
def test_a_rope_that_the_model_scales_is_its_own(kind: str) -> None:
    rope = {"rope_type": kind, "rope_theta": 500.0, **SCALED[kind]}
    model = build("Llama", rope_parameters=rope)
    before = logits(model, ids())
    with pytest.raises(ShapeshiftError, match=f"scales its rope by '{kind}'; name a scaling"):
        use_position(model, "rope", base=500.0)
    for options in ({}, {"scaling": "linear", "factor": 4.0})[: 1 + (kind == "linear")]:
        use_position(model, "rope", **options)
        torch.testing.assert_close(logits(model, ids()), before, rtol=0, atol=1e-5)
        unshift(model)
    use_position(model, "rope", scaling="none")
    assert not torch.allclose(logits(model, ids()), before, atol=1e-4)


def test_a_rope_by_length_has_one_theta_while_it_generates() -> None:
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 500.0}
    model = build("Llama", rope_parameters=rope, max_position_embeddings=8)
    with pytest.raises(ShapeshiftError, match="depends on the length of the whole sequence"):
        use_position(model, "rope")
    use_position(model, "rope", length=20)
    cached = model.generate(ids(length=5), max_new_tokens=15, do_sample=False)
    plain = model.generate(ids(length=5), max_new_tokens=15, do_sample=False, use_cache=False)
    assert cached.shape == (2, 20)
    assert torch.equal(cached, plain)
    with pytest.raises(ShapeshiftError, match="θ is that of positions up to 19, got 20"):
        model(torch.cat((cached, cached[:, :1]), dim=1))


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "OPT"])
def test_generate_with_left_padding_beams_a_static_cache_and_an_assistant(family: str) -> None:
    model = build(family)
    use_position(model, "t5")
    for table in model.modules():
        if isinstance(table, T5):
            table.weight.data.normal_()  # large enough to matter
    prompt = ids(1, 6)
    padded = torch.cat((prompt[:, :1].repeat(1, 4), prompt), dim=1)
    batch = torch.cat((padded, ids(1, 10)))
    mask = torch.ones_like(batch)
    mask[0, :4] = 0
    settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 1, "eos_token_id": None}
    for more in ({}, {"num_beams": 3}, {"cache_implementation": "static"}):
        if more.get("cache_implementation") and family != "Llama":
            continue
        alone = model.generate(prompt, **settings, **more)[:, 6:]
        together = model.generate(batch, attention_mask=mask, **settings, **more)
        assert torch.equal(together[:1, 10:], alone), more
    without = model.generate(prompt, use_cache=False, **settings)
    assert torch.equal(model.generate(prompt, **settings), without)
    assistant = build(family)
    use_position(assistant, "alibi")
    assert torch.equal(model.generate(prompt, assistant_model=assistant, **settings), without)


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "OPT", "StableLmForCausalLM"])
def test_gradient_checkpointing_gives_the_same_gradient(family: str) -> None:
    gradients = []
    for checkpointing in (False, True):
        model = build(family)
        use_position(model, "rpe")
        torch.manual_seed(1)
        if checkpointing:
            model.gradient_checkpointing_enable()
        model.train()
        # The second pass has other positions; the first is recomputed with its own.
        mask, pos = torch.ones_like(ids()), 3 * torch.arange(12).unsqueeze(0)
        first = model(ids(), use_cache=False).logits
        second = model(ids(), attention_mask=mask, position_ids=pos, use_cache=False).logits
        weights = torch.linspace(-1, 1, first.numel()).view_as(first)
        ((first + second**2) * weights).sum().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    ours = [name for name in model.state_dict() if "shapeshift" in name]
    assert len(ours) == 2 * 2  # keys and values of two layers, under one name each
    assert any("shapeshift_positions" in name for name in gradients[0])
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=1e-5), name


def test_one_module_serves_all_layers_and_copies_are_independent() -> None:
    model = build("Llama")
    use_position(model, Chain(Shaw(num_heads=4, head_dim=8, causal=True), ALiBi(num_heads=4)))
    copied = deepcopy(model)
    assert torch.equal(logits(copied, ids()), logits(model, ids()))
    unshift(copied)
    assert not torch.equal(logits(copied, ids()), logits(model, ids()))


def test_a_model_with_the_same_configuration_is_left_alone() -> None:
    config = build("Llama").config
    model, other = hf.LlamaForCausalLM(config).eval(), hf.LlamaForCausalLM(config).eval()
    settings = deepcopy(vars(config))
    before = logits(other, ids())
    use_position(model, "alibi")
    assert torch.equal(logits(other, ids()), before)
    assert model.config._attn_implementation == "shapeshift"
    unshift(model)
    assert vars(model.config) == settings


def test_models_in_one_module_are_changed_and_undone_one_by_one() -> None:
    models = nn.ModuleList([build("Llama"), build("Llama", num_hidden_layers=1), build("GPT-2")])
    before = [logits(model, ids()) for model in models]
    use_position(models, "alibi")
    assert not torch.allclose(logits(models[0], ids()), before[0])
    assert models[1].config.num_hidden_layers == 1
    assert torch.equal(logits(models[1], ids()), before[1])
    use_position(models[2], "alibi")
    unshift(models)
    for model, expected in zip(models, before, strict=True):
        assert torch.equal(logits(model, ids()), expected)
        assert not hasattr(model.config, "shapeshift_position")


def test_a_model_without_a_width_in_its_configuration_is_changed() -> None:
    model = build("Llama")
    del model.config.hidden_size
    use_position(model, "alibi")
    assert logits(model, ids()).isfinite().all()


CACHES = {"Llama": hf.DynamicCache, "Mistral": hf.DynamicCache, "GPT-2": hf.StaticCache}


def filled(model: nn.Module, family: str) -> Any:
    settings = {"max_cache_len": 20} if CACHES[family] is hf.StaticCache else {}
    cache = CACHES[family](config=model.config, **settings)
    logits(model, ids(), past_key_values=cache)
    return cache


@pytest.mark.parametrize("family", CACHES)
def test_a_cache_of_other_positions_is_refused(family: str) -> None:
    model = build(family)
    own = filled(model, family)
    expected = logits(model, ids(2, 1), past_key_values=deepcopy(own))
    use_position(model, "alibi")
    ours = filled(model, family)
    again, copied = deepcopy(ours), deepcopy(model)
    step = logits(model, ids(2, 1), past_key_values=deepcopy(ours))
    assert torch.equal(logits(copied, ids(2, 1), past_key_values=deepcopy(ours)), step)
    with pytest.raises(ShapeshiftError, match="before use_position"):
        model(ids(2, 1), past_key_values=own)
    unshift(model)
    for cache in (ours, again):
        with pytest.raises(ShapeshiftError, match="after use_position, and this model has its own"):
            model(ids(2, 1), past_key_values=cache)
    use_position(model, "nope")
    with pytest.raises(ShapeshiftError, match="before use_position"):
        model(ids(2, 1), past_key_values=ours)
    unshift(model)
    ours.reset()  # and any model may fill it
    logits(model, ids(), past_key_values=ours)
    assert torch.equal(logits(model, ids(2, 1), past_key_values=ours), expected)


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_model_that_makes_the_masks_of_another_generates(
    is_reopened: bool, tmp_path: Path
) -> None:
    """The model around the language model of Gemma 3 makes masks, and asks the cache for them."""
    model = make_with_images("Gemma3ForConditionalGeneration", axes=False)
    options = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    expected = model.generate(ids(), **options)
    use_position(model, "rope")
    if is_reopened:
        model.save_pretrained(tmp_path)
        model.save_pretrained(tmp_path)
        model = hf.Gemma3ForConditionalGeneration.from_pretrained(tmp_path).eval()
    assert torch.equal(model.generate(ids(), **options), expected)
    cache = hf.DynamicCache(config=model.config.get_text_config())
    logits(model, ids(), past_key_values=cache)
    logits(model, ids(2, 1), past_key_values=deepcopy(cache))
    unshift(model)
    with pytest.raises(ShapeshiftError, match="after use_position, and this model has its own"):
        model(ids(2, 1), past_key_values=cache)


def test_a_cache_is_freed_with_its_last_reference() -> None:
    model = build("Llama")
    use_position(model, "alibi")
    gc.collect()
    gc.disable()  # a cycle would keep the memory of a GPU until it is collected
    try:
        cache = filled(model, "Llama")
        alive = weakref.ref(cache)
        del cache
        assert alive() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("model", "position", "options", "message"),
    [
        ("BART", "alibi", {}, "BartForConditionalGeneration has attention to an encoder"),
        ("GPT-2", "alibi", {}, "GPT2LMHeadModel has attention to an encoder"),
        ("Llama", "ape", {}, "shift_positions"),
        ("Llama", "learned", {}, "cannot reach"),
        ("Llama", "shape", {}, "shift_positions for SHAPE"),
        ("Llama", SHAPE(dim=32), {}, "shift_positions for SHAPE"),
        ("Llama", "cross-pe", {}, "cannot reach"),
        ("Llama", "fox", {}, "FoX reads the input of each layer.*one that acts on heads or scores"),
        ("Llama", "less-feeding", {}, "gives all layers one kind; use one .* such as 'rope'"),
        ("Llama", "skew-cross-pe", {}, "gives all layers one kind; use one .* such as 'rope'"),
        ("Llama", SCHEMES["rope"], {}, "must be a name or a Representation, got Scheme"),
        ("Llama", "alibo", {}, "did you mean 'alibi'"),
        ("Llama", "alibi", {"slope": 2}, "no option 'slope'"),
        ("Llama", ALiBi(num_heads=3), {}, "build it for num_heads=4"),
        ("Llama", ALiBi(num_heads=4), {"slope": 2}, "no options"),
    ],
)
def test_what_cannot_work_is_refused(model: str, position: Any, options: Any, message: str) -> None:
    built = build(model, **({"add_cross_attention": True} if model == "GPT-2" else {}))
    weights = built.state_dict().keys()
    with pytest.raises(ShapeshiftError, match=message):
        use_position(built, position, **options)
    assert built.state_dict().keys() == weights
    assert built.config._attn_implementation != "shapeshift"


def test_two_changes_of_one_models_positions_are_refused() -> None:
    model = build("GPT-2")
    with pytest.raises(ShapeshiftError, match="not shifted or replaced"):
        unshift(model)
    use_position(model, "alibi")
    with pytest.raises(ShapeshiftError, match="call unshift first"):
        use_position(model, "t5")
    for part in (model, model.get_submodule("transformer")):
        with pytest.raises(ShapeshiftError, match="were changed by use_position"):
            shift_positions(part, 10)
    unshift(model)
    shift_positions(model, 10)
    for part in (model, model.get_submodule("transformer")):
        with pytest.raises(ShapeshiftError, match="were changed by shift_positions"):
            use_position(part, "alibi")


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "OPT"])
def test_another_attention_is_refused(family: str) -> None:
    model = build(family)
    before = logits(model, ids())
    use_position(model, "alibi")
    expected = logits(model, ids())
    model.set_attn_implementation("eager")
    with pytest.raises(ShapeshiftError, match="is 'eager', which does not compute"):
        model(ids())
    model.set_attn_implementation("shapeshift")
    assert torch.equal(logits(model, ids()), expected)
    model.set_attn_implementation("eager")
    unshift(model)
    # The attention that was set remains, and rounds otherwise.
    torch.testing.assert_close(logits(model, ids()), before)
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("position", ["rope", "t5"])
@pytest.mark.parametrize("quantized_first", [False, True])
def test_linear_layers_are_quantized(position: str, quantized_first: bool) -> None:
    plain, model = build("Llama"), build("Llama")
    if quantized_first:
        quantize_dynamic(model, {nn.Linear}, inplace=True)
    for each in (plain, model):
        torch.manual_seed(1)
        use_position(each, position)
    if not quantized_first:
        quantize_dynamic(model, {nn.Linear}, inplace=True)
    expected, got = logits(plain, ids()), logits(model, ids())
    assert not [part for part in model.modules() if type(part) is nn.Linear]
    assert 0 < (got - expected).norm() / expected.norm() < 0.05
    assert model.generate(ids(), max_new_tokens=3, pad_token_id=1).shape[1] > 12


@pytest.mark.parametrize("family", ["Llama", "GPT-2"])
def test_undoing_keeps_what_else_has_changed(family: str) -> None:
    model = build(family)
    use_position(model, "t5")
    model.resize_token_embeddings(70)
    model.train().to(torch.float64)
    unshift(model)
    assert model.config.vocab_size == 70
    assert {part.training for part in model.modules()} == {True}
    assert {table.dtype for table in model.parameters()} == {torch.float64}
    assert model(ids()).logits.shape[-1] == 70


@pytest.mark.parametrize("family", ["Mistral", "GPT-2"])
def test_cached_positions_move_with_their_rows(family: str) -> None:
    model = build(family)
    use_position(model, "rope")
    prompt, more, rows = ids(3, 20), ids(3, 1), torch.tensor([2, 0, 1])
    mask = torch.ones(3, 21, dtype=torch.long)
    mask[0, :5] = mask[1, :9] = 0
    full = logits(model, torch.cat((prompt, more), 1)[rows], attention_mask=mask[rows])[:, -1:]
    with torch.no_grad():
        cache = model(prompt, attention_mask=mask[:, :20], use_cache=True).past_key_values
    cache.reorder_cache(rows)
    step = logits(model, more[rows], attention_mask=mask[rows], past_key_values=cache)
    torch.testing.assert_close(step, full, rtol=0, atol=1e-5)
