"""Kinds against slow attention in float64, written from the papers' equations: most by
`tests/fuzz/definition.py`, and those whose scores depend on all tokens here, one pair at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import causal_mask
from shapeshift.attention.backends import blocked, cpu
from shapeshift.model.attention import Attention
from shapeshift.model.layers import EncoderLayer, FeedForward, Residual
from shapeshift.positions import (
    KERPLE,
    KINDS,
    T5,
    TUPE,
    ALiBi,
    Chain,
    CoPE,
    DeBERTa,
    FoX,
    Graph,
    Inkling,
    PaTH,
    Representation,
    Rotary,
    Shaw,
    Sinusoidal,
    TransformerXL,
    XPos,
    get,
    use_edges,
)
from shapeshift.positions.registry import find_kind

from ..fuzz import definition

Array = NDArray[np.float64]
Score = Callable[[int, Array, Array, Array, int, int, int], float]
"""The score before softmax from h, the layer's input, all queries and keys, both places, and the
distance i - j of their positions."""

WIDTH = 8
EXACT = definition.Arithmetic(definition.UNIT[torch.float64])


def array(tensor: torch.Tensor) -> Array:
    return tensor.detach().numpy().copy()


def dot(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
    return q[i] @ k[j] / math.sqrt(WIDTH)


def slow_attention(
    layer: Attention, x: Array, pos: list[int], score: Score = dot, *, causal: bool = False
) -> Array:
    """Multi-head self-attention of `x (T, D)` (Vaswani et al. 2017, section 3.2.2) with the scores
    of a kind."""
    projections = np.split(x @ array(layer.in_weight).T + array(layer.in_bias), 3, axis=1)
    out = np.zeros_like(x)
    for h in range(layer.num_heads):
        own = slice(h * WIDTH, (h + 1) * WIDTH)
        q, k, v = (each[:, own] for each in projections)
        for i in range(len(x)):
            seen = range(i + 1) if causal else range(len(x))
            probs = np.exp([score(h, x, q, k, i, j, pos[i] - pos[j]) for j in seen])
            out[i, own] = probs @ v[seen] / probs.sum()
    return out @ array(layer.out.weight).T + array(layer.out.bias)


def make_layer(position: Representation, num_heads: int = 2) -> Attention:
    layer = Attention(num_heads * WIDTH, num_heads, 0.0, position).double()
    torch.nn.init.normal_(layer.in_bias)
    torch.nn.init.normal_(layer.out.bias)
    return layer


def check_layer(
    layer: Attention, score: Score | None = None, attention: str = "bidirectional"
) -> None:
    """Compare a layer with the slow one, which has the scores of a kind or those of `definition`,
    for two sentences at positions of their own, with gaps, and at consecutive positions."""
    num_axes = layer.position.num_axes
    for pos in ([[0, 1, 2, 17, 18, 20], [3, 50, 51, 54, 130, 400]], [[5, 6, 7, 8, 9, 10]] * 2):
        pos_q = torch.tensor(pos) if num_axes == 1 else torch.randint(0, 300, (2, 6, num_axes))
        x = memory = torch.randn(2, 6, layer.num_heads * WIDTH, dtype=torch.float64)
        pos_k, mask = pos_q, None
        if attention == "cross":
            pos_k = pos_q[:, ::2] + 1
            memory = torch.randn(2, 3, x.shape[-1], dtype=torch.float64)
        elif attention == "causal":
            mask = causal_mask(6, 6, x.dtype, x.device)
        got = array(layer(x, memory, pos_q, pos_k, mask))
        if score is None:
            weights = layer.in_weight, layer.in_bias, layer.out
            inputs = [x, memory, memory], mask, layer
            expected = array(definition.multi_head(*inputs, *weights, pos_q, pos_k, EXACT)[0])
        else:
            causal = attention == "causal"
            each = zip(map(array, x), pos, strict=True)
            expected = np.stack([slow_attention(layer, *y, score, causal=causal) for y in each])
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)


def transformer_xl(position: TransformerXL) -> Score:
    """The four terms of A^rel of Dai et al. 2019, section 3.3, over sqrt(E)."""
    w, u, v = array(position.weight), array(position.u)[:, 0], array(position.v)[:, 0]
    thetas = [math.pow(10_000, -2 * m / len(w)) for m in range(len(w) // 2)]

    def score(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        r = np.array([f(d * theta) for f in (math.sin, math.cos) for theta in thetas])
        k_r = w[h * WIDTH : (h + 1) * WIDTH] @ r
        return (q[i] @ k[j] + q[i] @ k_r + u[h] @ k[j] + v[h] @ k_r) / math.sqrt(WIDTH)

    return score


def deberta(position: DeBERTa) -> Score:
    """Equations 2 to 4 of He et al. 2021."""
    p, w_k, w_q = map(array, (position.vectors, position.key, position.query))
    most = position.max_distance

    def delta(d: int) -> int:
        if d <= -most:
            return 0
        return 2 * most - 1 if d >= most else d + most

    def score(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        own = slice(h * WIDTH, (h + 1) * WIDTH)
        k_r, q_r = p[delta(d)] @ w_k[:, own], p[delta(-d)] @ w_q[:, own]
        return (q[i] @ k[j] + q[i] @ k_r + k[j] @ q_r) / math.sqrt(3 * WIDTH)

    return score


def cope(position: CoPE) -> Score:
    """Equations 3 to 5 of Golovneva et al. 2024, scaled as in the code of appendix B."""
    e = array(position.weight)

    def score(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        s = [q[i] @ each / math.sqrt(WIDTH) for each in k]
        p = min(sum(1 / (1 + math.exp(-s[n])) for n in range(j, i + 1)), len(e) - 1.0)
        below, above = math.floor(p), math.ceil(p)
        return s[j] + (p - below) * (q[i] @ e[above]) + (1 - p + below) * (q[i] @ e[below])

    return score


def fox(position: FoX) -> Score:
    """Lin et al. 2025, section 3: F_ij is the product of the gates from j + 1 to i."""
    w, b = array(position.gate.weight), array(position.gate.bias)

    def score(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        gates = [1 / (1 + math.exp(-(w[h] @ x[t] + b[h]))) for t in range(j + 1, i + 1)]
        return dot(h, x, q, k, i, j, d) + math.log(math.prod(gates))

    return score


def path(position: PaTH) -> Score:
    """Yang et al. 2025, sections 2 and 3.1: a product of matrices, one for each token."""
    down, up, conv = map(array, (position.down.weight, position.up.weight, position.conv))
    u, b = array(position.beta.weight), array(position.beta.bias)

    def matrix_of(h: int, x: Array, t: int) -> Array:
        own = slice(h * WIDTH, (h + 1) * WIDTH)
        w = up[own] @ down @ x[t]
        if len(conv):
            before = [(n, up[own] @ down @ x[t - n]) for n in range(len(conv)) if t >= n]
            w = sum(conv[n, own] * each for n, each in before)
            w = w / (1 + np.exp(-w))
        w = w / math.sqrt(w @ w + 1e-6)
        return np.eye(WIDTH) - 2 / (1 + math.exp(-(u[h] @ x[t] + b[h]))) * np.outer(w, w)

    def score(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        key = k[j]
        for t in range(j + 1, i + 1):
            key = matrix_of(h, x, t) @ key
        return q[i] @ key / math.sqrt(WIDTH)

    return score


def inkling(position: Inkling) -> Score:
    """Bias of `InklingRelativeLogits` in transformers, without its other parts."""
    w, p = array(position.project.weight), array(position.profiles)

    def score(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        r = w[h * len(p) : (h + 1) * len(p)] @ x[i]
        bias = r @ p[:, d] if d < position.extent else 0.0
        return dot(h, x, q, k, i, j, d) + bias

    return score


SCORES: dict[str, Callable[..., Score]] = {
    "transformer-xl": transformer_xl,
    "deberta": deberta,
    "cope": cope,
    "fox": fox,
    "path": path,
    "inkling": inkling,
}
"""Kind → its score."""

IN_DEFINITION = {"none", "rotary", "xpos", "axial", "pope"}
IN_DEFINITION |= {name.lower() for name in definition.FORMULAS}
"""Kinds of which `definition` has the paper's formulas."""

