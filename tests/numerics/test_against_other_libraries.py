"""Our kinds against the implementations people know: transformers, x-transformers,
rotary-embedding-torch. `pip install '.[compare]'` brings them; what is missing is skipped.

Theirs compute angles and logarithms in float32, so that tolerances grow with the positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shapeshift.positions import (
    T5,
    Absolute,
    ALiBi,
    Representation,
    Rotary,
    Shaw,
    Sinusoidal,
    Skew,
    XPos,
)

B, H, T, E = 2, 3, 40, 16


def library(name: str, *needed: str) -> ModuleType:
    """Import a module of a library, or skip where it, or what is needed of it, is not there."""
    pytest.importorskip(name.partition(".")[0])
    try:
        module = import_module(name)
    except ImportError:
        pytest.skip(f"this version has no {name}")
    for attribute in needed:
        if not hasattr(module, attribute):
            pytest.skip(f"this version's {name} has no {attribute}")
    return module


def hugging_face(family: str, *needed: str) -> ModuleType:
    return library(f"transformers.models.{family}.modeling_{family}", *needed)


@pytest.fixture
def heads() -> tuple[Tensor, Tensor]:
    """Queries and keys `(B, H, T, E)`."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, B, H, T, E, generator=generator)
    return q, k


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)


def close(got: Sequence[Tensor], expected: Sequence[Tensor], *, atol: float) -> None:
    torch.testing.assert_close(tuple(got), tuple(expected), atol=atol, rtol=1e-5)


# Rotary


def rope(**settings: Any) -> dict[str, Any]:
    """Return what says the same of rotary positions to a configuration of transformers 5 or 4."""
    settings = {"rope_type": "default", "rope_theta": 10000.0, **settings}
    if int(library("transformers").__version__.partition(".")[0]) >= 5:
        return {"rope_parameters": settings}
    theta, fraction = settings.pop("rope_theta"), settings.pop("partial_rotary_factor", 1.0)
    scaling = None if settings["rope_type"] == "default" else settings
    return {"rope_theta": theta, "rotary_pct": fraction, "rope_scaling": scaling}


def llama(positions: Tensor, **settings: Any) -> tuple[Tensor, Tensor]:
    """Return cos and sin as Llama computes them, `(B|1, T, E)`."""
    transformers = library("transformers")
    module = hugging_face("llama", "LlamaRotaryEmbedding", "apply_rotary_pos_emb")
    config = transformers.LlamaConfig(
        hidden_size=4 * E, num_attention_heads=4, max_position_embeddings=2048, **rope(**settings)
    )  # fmt: skip
    return module.LlamaRotaryEmbedding(config)(torch.zeros(()), positions)


@pytest.mark.parametrize("offset", [0, 3000])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"base": 5e5}, {"rope_theta": 5e5}),
        ({"scaling": "linear", "factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
    ],
    ids=["plain", "base", "linear"],
)
def test_rotary_in_halves_is_llamas(
    heads: tuple[Tensor, Tensor], ours: dict[str, Any], theirs: dict[str, Any], offset: int
) -> None:
    pos = Absolute()(B, T, offset=torch.tensor([offset, 2 * offset]))
    turn = hugging_face("llama", "apply_rotary_pos_emb").apply_rotary_pos_emb
    expected = turn(*heads, *llama(pos, **theirs))
    got = Rotary(head_dim=E, pairs="halves", **ours).rotate(*heads, pos, pos)
    close(got, expected, atol=2e-3 if offset else 1e-5)


def test_part_of_the_channels_turns_as_in_gpt_neox(heads: tuple[Tensor, Tensor]) -> None:
    transformers = library("transformers")
    module = hugging_face("gpt_neox", "GPTNeoXRotaryEmbedding", "apply_rotary_pos_emb")
    config = transformers.GPTNeoXConfig(
        hidden_size=4 * E, num_attention_heads=4, **rope(partial_rotary_factor=0.25)
    )  # fmt: skip
    pos = Absolute()(B, T)
    cos, sin = module.GPTNeoXRotaryEmbedding(config)(torch.zeros(()), pos)
    expected = module.apply_rotary_pos_emb(*heads, cos, sin)
    got = Rotary(head_dim=E, pairs="halves", fraction=0.25).rotate(*heads, pos, pos)
    close(got, expected, atol=1e-5)


def test_interleaved_rotary_is_gpt_js(heads: tuple[Tensor, Tensor]) -> None:
    module = hugging_face("gptj", "create_sinusoidal_positions", "apply_rotary_pos_emb")
    sin, cos = module.create_sinusoidal_positions(T, E).unsqueeze(0).chunk(2, dim=-1)
    pos = Absolute()(B, T)
    expected = [
        module.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2) for x in heads
    ]
    close(Rotary(head_dim=E).rotate(*heads, pos, pos), expected, atol=1e-5)


