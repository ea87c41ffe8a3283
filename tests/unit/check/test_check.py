"""No false alarm on what we ship and on models of transformers; what the API reports."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from tests.unit import tiny_models
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.check import PROPERTIES, Finding, check
from shapeshift.check.adapter import subjects
from shapeshift.export.huggingface import ShapeshiftConfig, ShapeshiftForSeq2SeqLM
from shapeshift.interop.torch_nn import TransformerEncoderLayer
from shapeshift.model import ModelConfig, build
from shapeshift.model.catalogue import cells
from shapeshift.positions import SCHEMES, Part, PositionIds, Scheme

FAST = {"sinusoidal", "Llama", "BART", "fire", "abacus", "GptOssForCausalLM"}
CELLS = {part.kind: Scheme(parts=(part,)) for part in [*cells()][::-1]}
ROLES = {
    "packed": ({"separator": 6}, Part("rotary")),
    "abacus": ({"digits": [5, 6, 7]}, Part("learned")),
}
OF_TOKENS = {n: Scheme(PositionIds(n, options), (x,)) for n, (options, x) in ROLES.items()}
CASES = (
    CELLS | OF_TOKENS | {name: SCHEMES[name] for name in ("shape", "randomized", "skew-cross-pe")}
)
"""Every kind, at the first of its places; and what else is in schemes."""

SHAPE = {"dim": 32, "num_heads": 4, "ff_dim": 32, "encoder_layers": 1, "decoder_layers": 1}


def some_slow(names: object) -> list[object]:
    return [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in names]  # type: ignore[attr-defined]


def failures(model: nn.Module, max_length: int = 300) -> list[Finding]:
    findings = check(model, max_length=max_length)
    assert {finding.property for finding in findings} == set(PROPERTIES)
    assert sum(finding.outcome == "pass" for finding in findings) >= 6
    return [finding for finding in findings if finding.outcome == "FAIL"]


@pytest.mark.parametrize("name", some_slow(CASES))
def test_there_is_no_false_alarm_on_a_scheme_or_a_kind_at_a_place(name: str) -> None:
    torch.manual_seed(0)
    model = build(ModelConfig(**SHAPE), CASES[name], 60, 60)
    assert failures(model, 300 if name in FAST else 70) == []


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_a_stack_without_positions_claims_none(side: str) -> None:
    scheme = Scheme(parts=(Part("sinusoidal", "embedding", side),))
    findings = check(build(ModelConfig(**SHAPE), scheme, 60, 60), max_length=10)
    assert not [finding for finding in findings if finding.outcome == "FAIL"]
    for shift in (x for x in findings if x.property == "shift"):
        assert ("wanted more than" if shift.side == side else "wanted at most") in shift.detail


@pytest.mark.parametrize(
    ("head", "settings", "limit"),
    [("XLNetLMHeadModel", {"d_inner": 32}, None), ("MptForCausalLM", {"max_seq_len": 40}, 40)],
)
def test_limits_have_the_names_and_values_of_others(
    head: str, settings: dict[str, int], limit: int | None
) -> None:
    model = tiny_models.make(head, **settings)
    (subject,) = subjects(model)
    assert subject.limit == limit
    outcomes = [finding.outcome for finding in check(model, max_length=10)]
    assert "FAIL" not in outcomes
    assert outcomes.count("pass") >= 5


@pytest.mark.parametrize(
    "head", ["LlavaForConditionalGeneration", "Qwen2VLForConditionalGeneration"]
)
def test_the_configuration_of_the_text_is_read(head: str) -> None:
    model = tiny_models.make_with_images(head)
    [subject] = subjects(model)
    assert subject.limit == model.config.text_config.max_position_embeddings
    assert 5 not in subject.usable_ids  # which stands for an image
    [beyond] = [x for x in check(model, max_length=4) if x.property == "beyond the end"]
    assert beyond.outcome == "pass"


@pytest.mark.parametrize(
    "name", ["Gemma3ForCausalLM", "BART", "BLOOM", pytest.param("T5", marks=pytest.mark.slow)]
)
def test_weights_that_are_values_of_bfloat16_already_pass(name: str) -> None:
    model = tiny_models.build(name).bfloat16()
    assert failures(model, 18) == []
    assert failures(model.float(), 18) == []


EXPERTS = (
    "MixtralForCausalLM", "GptOssForCausalLM", "Qwen3MoeForCausalLM", "PhimoeForCausalLM",
    "DeepseekV2ForCausalLM",
)  # fmt: skip


@pytest.mark.parametrize("name", some_slow(EXPERTS))
def test_rounding_may_change_which_experts_serve_a_token(name: str) -> None:
    for model in (tiny_models.build(name), tiny_models.build(name).bfloat16()):
        assert failures(model, 70) == []


def test_a_mask_that_fits_by_accident_is_not_taken() -> None:
    """ESM multiplies embeddings by the mask. A mask of 4 tokens fits its 4 heads."""
    model = tiny_models.make("EsmForMaskedLM")
    assert subjects(model)[0].claim == "absolute"  # by a rotary module that is None
    findings = {x.property: x for x in check(model, max_length=5)}
    assert "FAIL" not in {x.outcome for x in findings.values()}
    assert "refuses a mask (1, 1, T, T)" in findings["packing"].detail


@pytest.mark.parametrize("name", some_slow(tiny_models.ARCHITECTURES))
def test_there_is_no_false_alarm_on_a_model_of_transformers(name: str) -> None:
    assert failures(tiny_models.build(name), 300 if name in FAST else 70) == []


def test_special_tokens_are_left_out_also_where_there_are_several_ends() -> None:
    [subject] = subjects(tiny_models.build("Llama", eos_token_id=[2, 7]))
    assert not {2, 7} & {*subject.usable_ids.tolist()}


@pytest.mark.parametrize(("source", "target"), [(60, 40), (40, 60)])
def test_vocabularies_of_two_sizes(source: int, target: int) -> None:
    shape = SHAPE | {"share_embeddings": False}
    marian = {"vocab_size": source, "decoder_vocab_size": target}
    both = ShapeshiftConfig(shape, {"name": "ape"}, source_size=source, target_size=target)
    for model in (
        build(ModelConfig(**shape), "ape", source, target),
        ShapeshiftForSeq2SeqLM(both),
        tiny_models.build("Marian", share_encoder_decoder_embeddings=False, **marian),
    ):
        findings = check(model, positions="absolute", max_length=5)
        assert {x.side for x in findings} == {"decoder", "encoder"}
        assert not [x for x in findings if x.outcome == "FAIL"]


def test_padding_that_a_model_refuses_on_the_left_does_not_apply() -> None:
    config = ShapeshiftConfig(SHAPE, {"name": "rpe"}, source_size=60, target_size=60)
    for model in (ShapeshiftForSeq2SeqLM(config), build(ModelConfig(**SHAPE), "rpe", 60, 60)):
        findings = {(x.property, x.side): x for x in check(model, max_length=5)}
        assert "FAIL" not in {x.outcome for x in findings.values()}
        assert "on its right alone" in findings["left padding", "encoder"].detail


def test_a_mask_of_ones_own_replaces_the_window_of_an_encoder() -> None:
    [finding] = failures(tiny_models.build("ModernBERT"))
    assert (finding.property, finding.side) == ("packing", "encoder")
    assert len(finding.ids[0]) > 64  # of the window on either side


def test_what_does_not_apply_says_why() -> None:
    findings = {(x.property, x.side): x for x in check(tiny_models.build("BART"))}
    assert "pad on the right" in findings["left padding", "encoder"].detail
    assert findings["packing", "decoder"].detail == "it takes no position_ids"
    assert findings["beyond the end", "decoder"].detail.startswith("refused: IndexError")


def test_a_wrong_claim_is_found() -> None:
    for claim, name in (("absolute", "shift"), ("none", "effect")):
        findings = check(tiny_models.build("Llama"), positions=claim, max_length=5)
        assert {x.property: x.outcome for x in findings}[name] == "FAIL"


def test_positions_that_hardly_matter_yet_have_an_effect() -> None:
    """As after a few updates with a high learning rate, when the decoder ignores the source."""
    torch.manual_seed(0)
    for scheme, claim, outcome in (("t5", None, "pass"), ("nope", "relative", "FAIL")):
        model = build(ModelConfig(**SHAPE), scheme, 60, 60)
        for layer in model.decoder:
            layer.cross_attention.out.weight.data *= 1e-5
        findings = check(model, positions=claim, max_length=10)
        [effect] = [x for x in findings if (x.property, x.side) == ("effect", "encoder")]
        assert effect.outcome == outcome, effect


def test_the_model_is_left_alone() -> None:
    model = tiny_models.build("Llama").train()
    before = deepcopy(model.state_dict())
    check(model, max_length=5)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class Encoder(nn.Module):
    """An encoder of one's own: a learned table, bidirectional layers of torch, right padding."""

    def __init__(self, places: str = "all", layer: type = nn.TransformerEncoderLayer) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.vocab_size, self.max_length, self.places = 60, 16, places
        self.tokens, self.table = nn.Embedding(60, 16), nn.Embedding(16, 16)
        self.layers = nn.ModuleList(layer(16, 2, 16, batch_first=True) for _ in range(2))
        self.out = nn.Linear(16, 60)

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        pos = torch.arange(ids.shape[1])
        x = self.tokens(ids) + (0 if self.places == "none" else self.table(pos))
        padding = None if attention_mask is None else attention_mask == 0
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return self.out(x)