SHAW = [
    {"add_to": "keys"},
    {"add_to": "values"},
    {"add_to": "both"},
    {"add_to": "both", "share_tables": True},
    {"add_to": "keys", "per_head": True},
    {"add_to": "both", "per_head": True},
    {"add_to": "both", "per_head": True, "share_tables": True},
]
CASES: list[tuple[str, dict]] = [
    *(("none", {"num_heads": n}) for n in (2, 3)),
    *(("shaw", {"max_distance": k, **options}) for k in (0, 1, 3, 16) for options in SHAW),
    *(
        ("skew", {"max_distance": k, "per_head": each})
        for k in (0, 2, 64)
        for each in (False, True)
    ),
    *(("t5", {"num_buckets": 8, "max_distance": most}) for most in (5, 50)),
    *(("alibi", {"num_heads": n}) for n in (2, 3, 12)),
    *(("kerple", {"num_heads": n}) for n in (1, 3)),
    *(("fire", {"hidden": 5, "threshold": threshold}) for threshold in (1.0, 30.0)),
    *(
        ("rotary", {"pairs": pairs, "fraction": fraction})
        for pairs in ("interleaved", "halves")
        for fraction in (1.0, 0.5, 0.4, 0.1)
    ),
    ("rotary", {"scaling": "linear", "factor": 4.0}),
    ("rotary", {"scaling": "ntk", "factor": 4.0, "fraction": 0.5}),
    *(
        ("rotary", {"scaling": "yarn", "factor": 8.0, "original_length": 100, "fraction": fraction})
        for fraction in (1.0, 0.5)
    ),
    *(
        ("xpos", {"pairs": pairs, "gamma": gamma, "scale_base": scale_base})
        for pairs in ("interleaved", "halves")
        for gamma, scale_base in ((0.4, 512.0), (0.1, 20.0))
    ),
    ("rotary", {"sections": [1, 2, 1]}),
    ("rotary", {"sections": [2, 1, 1], "section_order": "interleaved", "pairs": "halves"}),
    ("rotary", {"sections": [1, 1], "fraction": 0.5, "scaling": "linear", "factor": 4.0}),
    ("axial", {}),
    ("axial", {"num_axes": 4, "pairs": "interleaved"}),
    ("axial", {"order": "alternating", "base": 10_000.0}),
    ("tupe", {}),
    ("transformer-xl", {}),
    *(("deberta", {"max_distance": k}) for k in (1, 4, 64)),
    *(("cope", {"num_positions": n}) for n in (1, 3, 64)),
    ("fox", {}),
    ("pope", {}),
    *(("path", {"rank": rank, "conv_size": size}) for rank, size in ((3, 3), (32, 1), (2, 9))),
    ("path", {"conv_size": 0}),
    *(("inkling", {"rank": 3, "extent": extent}) for extent in (1, 4, 200)),
]