def test_interleaved_rotary_is_roformers(heads: tuple[Tensor, Tensor]) -> None:
    module = hugging_face("roformer", "RoFormerSelfAttention")
    table = Sinusoidal(dim=E, channels="halves").encode(Absolute()(1, T), heads[0])  # (1, T, E)
    turn = module.RoFormerSelfAttention.apply_rotary_position_embeddings
    pos = Absolute()(B, T)
    got = Rotary(head_dim=E).rotate(*heads, pos, pos)
    close(got, turn(table[:, None], *heads), atol=1e-5)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        ({"base": 500.0}, {"theta": 500.0}),
        ({"scaling": "linear", "factor": 4.0}, {"interpolate_factor": 4.0}),
        ({"scaling": "ntk", "factor": 8.0}, {"theta_rescale_factor": 8.0}),
    ],
    ids=["plain", "base", "linear", "ntk"],
)
def test_interleaved_rotary_is_rotary_embedding_torchs(
    heads: tuple[Tensor, Tensor], ours: dict[str, Any], theirs: dict[str, Any]
) -> None:
    module = library("rotary_embedding_torch").RotaryEmbedding(E, **theirs)
    pos = Absolute()(B, T)
    expected = [module.rotate_queries_or_keys(x) for x in heads]
    close(Rotary(head_dim=E, **ours).rotate(*heads, pos, pos), expected, atol=1e-5)


YARN = {"factor": 8.0, "original_length": 4096}


def yarn() -> tuple[Tensor, float]:
    """Return θ `(2E,)` of heads with 4E channels, and what multiplies queries and keys, from
    transformers; without its rounding of the borders to whole pairs."""
    functions = library("transformers.modeling_rope_utils", "ROPE_INIT_FUNCTIONS")
    config = library("transformers").LlamaConfig(
        hidden_size=16 * E, num_attention_heads=4, max_position_embeddings=8 * 4096,
        **rope(
            rope_type="yarn", factor=8.0, original_max_position_embeddings=4096, truncate=False
        ),
    )  # fmt: skip
    theta, scale = functions.ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    return theta.double(), scale


def test_yarn_is_that_of_transformers_but_for_the_ramp() -> None:
    theirs, scale = yarn()
    ours = Rotary(head_dim=4 * E, pairs="halves", scaling="yarn", **YARN)
    theta, plain = ours.frequencies(), Rotary(head_dim=4 * E).frequencies()
    kept, interpolated = torch.isclose(theta, plain), torch.isclose(theta, plain / 8)
    assert min(kept.sum(), interpolated.sum()) > 3
    assert torch.allclose(theta[kept | interpolated], theirs[kept | interpolated], rtol=1e-5)
    assert math.isclose(ours.temperature**-0.5, scale, rel_tol=1e-9)
    # In between, as documented: their γ is linear in the number of a pair, and ours, the paper's,
    # in its turns, which fall exponentially with that number: a convex curve below their line.
    ramp = ~(kept | interpolated)
    assert ramp.sum() > 3
    assert (theta[ramp] < 0.999 * theirs[ramp]).all()


# xPos


def test_xpos_scores_are_rotary_embedding_torchs(heads: tuple[Tensor, Tensor]) -> None:
    module = library("rotary_embedding_torch").RotaryEmbedding(E, use_xpos=True)
    expected = scores(*module.rotate_queries_and_keys(*heads))
    pos = Absolute()(B, T)
    assert torch.allclose(scores(*XPos(head_dim=E).rotate(*heads, pos, pos)), expected, atol=1e-4)
    # With their centre, queries and keys themselves are the same, and not only their products.
    got = XPos(head_dim=E, centre=T // 2).rotate(*heads, pos, pos)
    close(got, module.rotate_queries_and_keys(*heads), atol=1e-5)


# T5


def line(low: int, high: int) -> tuple[Tensor, Tensor]:
    """Return positions of one query and of keys whose offsets from it are low … high − 1."""
    return torch.tensor([[-low]]), torch.arange(high - low).unsqueeze(0)


def buckets(t5: T5, low: int, high: int) -> Tensor:
    """Return the bucket of each offset, read from a table whose rows hold their own number."""
    with torch.no_grad():
        t5.weight.copy_(torch.arange(len(t5.weight)).unsqueeze(1))
    return t5.bias(*line(low, high), dtype=torch.float32).long().flatten()


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (32, 100), (64, 256)])
@pytest.mark.parametrize("causal", [False, True])
def test_t5_buckets_are_transformers_for_all_distances_to_4000(
    causal: bool, num_buckets: int, max_distance: int
) -> None:
    bucket = hugging_face("t5", "T5Attention").T5Attention._relative_position_bucket
    offsets = torch.arange(-4000, 4001)
    settings = {"num_buckets": num_buckets, "max_distance": max_distance}
    expected = bucket(offsets, bidirectional=not causal, **settings)
    got = buckets(T5(dim=8, num_heads=1, causal=causal, **settings), -4000, 4001)
    different = offsets[got != expected]
    # Where a border is a whole number, their logarithm may round to below it: one distance at most
    # for each of these borders, such as 64 for 32 buckets up to 128, and ours is never lower.
    assert (got >= expected).all()
    exact = {d for d in range(max_distance + 1) if _is_border(d, causal, num_buckets, max_distance)}
    assert {abs(int(d)) for d in different} <= exact