class Causal(Encoder):
    """A decoder of one's own."""

    def forward(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        attention_mask = torch.ones_like(ids) if attention_mask is None else attention_mask
        pos = attention_mask.cumsum(1)
        x = self.tokens(ids) + (0 if self.places == "none" else self.table(pos))
        padding = torch.zeros_like(ids, dtype=x.dtype).masked_fill(attention_mask == 0, -1e9)
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], dtype=x.dtype)
        for layer in self.layers:
            x = layer(x, src_mask=mask.clamp(min=-1e9), src_key_padding_mask=padding)
        return self.out(x)


def by_property(model: nn.Module, claim: str | None = None) -> dict[str, Finding]:
    return {x.property: x for x in check(model, positions=claim, max_length=10)}  # type: ignore[arg-type]


def test_an_encoder_is_found_by_what_it_sees() -> None:
    for claim, reason in ((None, "give --positions absolute"), ("absolute", "pad on the right")):
        findings = by_property(Encoder(), claim)
        assert {x.side for x in findings.values()} == {"encoder"}
        assert not [x for x in findings.values() if x.outcome == "FAIL"]
        assert reason in findings["left padding"].detail
        assert findings["beyond the end"].detail.startswith("refused: IndexError")
    assert by_property(tiny_models.build("BERT"))["cached = full"].detail == "it has no cache"
    assert {x.side for x in by_property(tiny_models.build("GPT-2")).values()} == {"decoder"}


