"""Kinds against slow attention in NumPy, written from the papers' equations, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, getcontext

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
    FIRE,
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
    PoPE,
    Representation,
    Rotary,
    Shaw,
    Sinusoidal,
    TransformerXL,
    XPos,
    get,
    use_edges,
)

Array = NDArray[np.float64]
Score = Callable[[int, int, int, Array, Array], float]
"""The score before softmax from h, the positions of query and key, q_i and k_j."""
Value = Callable[[int, int, int], Array | float]
"""What is added to v_j, from h and both positions."""
Content = Callable[[int, Array, Array, Array, int, int, int], float]
"""The score before softmax from h, the layer's input, all queries and keys, both places, and the
distance i - j of their positions."""

WIDTH = 8


def array(tensor: torch.Tensor) -> Array:
    return tensor.detach().numpy().copy()


def dot(h: int, i: int, j: int, q: Array, k: Array) -> float:
    return q @ k / math.sqrt(len(q))


def nothing(h: int, i: int, j: int) -> float:
    return 0.0


def slow_attention(
    layer: Attention,
    x: Array,
    memory: Array,
    pos: tuple[list[int], list[int]],
    score: Score = dot,
    value: Value = nothing,
    content: Content | None = None,
    *,
    causal: bool = False,
) -> Array:
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2): `x (Q, D)` sees `memory (K, D)`,
    with the scores of a kind (`content` if it is given), and with vectors on the values (Shaw et
    al. 2018, equation 3)."""
    width = x.shape[1] // layer.num_heads
    w_q, w_k, w_v = np.split(array(layer.in_weight), 3)
    b_q, b_k, b_v = np.split(array(layer.in_bias), 3)
    out = np.zeros_like(x)
    for h in range(layer.num_heads):
        own = slice(h * width, (h + 1) * width)
        q, k = x @ w_q[own].T + b_q[own], memory @ w_k[own].T + b_k[own]
        v = memory @ w_v[own].T + b_v[own]
        for row, i in enumerate(pos[0]):
            seen = [(n, j) for n, j in enumerate(pos[1]) if n <= row or not causal]
            scores = [
                content(h, memory, q, k, row, n, i - j) if content else score(h, i, j, q[row], k[n])
                for n, j in seen
            ]
            weights = np.exp(scores)
            weights /= weights.sum()
            for weight, (n, j) in zip(weights, seen, strict=True):
                out[row, own] += weight * (v[n] + value(h, i, j))
    return out @ array(layer.out.weight).T + array(layer.out.bias)


def make_layer(position: Representation, num_heads: int = 2) -> Attention:
    layer = Attention(num_heads * WIDTH, num_heads, 0.0, position).double()
    torch.nn.init.normal_(layer.in_bias)
    torch.nn.init.normal_(layer.out.bias)
    return layer


def check_layer(
    layer: Attention,
    score: Score,
    value: Value = nothing,
    content: Content | None = None,
    attention: str = "bidirectional",
) -> None:
    """Compare a layer with the slow one, for two sentences at positions of their own, with gaps,
    and at consecutive positions."""
    causal = attention == "causal"
    for pos in ([[0, 1, 2, 17, 18, 20], [3, 50, 51, 54, 130, 400]], [[5, 6, 7, 8, 9, 10]] * 2):
        pos_q = torch.tensor(pos)
        pos_k = pos_q[:, ::2] + 1 if attention == "cross" else pos_q
        x, memory = (
            torch.randn(*at.shape, layer.num_heads * WIDTH, dtype=torch.float64)
            for at in (pos_q, pos_k)
        )
        memory = memory if attention == "cross" else x
        mask = causal_mask(6, 6, x.dtype, x.device) if causal else None
        got = layer(x, memory, pos_q, pos_k, mask)
        for b, out in enumerate(got):
            given = array(x[b]), array(memory[b]), (pos_q[b].tolist(), pos_k[b].tolist())
            expected = slow_attention(layer, *given, score, value, content, causal=causal)
            np.testing.assert_allclose(array(out), expected, rtol=0, atol=1e-10)