def _is_border(distance: int, causal: bool, num_buckets: int, max_distance: int) -> bool:
    per_side = num_buckets if causal else num_buckets // 2
    near = per_side // 2
    return any(distance**near == near ** (near - m) * max_distance**m for m in range(near + 1))


@pytest.mark.parametrize("causal", [False, True])
def test_t5_bias_is_transformers(causal: bool) -> None:
    transformers = library("transformers")
    module = hugging_face("t5", "T5Attention")
    config = transformers.T5Config(d_model=8, d_kv=4, num_heads=H, is_decoder=causal)
    theirs = module.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5(dim=8, num_heads=H, causal=causal)
    with torch.no_grad():
        ours.weight.copy_(theirs.relative_attention_bias.weight.normal_())
    pos = Absolute()(1, 60)
    got = ours.bias(pos, pos, dtype=torch.float32)
    assert torch.equal(got, theirs.compute_bias(60, 60))


@pytest.mark.parametrize("causal", [False, True])
def test_t5_bias_is_x_transformers(causal: bool) -> None:
    module = library("x_transformers.x_transformers", "RelativePositionBias")
    theirs = module.RelativePositionBias(scale=1.0, causal=causal, heads=H)
    ours = T5(dim=8, num_heads=H, causal=causal)
    with torch.no_grad():
        ours.weight.copy_(theirs.relative_attention_bias.weight.normal_())
    pos = Absolute()(1, 60)
    got = ours.bias(pos[:, -7:], pos, dtype=torch.float32)  # the last seven, as with a cache
    assert torch.equal(got[0], theirs(7, 60))


# ALiBi


def alibi(num_heads: int, length: int) -> Tensor:
    pos = Absolute()(1, length)
    return ALiBi(num_heads=num_heads).bias(pos, pos, dtype=torch.float32)[0]