def test_nothing_passes_that_proves_nothing() -> None:
    for layer in (nn.TransformerEncoderLayer, TransformerEncoderLayer):
        findings = by_property(Encoder("none", layer))
        for name in ("left padding", "shift", "beyond the end"):
            assert findings[name].outcome == "not applicable"
            assert findings[name].detail.startswith("its claim is")
    bloom = by_property(tiny_models.build("BLOOM"))
    assert "follow the mask" in bloom["shift"].detail
    assert "causal mask" in bloom["effect"].detail


@pytest.mark.parametrize(
    ("model", "places", "claim", "outcome"),
    [
        (Encoder, "none", None, "FAIL"), (Encoder, "none", "none", "pass"),
        (Encoder, "all", "none", "FAIL"), (Causal, "all", "absolute", "pass"),
        (Causal, "none", "absolute", "FAIL"), (Causal, "none", None, "not applicable"),
    ],
)  # fmt: skip
def test_positions_that_were_forgotten_are_missed_unless_a_causal_mask_orders_tokens(
    model: type[Encoder], places: str, claim: str | None, outcome: str
) -> None:
    assert by_property(model(places), claim)["effect"].outcome == outcome


class Pooled(Encoder):
    def forward(self, ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(ids)[:, 0, :2]


class Endless(Encoder):
    """Does not say that its table has 16 rows."""

    def __init__(self) -> None:
        super().__init__()
        del self.max_length
        self.config = {"vocab_size": 60}


class Lengths(Encoder):
    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(ids)


class Mapped(Encoder):
    def forward(self, ids: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
        return {"scores": super().forward(ids)}


def small(**settings: object) -> nn.Module:
    special = {"pad_token_id": None, "eos_token_id": [2, 3]}
    return tiny_models.build("Llama", **special, **settings)


@pytest.mark.parametrize(
    ("model", "max_length", "message"),
    [
        (3, 10, "nn.Module"),
        (nn.Linear(2, 2), 10, "vocab_size"),
        (Pooled(), 10, r"a tensor of shape \(2, 2\).*outputs for each token, \(B, T, V\)"),
        (Mapped(), 10, "a dict without logits .*outputs for each token"),
        (
            tiny_models.make("WhisperForConditionalGeneration"), 10,
            r"fails for 5 token ids alone \(ValueError: Whisper .*wrap it in a module with forward",
        ),
        (Endless(), 300, r"Endless fails for 70 token ids .*IndexError.*attribute max_length"),
        (Lengths(), 10, r"token ids alone .*'lengths'.*; wrap it in a module with forward\(ids\)"),
        (small(), 1, "max_length must be at least 4, got 1"),
        (small(max_position_embeddings=1), 10, "LlamaForCausalLM has 1 positions, .* 5 or more"),
        (small(vocab_size=1), 10, "1 of 1 tokens are not special, .*larger vocab_size"),
        (small(vocab_size=4), 10, "0 of 4 tokens are not special, .*larger vocab_size"),
    ],
)  # fmt: skip
def test_what_cannot_be_checked_is_refused(model: nn.Module, max_length: int, message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        check(model, max_length=max_length)