def test_every_kind_has_a_reference() -> None:
    # Sinusoidal is tested below; learned is a look-up.
    assert {*SCORES, *IN_DEFINITION, "sinusoidal", "learned"} == {*KINDS, "axial"}
    assert {kind for kind, _ in CASES} == {*SCORES, *IN_DEFINITION}


def test_what_the_references_read_from_a_kind() -> None:
    """Defaults, and how many channels turn: of 3.2 and 0.8 channels, 2."""
    kinds = {x: get(x, num_heads=2, head_dim=WIDTH) for x in ("rotary", "xpos", "pope", "axial")}
    bases = {name: position.base for name, position in kinds.items()}
    assert bases == {"rotary": 10_000, "xpos": 10_000, "pope": 10_000, "axial": 100}
    assert (kinds["axial"].order, kinds["rotary"].section_order) == ("same", "blocks")
    turning = [Rotary(head_dim=WIDTH, fraction=share).width for share in (1.0, 0.5, 0.4, 0.1)]
    assert turning == [8, 4, 2, 2]


@pytest.mark.parametrize("attention", ["bidirectional", "causal", "cross"])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_a_layer_equals_the_papers_equation(kind, options, attention, backend) -> None:
    build, num_heads = find_kind(kind).build, options.get("num_heads", 2)
    if (attention == "cross" and "cross" not in build.places) or (
        build.causal_only and attention != "causal"
    ):
        pytest.skip("the kind has no meaning there")
    torch.manual_seed(0)
    sizes = {"dim": num_heads * WIDTH, "num_heads": num_heads, "head_dim": WIDTH}
    position = get(kind, **{**sizes, "causal": attention == "causal", **options})
    layer = make_layer(position, num_heads)
    with torch.no_grad():
        for parameter in position.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    check_layer(layer, SCORES[kind](position) if kind in SCORES else None, attention)
    acting = [hook for hook in ("bias", "query_bias", "value_bias") if position.acts(hook)]
    divides = all(position.derives(hook) for hook in acting)
    adds = not position.acts("score")
    runs = {"blocked": adds and divides, "sdpa": adds and not position.acts("value_bias")}
    assert bool(backend.calls) == runs.get(backend.name, True)