@pytest.mark.parametrize("num_heads", [1, 2, 8, 12, 16, 20, 32])
def test_alibi_is_x_transformers_on_both_sides(num_heads: int) -> None:
    module = library("x_transformers.x_transformers", "AlibiPositionalBias")
    expected = module.AlibiPositionalBias(num_heads)(60, 60)
    assert torch.allclose(alibi(num_heads, 60), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("num_heads", [1, 2, 8, 12, 16, 20, 32])
@pytest.mark.parametrize("family", ["bloom", "mpt"])
def test_alibi_is_that_of_causal_models(family: str, num_heads: int) -> None:
    # They add a number that grows with the key alone: in the softmax over the keys that a causal
    # mask leaves, it differs from ours by a number for each query, which cancels.
    module = hugging_face(family)
    if family == "bloom":
        rows = module.build_alibi_tensor(torch.ones(1, 50), num_heads, torch.float32)
    else:
        rows = module.build_mpt_alibi_tensor(num_heads, 50)
    causal = torch.full((50, 50), float("-inf")).triu(1)
    expected = (rows.view(num_heads, 1, 50) + causal).softmax(-1)
    assert torch.allclose((alibi(num_heads, 50) + causal).softmax(-1), expected, atol=1e-5)


# Shaw and skew


def keys_with(table: Tensor, kind: str) -> Representation:
    """Return a representation of ours with this table `(2k + 1, E)` of keys for all heads."""
    distance, width = table.shape[0] // 2, table.shape[1]
    if kind == "shaw":
        ours = Shaw(num_heads=H, head_dim=width, max_distance=distance, add_to="keys")
    else:
        ours = Skew(num_heads=H, head_dim=width, max_distance=distance, per_head=False)
    with torch.no_grad():
        ours.keys.copy_(table.unsqueeze(0))
    return ours


@pytest.mark.parametrize("kind", ["shaw", "skew"])
def test_vectors_of_keys_are_those_of_wav2vec2_bert(
    heads: tuple[Tensor, Tensor], kind: str
) -> None:
    # transformers 5 took `relative_key` out of BERT; this is the class that has it still.
    transformers = library("transformers")
    module = hugging_face("wav2vec2_bert", "Wav2Vec2BertSelfAttention")
    config = transformers.Wav2Vec2BertConfig(
        hidden_size=H * E, num_attention_heads=H, position_embeddings_type="relative_key",
        left_max_position_embeddings=9, right_max_position_embeddings=9,
        attn_implementation="eager", attention_dropout=0.0,
    )  # fmt: skip
    theirs = module.Wav2Vec2BertSelfAttention(config).eval()
    x = torch.randn(B, T, H * E, generator=torch.Generator().manual_seed(1))
    _, expected = theirs(x)
    ours = keys_with(theirs.distance_embedding.weight, kind)
    split = (B, T, H, E)
    q, k = (make(x).view(split).transpose(1, 2) for make in (theirs.linear_q, theirs.linear_k))
    pos = Absolute()(B, T)
    got = (scores(q, k) * E**-0.5 + ours.query_bias(q * E**-0.5, pos, pos)).softmax(-1)
    assert torch.allclose(got, expected, atol=1e-6)
    assert not torch.allclose((scores(q, k) * E**-0.5).softmax(-1), expected, atol=1e-3)


@pytest.mark.parametrize("kind", ["shaw", "skew"])
@pytest.mark.parametrize("variant", ["relative_key", "relative_key_query"])
def test_vectors_of_keys_are_those_of_bert(kind: str, variant: str) -> None:
    transformers = library("transformers")
    attention = hugging_face("bert", "BertSelfAttention").BertSelfAttention
    config = transformers.BertConfig(hidden_size=H * E, num_attention_heads=H)
    try:
        theirs = attention(config, position_embedding_type=variant).eval()
        table = theirs.distance_embedding.weight
    except (TypeError, AttributeError):
        pytest.skip("this version's BERT has no relative_key; transformers 4 has it")
    x = torch.randn(B, T, H * E, generator=torch.Generator().manual_seed(1))
    _, expected = theirs(x, output_attentions=True)
    split = (B, T, H, E)
    q, k = (make(x).view(split).transpose(1, 2) for make in (theirs.query, theirs.key))
    q = q * E**-0.5
    pos = Absolute()(B, T)
    bias = keys_with(table.flip(0), kind).query_bias(q, pos, pos)  # BERT counts i − j, we j − i
    if variant == "relative_key_query":  # k_j a_ij^T as well: what j says of i, as q_i does of j
        bias = bias + keys_with(table, kind).query_bias(k * E**-0.5, pos, pos).transpose(-1, -2)
    assert torch.allclose((scores(q, k) + bias).softmax(-1), expected, atol=1e-6)


# Sinusoidal


def sines(channels: str, length: int, **options: Any) -> Tensor:
    encoding = Sinusoidal(dim=E, channels=channels, **options)  # type: ignore[arg-type]
    return encoding.encode(Absolute()(1, length), torch.zeros(()))[0]


def test_sines_first_are_marians() -> None:
    module = hugging_face("marian", "MarianSinusoidalPositionalEmbedding")
    theirs = module.MarianSinusoidalPositionalEmbedding(600, E)
    if hasattr(theirs, "create_weight"):
        expected = theirs.create_weight()
    else:  # transformers 4
        theirs._init_weight()
        expected = theirs.weight
    assert torch.allclose(sines("halves", 600), expected, atol=1e-6)


def test_tensor2tensors_sines_are_m2m100s() -> None:
    module = hugging_face("m2m_100", "M2M100SinusoidalPositionalEmbedding")
    expected = module.M2M100SinusoidalPositionalEmbedding.get_embedding(600, E)
    assert torch.allclose(sines("tensor2tensor", 600), expected, atol=2e-4)


def test_sines_and_cosines_that_take_turns_are_distilberts() -> None:
    module = hugging_face("distilbert", "create_sinusoidal_embeddings")
    expected = nn.Embedding(600, E).weight.detach().clone()
    module.create_sinusoidal_embeddings(600, E, out=expected)
    assert torch.allclose(sines("interleaved", 600), expected, atol=1e-6)


def test_sines_and_cosines_that_take_turns_are_those_of_the_torch_tutorial() -> None:
    # SpeechT5's are the tutorial's lines, exp(−2m log(10000) / D) and all, with a factor of 1.
    module = hugging_face("speecht5", "SpeechT5ScaledPositionalEncoding")
    encoding = module.SpeechT5ScaledPositionalEncoding(0.0, E, max_len=600)
    x = torch.randn(B, 600, E, generator=torch.Generator().manual_seed(0))
    pos = Absolute()(B, 600)
    assert torch.allclose(Sinusoidal(dim=E).embed(x, pos), encoding(x), atol=2e-4)
