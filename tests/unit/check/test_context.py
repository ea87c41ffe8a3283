"""Context extension: each method against transformers' own model, passkeys, caches, refusals."""

from __future__ import annotations

import math
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.unit import tiny_models
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift import use_position
from shapeshift._system.errors import ShapeshiftError
from shapeshift.check import Extension, context, declared
from shapeshift.check.context import passkey, spans
from shapeshift.interop.extend import METHODS, extended

hf = tiny_models.hf
TRAINED, LENGTH, FACTOR, BASE = 16, 64, 4.0, 10000.0
ORIGINAL = {"original_max_position_embeddings": TRAINED}
WIDTH = 8  # of a head
BY_HAND: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": FACTOR},
    "ntk": {"rope_type": "default", "rope_theta": BASE * 4 ** (8 / 6)},
    "dynamic": {"rope_type": "dynamic", "factor": 1.0},
    "yarn": {"rope_type": "yarn", "factor": FACTOR, **ORIGINAL},
    "longrope": {
        "rope_type": "longrope", "factor": FACTOR, "short_factor": [1.0] * 4,
        "long_factor": [1.0, 4 ** (1 / 3), 4 ** (2 / 3), 4.0], **ORIGINAL,
    },
    "llama3": {
        "rope_type": "llama3", "factor": FACTOR, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        **ORIGINAL,
    },
}  # fmt: skip
"""What the documentation says that each method is, for 4 pairs of channels."""


def llama(**rope: Any) -> Any:
    """A Llama whose logits depend on positions a lot."""
    settings = {"pad_token_id": None, "bos_token_id": None, "eos_token_id": None, "vocab_size": 40}
    rope = {"rope_theta": BASE, "rope_type": "default", **rope}
    model = tiny_models.make("LlamaForCausalLM", TRAINED, rope_parameters=rope, **settings)
    for weight in model.parameters():
        weight.data *= 5 if weight.ndim > 1 else 1
    return model


TEXT = torch.randint(4, 40, (3 * LENGTH,), generator=torch.Generator().manual_seed(2))


def rows(model: Any, *methods: str, **options: Any) -> dict[str, Extension]:
    given = {"length": LENGTH, "text": TEXT, "num_passkeys": 0, **options}
    return {row.method: row for row in context(model, methods, **given)}


@torch.no_grad()
def perplexity(model: Any, start: int, end: int, **positions: Any) -> float:
    """Of the tokens at `start` to `end`, one after the other."""
    losses = []
    for window in (TEXT[:LENGTH], TEXT[LENGTH : 2 * LENGTH], TEXT[2 * LENGTH :]):
        log_probs = model(window[None], **positions).logits[0].double().log_softmax(-1)
        losses += [-log_probs[n - 1, window[n]].item() for n in range(max(start, 1), end)]
    return math.exp(sum(losses) / len(losses))


@pytest.mark.parametrize("method", BY_HAND)
def test_perplexities_are_those_of_transformers_configured_by_hand(method: str) -> None:
    theirs = llama(**BY_HAND[method])
    [_, ours] = rows(llama(), method).values()
    assert [span[:2] for span in ours.perplexity] == [
        (0, 8), (8, 16), (16, 24), (24, 32), (32, 48), (48, 64)
    ]  # fmt: skip
    for start, end, value in ours.perplexity:
        assert value == pytest.approx(perplexity(theirs, start, end), rel=1e-4)


def test_linear_is_interpolation_of_positions() -> None:
    [unchanged, linear] = rows(llama(), "linear").values()
    between = torch.arange(LENGTH)[None] / FACTOR
    for start, end, value in linear.perplexity:
        expected = perplexity(llama(), start, end, position_ids=between)
        assert value == pytest.approx(expected, rel=1e-4)
    assert unchanged.perplexity[-1][2] == pytest.approx(perplexity(llama(), 48, 64), rel=1e-4)
    assert unchanged.perplexity[-1][2] != pytest.approx(linear.perplexity[-1][2], rel=0.01)


class Unturned(nn.Module):
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        shape = (1, x.shape[1], WIDTH)
        return torch.ones(shape), torch.zeros(shape)


def test_drope_has_no_rotation() -> None:
    model, unturned = llama(), llama()
    unturned.model.rotary_emb = Unturned()
    [_, dropped] = rows(model, "drope").values()
    assert dropped.perplexity[-1][2] == pytest.approx(perplexity(unturned, 48, 64), rel=1e-4)
    assert any(reading.property == "θ" for reading in declared(model))
    with extended(model, "drope", TRAINED, LENGTH):
        assert not any(reading.property == "θ" for reading in declared(model))