def test_tupe_with_t5s_bias_is_tupe_r() -> None:
    relative = T5(dim=2 * WIDTH, num_heads=2, num_buckets=4, max_distance=3)
    check_layer(make_layer(Chain(TUPE(dim=2 * WIDTH, num_heads=2), relative)))


@pytest.mark.parametrize("common", [False, True], ids=["a graph each", "one for all"])
@pytest.mark.parametrize("is_complete", [True, False], ids=["complete", "some edges"])
def test_a_graph_of_clipped_distances_is_shaw(common, is_complete) -> None:
    k, length = 2, 7
    torch.manual_seed(0)
    theirs = make_layer(Shaw(num_heads=2, head_dim=WIDTH, max_distance=k))
    ours = make_layer(Graph(num_heads=2, head_dim=WIDTH, num_labels=2 * k + 1))
    ours.load_state_dict(theirs.state_dict())
    pos = torch.arange(length)[None]
    labels = (pos[:, None] - pos[..., None]).clamp(-k, k) + k
    if not is_complete:  # no edge is a vector of zeros
        labels = labels.masked_fill(labels == 1, -1)
        for table in theirs.position.parameters():
            table.data[:, 1] = 0
    x = torch.randn(3, length, 2 * WIDTH, dtype=torch.float64)
    expected = theirs(x, x, pos, pos, None)
    with use_edges(ours, labels.expand(1 if common else 3, -1, -1)):
        got = ours(x, x, pos, pos, None)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
    got.square().sum().backward()
    expected.square().sum().backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        grads = [mine.grad, other.grad]
        if "position" in name and not is_complete:
            grads = [grad[:, [0, 2, 3, 4]] for grad in grads]  # of labels that are there
        torch.testing.assert_close(*grads, rtol=0, atol=1e-12, msg=name)


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("num", "most"), [(32, 128), (4, 3), (12, 7), (64, 1000), (32, 17)])
def test_every_distance_falls_into_its_bucket(num: int, most: int, causal: bool) -> None:
    distances = list(range(-most - 40, most + 41))
    position = T5(dim=8, num_heads=2, num_buckets=num, max_distance=most, causal=causal).double()
    with torch.no_grad():  # biases that are the buckets' own numbers
        position.weight.copy_(torch.arange(num)[:, None].expand(-1, 2))
    start = torch.tensor([[100_000]])
    bias = position.bias(start, start + torch.tensor([distances]), dtype=torch.float64)
    expected = [definition.bucket(d, num, most, causal) for d in distances]
    assert bias[0, :, 0].int().tolist() == [expected, expected]


