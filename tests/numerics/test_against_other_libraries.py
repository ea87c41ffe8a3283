"""Our kinds against the implementations people know: transformers, x-transformers,
rotary-embedding-torch. `pip install '.[compare]'` brings them; what is missing is skipped.

Theirs compute angles and logarithms in float32, so that tolerances grow with the positions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from shapeshift.attention import attend, attend_with_probs
from shapeshift.positions import (
    T5,
    Absolute,
    ALiBi,
    Axial,
    Inkling,
    Part,
    PaTH,
    PoPE,
    Rotary,
    Scheme,
    Sinusoidal,
    Skew,
    Stack,
    XPos,
    place,
)

B, H, T, E = 2, 3, 40, 16


def library(name: str) -> ModuleType:
    """Import a module of a library, or skip where it is not there."""
    pytest.importorskip("transformers", minversion="5")
    return pytest.importorskip(name)


def hugging_face(family: str) -> ModuleType:
    return library(f"transformers.models.{family}.modeling_{family}")


def config_of(family: str, **settings: Any) -> Any:
    """Return a configuration of four heads of width E; `settings` of rotary positions."""
    make = getattr(library("transformers"), f"{family}Config")
    rope = {"rope_type": "default", "rope_theta": 10000.0, **settings}
    return make(
        hidden_size=4 * E, num_attention_heads=4, max_position_embeddings=2048, rope_parameters=rope
    )


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


LINEAR = {"scaling": "linear", "factor": 4.0}


@pytest.mark.parametrize("offset", [0, 3000])
@pytest.mark.parametrize(
    ("family", "name", "ours", "theirs"),
    [
        ("llama", "Llama", {}, {}),
        ("llama", "Llama", LINEAR, {"rope_type": "linear", "factor": 4.0}),
        ("gpt_neox", "GPTNeoX", {"fraction": 0.25}, {"partial_rotary_factor": 0.25}),
    ],
    ids=["plain", "linear", "partial"],
)
def test_rotary_in_halves_is_llamas_and_gpt_neoxs(
    heads: tuple[Tensor, Tensor], family: str, name: str, ours: Any, theirs: Any, offset: int
) -> None:
    pos = Absolute()(B, T, offset=torch.tensor([offset, 2 * offset]))
    module = hugging_face(family)
    embedding = getattr(module, f"{name}RotaryEmbedding")(config_of(name, **theirs))
    cos_sin = embedding(torch.zeros(()), pos)
    got = Rotary(head_dim=E, pairs="halves", **ours).rotate(*heads, pos, pos)
    close(got, module.apply_rotary_pos_emb(*heads, *cos_sin), atol=2e-3 if offset else 1e-5)


def test_rotary_in_all_but_every_fourth_layer_is_smollm3s() -> None:
    smollm3, (dim, num_heads, num_layers) = hugging_face("smollm3"), (4 * E, 4, 6)
    config = library("transformers").SmolLM3Config(
        vocab_size=50, hidden_size=dim, intermediate_size=dim, num_hidden_layers=num_layers,
        num_attention_heads=num_heads, num_key_value_heads=num_heads, pad_token_id=0,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = smollm3.SmolLM3ForCausalLM(config).double().eval()
    layers = {"except": {"every": 4, "offset": 3}}
    rotary = Part("rotary", layers=layers, options={"pairs": "halves", "base": 500.0})
    stack = Stack("decoder", dim, num_heads, num_layers)
    ids, pos = torch.randint(1, 50, (B, T)), torch.arange(T)[None]
    x = theirs.model.embed_tokens(ids)
    placed = place(Scheme(parts=(rotary,)), stack).self_attention
    for layer, position in zip(theirs.model.layers, placed, strict=True):
        attention, inputs = layer.self_attn, layer.input_layernorm(x)
        projections = (attention.q_proj, attention.k_proj, attention.v_proj)
        q, k, v = (f(inputs).view(B, T, num_heads, E).transpose(1, 2) for f in projections)
        q, k = position("rotate", q, k, pos, pos)
        heads = attend(q, k, v, None, position, pos, pos, causal=True)
        x = x + attention.o_proj(heads.transpose(1, 2).flatten(2))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    logits = theirs.lm_head(theirs.model.norm(x))
    assert [position.acts("rotate") for position in placed] == [True, True, True, False, True, True]
    # Their angles are float32.
    torch.testing.assert_close(logits, theirs(ids).logits, atol=1e-5, rtol=1e-5)


def axes_of(tokens: Sequence[tuple[float, ...]], dtype: torch.dtype = torch.int64) -> Tensor:
    """Return positions `(1, T, A)`."""
    return torch.tensor(tokens, dtype=dtype)[None]


TEXT_AND_IMAGE = axes_of(
    [(n, n, n) for n in range(5)]
    + [(5, 5 + row, 5 + column) for row in range(6) for column in range(4)]
    + [(n, n, n) for n in range(11, 22)]
)
"""Time, row and column of 5 words, an image of 6 x 4 patches, and 11 words, `(1, 40, 3)`."""


@pytest.mark.parametrize(
    ("family", "name", "config", "sections", "order"),
    [
        ("qwen2_vl", "Qwen2VL", "Qwen2VLText", [2, 3, 3], "blocks"),
        ("qwen3_vl", "Qwen3VLText", "Qwen3VLText", [4, 2, 2], "interleaved"),
    ],
)
def test_rotary_with_sections_is_that_of_qwen(
    heads: tuple[Tensor, Tensor],
    family: str,
    name: str,
    config: str,
    sections: list[int],
    order: Any,
) -> None:
    theirs = hugging_face(family)
    settings = config_of(config, mrope_section=sections, rope_theta=1e6)
    settings.head_dim = E
    embedding = getattr(theirs, f"{name}RotaryEmbedding")(settings)
    ours = Rotary(head_dim=E, base=1e6, pairs="halves", sections=sections, section_order=order)
    pos = torch.cat((TEXT_AND_IMAGE, TEXT_AND_IMAGE + torch.tensor([0, 7, 2])))  # (B, T, 3)
    cos, sin = embedding(heads[0], pos.permute(2, 0, 1))
    expected = theirs.apply_rotary_pos_emb(*heads, cos, sin)
    close(ours.rotate(*heads, pos, pos), expected, atol=1e-5)
    read = Rotary.from_config(settings)
    assert (read.sections, read.section_order) == (sections, order)
    close(read.rotate(*heads, pos, pos), expected, atol=1e-5)
    alone = Rotary(head_dim=E, base=1e6, pairs="halves")
    words, three = torch.arange(T)[None], torch.arange(T)[None, :, None].expand(-1, -1, 3)
    close(ours.rotate(*heads, three, three), alone.rotate(*heads, words, words), atol=0)


def test_axial_rotary_is_dinov3s(heads: tuple[Tensor, Tensor]) -> None:
    theirs, (rows, columns) = hugging_face("dinov3_vit"), (7, 5)
    config = library("transformers").DINOv3ViTConfig(
        hidden_size=4 * E, num_attention_heads=4, patch_size=16
    )
    embedding = theirs.DINOv3ViTRopePositionEmbedding(config).eval()
    cos, sin = embedding(torch.zeros(1, 3, 16 * rows, 16 * columns))
    expected = theirs.apply_rotary_pos_emb(*heads, cos, sin)  # five tokens come before the image

    def at(i: int, num: int) -> float:
        return 2 * math.pi * (2 * i + 1 - num) / num

    image = [
        (at(row, rows), at(column, columns)) for row in range(rows) for column in range(columns)
    ]
    pos = axes_of([(0, 0)] * 5 + image, torch.float64)
    close(Axial(head_dim=E).rotate(*heads, pos, pos), expected, atol=1e-5)


def test_axial_rotary_is_pixtrals(heads: tuple[Tensor, Tensor]) -> None:
    theirs = hugging_face("pixtral")
    config = library("transformers").PixtralVisionConfig(hidden_size=4 * E, num_attention_heads=4)
    pos = axes_of([(row, column) for row in range(8) for column in range(5)])
    cos, sin = theirs.PixtralVisionRotaryEmbedding(config)(heads[0], pos.transpose(1, 2))
    expected = theirs.apply_rotary_pos_emb(*heads, cos, sin)
    ours = Axial(head_dim=E, base=config.rope_parameters["rope_theta"], order="alternating")
    close(ours.rotate(*heads, pos, pos), expected, atol=1e-5)


def test_yarn_is_that_of_transformers_but_for_the_ramp() -> None:
    functions = library("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    settings = {"factor": 8.0, "original_max_position_embeddings": 4096, "truncate": False}
    config = config_of("Llama", rope_type="yarn", **settings)
    config.head_dim = 4 * E
    theirs, scale = functions["yarn"](config, torch.device("cpu"))
    options = {"scaling": "yarn", "factor": 8.0, "original_length": 4096}
    ours = Rotary(head_dim=4 * E, pairs="halves", **options)
    theta, plain = ours.frequencies(), Rotary(head_dim=4 * E).frequencies()
    kept, interpolated = torch.isclose(theta, plain), torch.isclose(theta, plain / 8)
    assert min(kept.sum(), interpolated.sum()) > 3
    theirs = theirs.double()
    assert torch.allclose(theta[kept | interpolated], theirs[kept | interpolated], rtol=1e-5)
    assert math.isclose(ours.attention_factor, scale, rel_tol=1e-9)
    # In between, as documented: their γ is linear in the number of a pair, and ours, the paper's,
    # in its turns, which fall exponentially with that number: a convex curve below their line.
    ramp = ~(kept | interpolated)
    assert ramp.sum() > 3
    assert (theta[ramp] < 0.999 * theirs[ramp]).all()


def test_xpos_scores_are_rotary_embedding_torchs(heads: tuple[Tensor, Tensor]) -> None:
    module = library("rotary_embedding_torch").RotaryEmbedding(E, use_xpos=True)
    expected = scores(*module.rotate_queries_and_keys(*heads))
    pos = Absolute()(B, T)
    assert torch.allclose(scores(*XPos(head_dim=E).rotate(*heads, pos, pos)), expected, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_t5_bias_is_transformers(causal: bool) -> None:
    transformers = library("transformers")
    module = hugging_face("t5")
    config = transformers.T5Config(d_model=8, d_kv=4, num_heads=H, is_decoder=causal)
    theirs = module.T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5(dim=8, num_heads=H, causal=causal)
    with torch.no_grad():
        ours.weight.copy_(theirs.relative_attention_bias.weight.normal_())
    pos = Absolute()(1, 60)
    got = ours.bias(pos, pos, dtype=torch.float32)
    assert torch.equal(got, theirs.compute_bias(60, 60))


@pytest.mark.parametrize("num_heads", [1, 8, 12, 20])
def test_alibi_is_x_transformers_and_blooms(num_heads: int) -> None:
    pos = Absolute()(1, 60)
    ours = ALiBi(num_heads=num_heads).bias(pos, pos, dtype=torch.float32)[0]
    module = library("x_transformers.x_transformers")
    assert torch.allclose(ours, module.AlibiPositionalBias(num_heads)(60, 60), rtol=1e-6, atol=0)
    # BLOOM adds a number that grows with the key alone: in the softmax over the keys that a causal
    # mask leaves, it differs from ours by a number for each query, which cancels.
    rows = hugging_face("bloom").build_alibi_tensor(torch.ones(1, 60), num_heads, torch.float32)
    causal = torch.full((60, 60), float("-inf")).triu(1)
    expected = (rows.view(num_heads, 1, 60) + causal).softmax(-1)
    assert torch.allclose((ours + causal).softmax(-1), expected, atol=1e-5)


def test_vectors_of_keys_are_those_of_wav2vec2_bert() -> None:
    config = library("transformers").Wav2Vec2BertConfig(
        hidden_size=H * E, num_attention_heads=H, position_embeddings_type="relative_key",
        left_max_position_embeddings=9, right_max_position_embeddings=9,
        attn_implementation="eager", attention_dropout=0.0,
    )  # fmt: skip
    theirs = hugging_face("wav2vec2_bert").Wav2Vec2BertSelfAttention(config).eval()
    x = torch.randn(B, T, H * E, generator=torch.Generator().manual_seed(1))
    _, expected = theirs(x)
    ours = Skew(num_heads=H, head_dim=E, max_distance=9, per_head=False)
    ours.load_state_dict({"keys": theirs.distance_embedding.weight[None]})
    q, k = (to(x).view(B, T, H, E).transpose(1, 2) for to in (theirs.linear_q, theirs.linear_k))
    pos, q = Absolute()(B, T), q * E**-0.5
    got = (scores(q, k) + ours.query_bias(q, pos, pos)).softmax(-1)
    assert torch.allclose(got, expected, atol=1e-6)
    assert not torch.allclose(scores(q, k).softmax(-1), expected, atol=1e-3)


def distilbert() -> Tensor:
    table = nn.Embedding(600, E).weight.detach().clone()
    hugging_face("distilbert").create_sinusoidal_embeddings(600, E, out=table)
    return table


THEIR_SINES: dict[str, Callable[[], Tensor]] = {
    "interleaved": distilbert,
    "halves": lambda: (
        hugging_face("marian").MarianSinusoidalPositionalEmbedding(600, E).create_weight()
    ),
    "tensor2tensor": lambda: hugging_face(
        "m2m_100"
    ).M2M100SinusoidalPositionalEmbedding.get_embedding(600, E),
}


@pytest.mark.parametrize("channels", THEIR_SINES)
def test_sines_are_those_of_distilbert_marian_and_m2m100(channels: Any) -> None:
    ours = Sinusoidal(dim=E, channels=channels).encode(Absolute()(1, 600), torch.zeros(()))
    assert torch.allclose(ours[0], THEIR_SINES[channels](), atol=2e-4)


@pytest.mark.parametrize("offset", [0, 3000])
def test_pope_is_x_transformers(heads: tuple[Tensor, Tensor], offset: int) -> None:
    module = library("x_transformers.x_transformers")
    theirs, ours = module.PolarEmbedding(E, H), PoPE(num_heads=H, head_dim=E)
    nn.init.normal_(theirs.learned_bias, std=5.0)  # beyond both limits
    ours.phase.data = theirs.learned_bias.data
    pos = torch.arange(offset, offset + T)[None]
    angles, bias = theirs(pos)
    expected = [
        module.apply_polar_pos_emb(x, each)
        for x, each in zip(heads, (angles, angles + bias), strict=True)
    ]
    q, k = ours("rotate", *heads, pos, pos)
    close((q / math.sqrt(2), k), expected, atol=2e-3 if offset else 1e-5)


def test_inkling_is_transformers() -> None:
    module = hugging_face("inkling")
    ours, x = Inkling(dim=H * E, num_heads=H, rank=4, extent=9), torch.randn(B, T, H * E)
    theirs = module.InklingRelativeLogits(4, 9)
    theirs.proj.data = ours.profiles.data
    pos, heads = torch.arange(T), torch.zeros(B, H, T, E)
    state = ours("state", x, pos[None])
    for first in (0, 30):  # with a cache
        expected = theirs(state[:, first:].unflatten(2, (H, 4)), pos[first:], pos)
        at = pos[None, first:], pos[None]
        scores = torch.zeros(B, H, T - first, T)
        close([ours("score", scores, heads[:, :, first:], heads, state, *at)], [expected], atol=0)


@pytest.mark.parametrize("size", [0, 3])
def test_path_is_flash_linear_attentions(size: int) -> None:
    """With numbers of its slow path, in float32; its others need Triton."""

    def sines(*shape: int, step: float) -> Tensor:
        n = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
        return torch.sin(n * step).view(shape)

    length, num_heads, width, dim, rank = 11, 2, 4, 8, 3
    q, k = (sines(1, length, num_heads, width, step=step).transpose(1, 2) for step in (1.3, 1.9))
    sizes = {"dim": dim, "num_heads": num_heads, "head_dim": width}
    position = PaTH(**sizes, rank=rank, conv_size=size).double()
    weights = {"down.weight": 0.9, "up.weight": 1.1, "beta.weight": 0.5, "beta.bias": 2.3}
    shapes = {name: x.shape for name, x in position.state_dict().items()}
    weights["conv"] = 1.7
    position.load_state_dict({name: sines(*shapes[name], step=weights[name]) for name in shapes})
    pos = torch.arange(length)[None]
    state = position("state", sines(1, length, dim, step=0.7), pos)
    at = position, pos, pos
    _, probs = attend_with_probs(q, k, k, None, *at, causal=True, state=state)
    file = Path(__file__).parent / "path_attention.json"
    expected = json.loads(file.read_text(encoding="utf-8"))[str(size)]
    for head, rows in zip(probs[0], expected, strict=True):
        for found, row in zip(head, rows, strict=True):
            torch.testing.assert_close(
                found[: len(row)], torch.tensor(row).double(), rtol=0, atol=2e-6
            )