def test_a_cache_of_two_bases_is_found() -> None:
    found = rows(llama(), *METHODS)
    assert list(found) == ["unchanged", *METHODS]
    inconsistent = {name for name, row in found.items() if not row.is_consistent}
    assert inconsistent == {"dynamic", "longrope"}
    assert all(0.01 < found[name].cache < 100 for name in inconsistent)
    assert all(row.cache < 1e-4 for name, row in found.items() if name not in inconsistent)


class Forgetful(hf.LlamaForCausalLM):
    """Numbers its tokens from 0 in each call."""

    def forward(self, ids: Tensor, past_key_values: Any = None, use_cache: bool = False) -> Any:
        pos = torch.arange(ids.shape[1])[None]
        given = {"past_key_values": past_key_values, "use_cache": use_cache}
        return super().forward(ids, position_ids=pos, **given)


def test_a_model_whose_cache_is_wrong_is_found() -> None:
    broken = Forgetful(llama().config)
    broken.load_state_dict(llama().state_dict())
    [row] = rows(broken).values()
    assert row.is_consistent is False


@pytest.mark.parametrize(
    ("method", "wrong"),
    [("yarn", "attention factor"), ("yarn", "θ"), ("longrope", "long factors ignored")],
)
def test_a_broken_method_is_found(method: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    right = ROPE_INIT_FUNCTIONS[method]

    def broken(*args: Any, **kwargs: Any) -> tuple[Tensor, float]:
        if wrong == "long factors ignored":
            return right(*args, **{**kwargs, "seq_len": None})
        theta, factor = right(*args, **kwargs)
        return (theta, 1.0) if wrong == "attention factor" else (theta * 1.001, factor)

    monkeypatch.setitem(ROPE_INIT_FUNCTIONS, method, broken)
    [_, linear, found] = rows(llama(), "linear", method).values()
    assert not linear.refused
    assert "computes other cosines or sines" in found.refused
    assert not found.perplexity


def test_the_model_is_as_before() -> None:
    model = llama()
    config, logits = model.config.to_dict(), model(TEXT[None]).logits
    rotary = model.model.rotary_emb
    rows(model, *METHODS)
    with pytest.raises(ShapeshiftError, match="unknown method 'yarm'"):
        extended(model, "yarm", TRAINED, LENGTH).__enter__()
    with pytest.raises(KeyboardInterrupt), extended(model, "yarn", TRAINED, LENGTH):
        raise KeyboardInterrupt
    assert model.config.to_dict() == config
    assert model.model.rotary_emb is rotary
    assert torch.equal(model(TEXT[None]).logits, logits)


def test_given_rope_parameters() -> None:
    given = {"rope_type": "yarn", "factor": 2.0, "beta_fast": 8, **ORIGINAL}
    found = rows(llama(), "mine", rope_parameters={"mine": given})
    theirs = llama(**given)
    assert found["mine"].perplexity[-1][2] == pytest.approx(perplexity(theirs, 48, 64), rel=1e-4)
    assert found["mine"].parameters == {"rope_theta": BASE, **given}
    wrong = rows(llama(), "mine", rope_parameters={"mine": {"rope_type": "yarm"}})
    assert "did you mean 'yarn'" in wrong["mine"].refused


def test_after_use_position() -> None:
    """Our rotation has one θ for all lengths, so that each cache is right."""
    plain, model = rows(llama(), *METHODS), llama()
    use_position(model, "rope")
    for name, row in rows(model, *METHODS).items():
        assert row.is_consistent, name
        for ours, theirs in zip(row.perplexity, plain[name].perplexity, strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4), name


def test_layers_with_windows_keep_their_rotation() -> None:
    types = ["sliding_attention", "full_attention"]
    model = tiny_models.make("Gemma3ForCausalLM", TRAINED, sliding_window=8, layer_types=types)
    before = deepcopy(model.config.rope_parameters)
    with extended(model, "linear", TRAINED, LENGTH):
        now = model.config.rope_parameters
        assert now["full_attention"] == {**before["full_attention"], **BY_HAND["linear"]}
        assert now["sliding_attention"] == before["sliding_attention"]
        buffers = dict(model.model.rotary_emb.named_buffers())
    theta = buffers["full_attention_inv_freq"], buffers["sliding_attention_inv_freq"]
    powers = -torch.arange(4, dtype=torch.float64) / 4
    for got, wanted in zip(theta, (1e6**powers / FACTOR, 1e4**powers), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=0)


class Copier(nn.Module):
    """Continues as its last three tokens were continued before, within so many tokens."""

    def __init__(self, reach: int):
        super().__init__()
        self.embed_tokens, self.reach = nn.Embedding(60, 1), reach
        self.config = SimpleNamespace(max_position_embeddings=TRAINED, vocab_size=60)

    def forward(self, ids: Tensor) -> Tensor:
        [row] = ids.tolist()
        following = []
        for end in range(1, len(row) + 1):
            last = row[max(0, end - 3) : end]
            starts = range(max(0, end - self.reach), end - 3)
            found = [row[n + 3] for n in starts if row[n : n + 3] == last]
            following.append(found[-1] if found else 0)
        return F.one_hot(torch.tensor([following]), 60).float()


@pytest.mark.parametrize("reach", [1000, 50])
def test_passkeys_are_found_as_far_as_a_model_sees(reach: int) -> None:
    [row, refused] = rows(Copier(reach), "yarn", text=None, num_passkeys=3).values()
    assert [case[:2] for case in row.passkey] == [
        (size, depth) for size in (16, 32, 64) for depth in (0, 0.25, 0.5, 0.75, 1)
    ]
    for size, depth, share in row.passkey:
        fact = round((size - 16) * depth)  # where the three ids before the passkey begin
        assert share == (size - 5 - fact <= reach), (size, depth)
    assert row.cache is None
    assert "Hugging Face" in refused.refused


def words(text: str) -> list[int]:
    """Ids of the characters."""
    return [ord(each) for each in text]


@pytest.mark.parametrize("depth", [0.0, 0.3, 1.0])
def test_a_passkey_in_text(depth: float) -> None:
    ids, num_answer = passkey(600, depth, words, seed=3)
    text = "".join(map(chr, ids.tolist()))
    assert len(text) == 600
    key = text[-num_answer:].strip()
    assert len(key) == 5
    assert text.count(key) == 3
    start, end = text.index(" The pass key is"), text.index(" is the pass key.") + 17
    assert text.startswith("There is an important info")
    assert text.endswith(f" What is the pass key? The pass key is {key}")
    filler = text[:start].partition("information there.")[2] + text[end:].partition(" What is")[0]
    assert len(filler) * depth == pytest.approx(start - text.index("there.") - 6, abs=1)
    assert filler.startswith(" The grass is green. The sky")
    assert passkey(600, depth, words, seed=4)[0].tolist() != ids.tolist()


def test_spans() -> None:
    assert spans(5, 12) == [(0, 2), (2, 5), (5, 7), (7, 10), (10, 12)]
    assert spans(8, 8) == [(0, 4), (4, 8)]


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"length": TRAINED}, "length=16 is not above 16, the length that LlamaForCausalLM"),
    ({"text": TEXT[:63]}, "the text has 63 tokens, fewer than the length of 64"),
    ({"methods": ["yarm"]}, "unknown method 'yarm'; did you mean 'yarn'.*linear, ntk"),
    ({"num_passkeys": 1, "encode": words}, "a passkey with its question takes .* 16 that"),
    ({"num_passkeys": 1, "encode": lambda text: []}, "encode returns no ids for a text"),
]