def test_half_precision_rounds_the_bias_alone() -> None:
    # 3,001 itself would become 3,008 in bfloat16; -3001 / 256 becomes the nearest there is.
    logarithmic = KERPLE(num_heads=1)
    assert 0.01 <= logarithmic.log_r1.exp().item() <= 2
    assert 0.01 <= logarithmic.log_r2.exp().item() <= 1
    with torch.no_grad():
        logarithmic.log_r1.zero_()
        logarithmic.log_r2.zero_()
    at = torch.tensor([[3001]]), torch.tensor([[0]])
    for kind, exact in ((ALiBi(num_heads=1), -3001 / 256), (logarithmic, -math.log(3002))):
        bias = kind.bias(*at, dtype=torch.bfloat16)
        assert bias.dtype == torch.bfloat16
        assert bias.item() == torch.tensor(exact).bfloat16().item()


def test_half_precision_sums_far_keys_without_losing_them() -> None:
    # 4,096 keys fall into one clipped row; added up in bfloat16 one by one they would stop at 256.
    torch.manual_seed(0)
    position = Shaw(num_heads=1, head_dim=WIDTH, max_distance=1, add_to="values")
    pos_q, pos_k = torch.tensor([[0]]), torch.arange(1, 4097)[None]
    probs = torch.full((1, 1, 1, 4096), 1 / 4096)
    got = position.to(torch.bfloat16).value_bias(probs.bfloat16(), pos_q, pos_k)
    torch.testing.assert_close(got[0, 0, 0], position.values[0, 2], rtol=0.02, atol=0.0)


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@torch.no_grad()
def test_rotations_far_out_are_exact(pairs: str) -> None:
    pos = [0, 1, 9_999, 100_000]
    x = torch.randn(1, 1, len(pos), WIDTH, dtype=torch.float64)
    position, given = Rotary(head_dim=WIDTH, pairs=pairs), torch.tensor([pos])
    expected, _ = definition.rotate(position, x, x, given, given, EXACT)
    got, _ = position.rotate(x, x, given, given)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)
    single, _ = position.rotate(x.float(), x.float(), given, given)
    assert single.dtype == torch.float32
    assert (single.double() - got).abs().max() < 1e-6  # angles made in float32 are off by 4e-3


def test_half_precision_turns_in_float32() -> None:
    x = torch.randn(1, 1, 64, 64).bfloat16()
    pos = torch.arange(64)[None]
    got, _ = Rotary(head_dim=64).rotate(x, x, pos, pos)
    expected, _ = Rotary(head_dim=64).rotate(x.double(), x.double(), pos, pos)
    # One rounding at the end, half of the last of 8 bits.
    torch.testing.assert_close(got.double(), expected, rtol=2**-8, atol=1e-6)