def shaw(position: Shaw) -> tuple[Score, Value]:
    """Shaw et al. 2018, equations 3 and 4; Huang et al. 2019, equation 3, is that of the keys."""
    k = position.max_distance
    tables = [None if table is None else array(table) for table in (position.keys, position.values)]

    def vector(table: Array | None, h: int, i: int, j: int) -> Array | float:
        return 0.0 if table is None else table[h % len(table), max(-k, min(k, j - i)) + k]

    return (
        lambda h, i, j, q, k: q @ (k + vector(tables[0], h, i, j)) / math.sqrt(WIDTH),
        lambda h, i, j: vector(tables[1], h, i, j),
    )


def bucket(distance: int, num_buckets: int, max_distance: int, causal: bool) -> int:
    """Section 2.1 of Raffel et al. 2020, with logarithms of 40 digits; `distance` is j - i."""
    getcontext().prec = 40
    each = num_buckets if causal else num_buckets // 2
    first = each if distance > 0 and not causal else 0
    d = max(0, -distance) if causal else abs(distance)
    near = each // 2
    if d < near:
        return first + d
    place = (Decimal(d) / near).ln() / (Decimal(max_distance) / near).ln() * (each - near)
    return first + min(each - 1, near + math.floor(place + Decimal("1e-30")))


def t5(position: T5) -> tuple[Score]:
    weight = array(position.weight)
    settings = len(weight), position.max_distance, position.causal
    return (lambda h, i, j, q, k: dot(h, i, j, q, k) + weight[bucket(j - i, *settings), h],)


def slope(head: int, num_heads: int) -> float:
    """Section 3 of Press et al. 2022: a geometric sequence that begins at 2^(-8/H) with that ratio;
    where H is no power of two, what is missing comes from twice the power below, every other."""
    if math.log2(num_heads).is_integer():
        return (2 ** (-8 / num_heads)) ** (head + 1)
    below = 2 ** math.floor(math.log2(num_heads))
    if head < below:
        return slope(head, below)
    return slope(2 * (head - below), 2 * below)


def alibi(position: ALiBi) -> tuple[Score]:
    slopes = [slope(head, position.num_heads) for head in range(position.num_heads)]
    return (lambda h, i, j, q, k: dot(h, i, j, q, k) - slopes[h] * max(i - j, j - i),)


def kerple(position: KERPLE) -> tuple[Score]:
    """Section 4 of Chi et al. 2022: the kernel -r1 log(1 + r2 |m - n|), added to the scores."""
    r1, r2 = (np.exp(array(each)) for each in (position.log_r1, position.log_r2))
    return (lambda h, i, j, q, k: dot(h, i, j, q, k) - r1[h] * math.log(1 + r2[h] * abs(i - j)),)


def fire(position: FIRE) -> tuple[Score]:
    """Section 4 of Li et al. 2024; both sides as the docstring says."""
    c, limit = math.exp(position.log_c.item()), math.exp(position.log_threshold.item())
    inner, inner_bias = position.inner.weight[:, 0].tolist(), position.inner.bias.tolist()
    outer, outer_bias = position.outer.weight.tolist(), position.outer.bias.tolist()

    def psi(x: float) -> float:
        return math.log(c * x + 1)

    def score(h: int, i: int, j: int, q: Array, k: Array) -> float:
        x = psi(i - j) / psi(max(limit, i)) if j <= i else -psi(j - i) / psi(max(limit, j))
        hidden = [max(0.0, w * x + b) for w, b in zip(inner, inner_bias, strict=True)]
        f = sum(w * unit for w, unit in zip(outer[h], hidden, strict=True)) + outer_bias[h]
        return dot(h, i, j, q, k) + f

    return (score,)


def matrix(position: int, thetas: list[float], pairs: str) -> Array:
    """R of Su et al. 2021, equation 15, with the identity on channels that do not turn."""
    r = np.eye(WIDTH)
    for m, theta in enumerate(thetas):
        a, b = (2 * m, 2 * m + 1) if pairs == "interleaved" else (m, m + len(thetas))
        angle = position * theta
        r[a, a] = r[b, b] = math.cos(angle)
        r[a, b], r[b, a] = -math.sin(angle), math.sin(angle)
    return r