@pytest.mark.parametrize(("options", "message"), REFUSALS)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ShapeshiftError, match=message):
        [*context(llama(), **{"methods": [], "length": LENGTH, "num_passkeys": 0, **options})]


def test_a_model_that_scales_its_rotation_already() -> None:
    [unchanged, yarn, drope] = rows(llama(**BY_HAND["linear"]), "yarn", "drope").values()
    assert "already, by 'linear'" in yarn.refused
    assert unchanged.perplexity
    assert drope.perplexity


@pytest.mark.parametrize("position", ["alibi", "table"])
def test_a_model_without_rotary_positions_is_measured_unchanged(position: str) -> None:
    model = tiny_models.make("GPT2LMHeadModel", TRAINED)
    if position == "alibi":
        use_position(model := llama(), "alibi")
    [unchanged, yarn, drope] = rows(model, "yarn", "drope", num_passkeys=1).values()
    assert "has no rotary positions" in yarn.refused
    assert yarn.refused == drope.refused
    end = LENGTH if position == "alibi" else TRAINED
    assert unchanged.length == end
    assert unchanged.perplexity[-1][1] == end
    assert {size for size, _, _ in unchanged.passkey} == {n for n in (16, 32, 64) if n <= end}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_causal", [True, False])
def test_a_model_that_sees_later_tokens_is_refused(is_causal: bool, dtype: torch.dtype) -> None:
    model = tiny_models.make("BertLMHeadModel", TRAINED, is_decoder=is_causal).to(dtype)
    for weight in model.parameters():
        weight.data *= 10 if weight.ndim > 1 else 1  # as much as in a trained model
    if is_causal:
        assert rows(model)
    else:
        with pytest.raises(ShapeshiftError, match="BertLMHeadModel is not causal"):
            rows(model)


def test_an_encoder_decoder_is_refused() -> None:
    with pytest.raises(ShapeshiftError, match="no causal model"):
        next(context(tiny_models.build("BART")))