def heads(dtype: torch.dtype, pos: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(1, 1, len(pos), WIDTH, dtype=torch.float64)
    at = torch.tensor([pos])
    return XPos(head_dim=WIDTH).rotate(x.to(dtype), x.flip(-1).to(dtype), at, at)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_xpos_scores_far_out_are_finite_and_right(dtype: torch.dtype) -> None:
    pos = [0, 1_000, 13_000, 14_000]
    q, k = heads(dtype, pos)
    scores = q.float() @ k.float().transpose(-1, -2)
    assert scores.isfinite().all(), "those that a mask covers must be finite, too"
    exact = heads(torch.float64, pos)
    expected = exact[0] @ exact[1].transpose(-1, -2)
    allowed = torch.ones(4, 4).tril().bool()
    error = (scores - expected)[..., allowed].abs().max()
    assert error < (1e-5 if dtype == torch.float32 else 0.1)


def test_positions_out_of_range_are_refused() -> None:
    with pytest.raises(
        ShapeshiftError, match=r"float32 reaches position 145\d\d, got 20000; use k"
    ):
        heads(torch.float32, [0, 20_000])
    heads(torch.float64, [0, 20_000])


@pytest.mark.parametrize("channels", ["interleaved", "halves", "tensor2tensor"])
@pytest.mark.parametrize(("dim", "base"), [(4, 10_000.0), (10, 10_000.0), (64, 500.0)])
def test_sines_in_every_channel(channels: str, dim: int, base: float) -> None:
    pos = [0, 1, 2, 9, 500, 4095, 10_001, 65_537, 100_000]
    encoding = Sinusoidal(dim=dim, channels=channels, base=base)
    got = encoding.encode(torch.tensor([pos]), torch.empty(0, dtype=torch.float64))
    expected = definition.encoded(encoding, torch.tensor([pos]), got)
    # 1e-10 and not less: the angle itself is rounded, and at 100,000 its last bit is 1.5e-11.
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    single = encoding.encode(torch.tensor([pos]), torch.empty(0))
    assert single.dtype == torch.float32
    assert (single.double() - expected).abs().max() < 1e-7  # angles in float32 are off by 4e-3


def layer_norm(x: Array, norm: torch.nn.LayerNorm) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return scaled * array(norm.weight) + array(norm.bias)


def relu(x: Array) -> Array:
    return np.where(x > 0, x, 0.0)


def gelu(x: Array) -> Array:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / np.sqrt(2)))


@pytest.mark.parametrize("activation", [relu, gelu])
@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre", "post"])
def test_an_encoder_layer_equals_the_papers_equations(pre_norm: bool, activation: Callable) -> None:
    torch.manual_seed(0)
    attention = make_layer(Representation())
    layer = EncoderLayer(
        attention,
        FeedForward(2 * WIDTH, 20, activation.__name__, 0.0),
        [Residual(2 * WIDTH, 0.0, pre_norm) for _ in range(2)],
    ).double()
    for parameter in (p for name, p in layer.named_parameters() if "norm" in name):
        torch.nn.init.normal_(parameter, mean=1.0, std=0.5)
    inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
    torch.nn.init.normal_(inner.bias)
    torch.nn.init.normal_(outer.bias)
    tensor, pos = torch.randn(1, 6, 2 * WIDTH, dtype=torch.float64), torch.arange(6)[None]
    got = array(layer(tensor, pos, None)[0])

    def attend(x: Array) -> Array:
        return slow_attention(attention, x, [*range(6)])

    def feed(x: Array) -> Array:
        hidden = activation(x @ array(inner.weight).T + array(inner.bias))
        return hidden @ array(outer.weight).T + array(outer.bias)

    norms = (layer.around_attention.norm, layer.around_feed_forward.norm)
    x = array(tensor[0])
    for branch, norm in zip((attend, feed), norms, strict=True):
        x = x + branch(layer_norm(x, norm)) if pre_norm else layer_norm(x + branch(x), norm)
    np.testing.assert_allclose(got, x, rtol=0, atol=1e-10)


def test_scores_made_again_drop_the_same_units(monkeypatch) -> None:
    monkeypatch.setattr(blocked, "BLOCK", 64)
    monkeypatch.setattr(cpu, "RECOMPUTED_FROM", 8)
    layer = make_layer(Representation())
    layer.dropout = 0.5
    pos = torch.arange(10)[None]

    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return layer(x, x, pos, pos, None)

    x = torch.randn(2, 10, 2 * WIDTH, dtype=torch.float64, requires_grad=True)
    assert not torch.equal(run(x), layer.eval()(x, x, pos, pos, None))
    layer.train()
    assert torch.autograd.gradcheck(run, (x,), fast_mode=True)