def thetas_of(width: int, base: float = 10_000.0) -> list[float]:
    return [math.pow(base, -2 * (m - 1) / width) for m in range(1, width // 2 + 1)]


def by_parts(theta: float, s: float, length: int) -> float:
    """Definition 2 of Peng et al. 2023 (NTK by parts), with r = L / wavelength."""
    r = length / (2 * math.pi / theta)
    gamma = 0.0 if r < 1 else 1.0 if r > 32 else (r - 1) / 31
    return (1 - gamma) * theta / s + gamma * theta


TURNING = {1.0: 8, 0.5: 4, 0.4: 2, 0.1: 2}
"""How many of 8 channels turn, by their share."""


def rotary(position: Rotary, fraction: float = 1.0) -> tuple[Score]:
    width, s, t = TURNING[fraction], position.factor, 1.0
    thetas = thetas_of(width)
    if position.scaling == "linear":
        thetas = [theta / s for theta in thetas]
    elif position.scaling == "ntk":
        thetas = thetas_of(width, 10_000 * math.pow(s, width / (width - 2)))
    elif position.scaling == "yarn":
        thetas = [by_parts(theta, s, position.original_length) for theta in thetas]
        t = (0.1 * math.log(s) + 1) ** -2

    def score(h: int, i: int, j: int, q: Array, k: Array) -> float:
        at_i, at_j = (matrix(pos, thetas, position.pairs) for pos in (i, j))
        return (at_i @ q) @ (at_j @ k) / (t * math.sqrt(WIDTH))

    return (score,)


def xpos(position: XPos) -> tuple[Score]:
    """Equation of section 3.1 of Sun et al. 2022, one pair of channels at a time."""
    half, gamma = WIDTH // 2, position.gamma

    def score(h: int, i: int, j: int, q: Array, k: Array) -> float:
        total = 0.0
        for m in range(half):
            a, b = (2 * m, 2 * m + 1) if position.pairs == "interleaved" else (m, m + half)
            zeta = (m / half + gamma) / (1 + gamma)
            turned = complex(q[a], q[b]) * complex(k[a], -k[b])
            angle = (i - j) * math.pow(10_000, -2 * m / WIDTH)
            total += math.pow(zeta, (i - j) / position.scale_base) * (
                turned.real * math.cos(angle) - turned.imag * math.sin(angle)
            )
        return total / math.sqrt(WIDTH)

    return (score,)


def tupe(position: TUPE) -> tuple[Score]:
    """(p_i U^Q) (p_j U^K)^T of Ke et al. 2021, equation 7, and words with words, over sqrt(2E)."""
    p, u_q, u_k = map(array, (position.vectors.weight, position.query, position.key))

    def score(h: int, i: int, j: int, q: Array, k: Array) -> float:
        term = 0.0
        for e in range(h * WIDTH, (h + 1) * WIDTH):
            left = sum(p[i, d] * u_q[d, e] for d in range(len(u_q)))
            right = sum(p[j, d] * u_k[d, e] for d in range(len(u_k)))
            term += left * right
        return (q @ k + term) / math.sqrt(2 * WIDTH)

    return (score,)


def transformer_xl(position: TransformerXL) -> tuple[Score]:
    """The four terms of A^rel of Dai et al. 2019, section 3.3, over sqrt(E)."""
    w, u, v = array(position.weight), array(position.u)[:, 0], array(position.v)[:, 0]
    thetas = [math.pow(10_000, -2 * m / len(w)) for m in range(len(w) // 2)]

    def score(h: int, i: int, j: int, q: Array, k: Array) -> float:
        r = np.array([f((i - j) * theta) for f in (math.sin, math.cos) for theta in thetas])
        k_r = w[h * WIDTH : (h + 1) * WIDTH] @ r
        return (q @ k + q @ k_r + u[h] @ k + v[h] @ k_r) / math.sqrt(WIDTH)

    return (score,)


def deberta(position: DeBERTa) -> tuple[Score]:
    """Equations 2 to 4 of He et al. 2021."""
    p, w_k, w_q = map(array, (position.vectors, position.key, position.query))
    most = position.max_distance

    def delta(i: int, j: int) -> int:
        if i - j <= -most:
            return 0
        return 2 * most - 1 if i - j >= most else i - j + most

    def score(h: int, i: int, j: int, q: Array, k: Array) -> float:
        own = slice(h * WIDTH, (h + 1) * WIDTH)
        k_r, q_r = p[delta(i, j)] @ w_k[:, own], p[delta(j, i)] @ w_q[:, own]
        return (q @ k + q @ k_r + k @ q_r) / math.sqrt(3 * WIDTH)

    return (score,)


def cope(position: CoPE) -> tuple[Score, Value, Content]:
    """Equations 3 to 5 of Golovneva et al. 2024, scaled as in the code of appendix B."""
    e = array(position.weight)

    def content(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        s = [q[i] @ each / math.sqrt(WIDTH) for each in k]
        p = min(sum(1 / (1 + math.exp(-s[n])) for n in range(j, i + 1)), len(e) - 1.0)
        below, above = math.floor(p), math.ceil(p)
        return s[j] + (p - below) * (q[i] @ e[above]) + (1 - p + below) * (q[i] @ e[below])

    return dot, nothing, content


def fox(position: FoX) -> tuple[Score, Value, Content]:
    """Lin et al. 2025, section 3: F_ij is the product of the gates from j + 1 to i."""
    w, b = array(position.gate.weight), array(position.gate.bias)

    def content(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        gates = [1 / (1 + math.exp(-(w[h] @ x[t] + b[h]))) for t in range(j + 1, i + 1)]
        return dot(h, i, j, q[i], k[j]) + math.log(math.prod(gates))

    return dot, nothing, content


def pope(position: PoPE) -> tuple[Score]:
    """Gopalakrishnan et al. 2025, section 3: the real part of a product of complex numbers."""
    delta = np.clip(array(position.phase)[:, 0], -2 * math.pi, 0)
    thetas = [math.pow(10_000, -c / WIDTH) for c in range(WIDTH)]

    def polar(x: float, angle: float) -> complex:
        return math.log1p(math.exp(x)) * complex(math.cos(angle), math.sin(angle))

    def score(h: int, i: int, j: int, q: Array, k: Array) -> float:
        total = 0j
        for c, theta in enumerate(thetas):
            total += polar(q[c], i * theta).conjugate() * polar(k[c], j * theta + delta[h, c])
        return total.real / math.sqrt(WIDTH)

    return (score,)


def path(position: PaTH) -> tuple[Score, Value, Content]:
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

    def content(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        key = k[j]
        for t in range(j + 1, i + 1):
            key = matrix_of(h, x, t) @ key
        return q[i] @ key / math.sqrt(WIDTH)

    return dot, nothing, content


def inkling(position: Inkling) -> tuple[Score, Value, Content]:
    """Bias of `InklingRelativeLogits` in transformers, without its other parts."""
    w, p = array(position.project.weight), array(position.profiles)

    def content(h: int, x: Array, q: Array, k: Array, i: int, j: int, d: int) -> float:
        r = w[h * len(p) : (h + 1) * len(p)] @ x[i]
        bias = r @ p[:, d] if d < position.extent else 0.0
        return dot(h, i, j, q[i], k[j]) + bias

    return dot, nothing, content


REFERENCES: dict[str, Callable[..., tuple]] = {
    "none": lambda position: (dot,),
    "shaw": shaw,
    "skew": shaw,
    "t5": t5,
    "alibi": alibi,
    "kerple": kerple,
    "fire": fire,
    "rotary": rotary,
    "xpos": xpos,
    "tupe": tupe,
    "transformer-xl": transformer_xl,
    "deberta": deberta,
    "cope": cope,
    "fox": fox,
    "pope": pope,
    "path": path,
    "inkling": inkling,
}
"""Kind → its score, what it adds to the values, and its score if that depends on all tokens."""

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
        for fraction in TURNING
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
    assert {*REFERENCES, "sinusoidal", "learned"} == KINDS.keys()  # learned is a look-up
    assert {kind for kind, _ in CASES} == REFERENCES.keys()


@pytest.mark.parametrize("attention", ["bidirectional", "causal", "cross"])
@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_a_layer_equals_the_papers_equation(kind, options, attention, backend) -> None:
    build, num_heads = KINDS[kind].build, options.get("num_heads", 2)
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
    own = {"fraction": options["fraction"]} if "fraction" in options else {}
    check_layer(layer, *REFERENCES[kind](position, **own), attention=attention)
    acting = [hook for hook in ("bias", "query_bias", "value_bias") if position.acts(hook)]
    divides = all(position.derives(hook) for hook in acting)
    adds = not position.acts("score")
    runs = {"blocked": adds and divides, "sdpa": adds and not position.acts("value_bias")}
    assert bool(backend.calls) == runs.get(backend.name, True)


THETA = thetas_of(WIDTH)
AXES = [
    ("rotary", {"sections": [1, 2, 1]}, [*zip((0, 1, 1, 2), THETA, strict=True)]),
    (
        "rotary",
        {"sections": [2, 1, 1], "section_order": "interleaved", "pairs": "halves"},
        [*zip((0, 1, 2, 0), THETA, strict=True)],
    ),
    (
        "rotary",
        {"sections": [1, 1], "fraction": 0.5, "scaling": "linear", "factor": 4.0},
        [(0, 0.25), (1, 0.25 * 10_000**-0.5)],
    ),
    ("axial", {}, [(0, 1.0), (0, 0.1), (1, 1.0), (1, 0.1)]),
    ("axial", {"num_axes": 4, "pairs": "interleaved"}, [(n, 1.0) for n in range(4)]),
    (
        "axial",
        {"order": "alternating", "base": 10_000.0},
        [(0, THETA[0]), (0, THETA[2]), (1, THETA[1]), (1, THETA[3])],
    ),
]
"""Kind, options, and the axis and θ of each pair of channels that turns."""


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kind", "options", "turning"), AXES, ids=str)
def test_a_layer_with_axes_turns_each_pair_by_its_axis(
    kind, options, turning, causal, backend
) -> None:
    torch.manual_seed(0)
    position = get(kind, head_dim=WIDTH, **options)
    layer, num_axes = make_layer(position), position.num_axes

    def turn(at: tuple[int, ...]) -> Array:
        return matrix(1, [at[axis] * theta for axis, theta in turning], position.pairs)

    def score(h: int, i: tuple[int, ...], j: tuple[int, ...], q: Array, k: Array) -> float:
        return (turn(i) @ q) @ (turn(j) @ k) / math.sqrt(WIDTH)

    pos = torch.randint(0, 300, (2, 6, num_axes))
    x = torch.randn(2, 6, layer.num_heads * WIDTH, dtype=torch.float64)
    got = layer(x, x, pos, pos, None, causal=causal)
    for b, out in enumerate(got):
        at = [tuple(each) for each in pos[b].tolist()]
        expected = slow_attention(layer, array(x[b]), array(x[b]), (at, at), score, causal=causal)
        np.testing.assert_allclose(array(out), expected, rtol=0, atol=1e-10)
    assert backend.calls


def test_tupe_with_t5s_bias_is_tupe_r() -> None:
    absolute = TUPE(dim=2 * WIDTH, num_heads=2)
    relative = T5(dim=2 * WIDTH, num_heads=2, num_buckets=4, max_distance=3)
    layer = make_layer(Chain(absolute, relative))
    [score] = tupe(absolute)

    def both(h: int, i: int, j: int, q: Array, k: Array) -> float:
        number = min(abs(j - i), 1) + (2 if j > i else 0)  # one near and one far in a direction
        return score(h, i, j, q, k) + relative.weight[number, h].item()

    check_layer(layer, both)


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
    expected = [bucket(d, num, most, causal) for d in distances]
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
    rows = zip(pos, x[0, 0].numpy(), strict=True)
    expected = [matrix(p, thetas_of(WIDTH), pairs) @ row for p, row in rows]
    got, _ = position.rotate(x, x, given, given)
    np.testing.assert_allclose(got[0, 0], np.stack(expected), rtol=0, atol=1e-9)
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


def sines(i: int, dim: int, channels: str, base: float) -> list[float]:
    half = dim // 2
    steps = half - 1 if channels == "tensor2tensor" else half
    angles = [i / math.pow(base, m / steps) for m in range(half)]
    sines, cosines = [math.sin(a) for a in angles], [math.cos(a) for a in angles]
    if channels == "interleaved":
        return [value for pair in zip(sines, cosines, strict=True) for value in pair]
    return sines + cosines


@pytest.mark.parametrize("channels", ["interleaved", "halves", "tensor2tensor"])
@pytest.mark.parametrize(("dim", "base"), [(4, 10_000.0), (10, 10_000.0), (64, 500.0)])
def test_sines_in_every_channel(channels: str, dim: int, base: float) -> None:
    pos = [0, 1, 2, 9, 500, 4095, 10_001, 65_537, 100_000]
    encoding = Sinusoidal(dim=dim, channels=channels, base=base)
    got = encoding.encode(torch.tensor([pos]), torch.empty(0, dtype=torch.float64))
    expected = torch.tensor([[sines(i, dim, channels, base) for i in pos]], dtype=torch.float64)
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
        return slow_attention(attention, x, x, ([*range(6)], [*range(6)]))

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
