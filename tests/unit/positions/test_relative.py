"""Numbers of table rows go to pairs of tokens and back, however the positions run."""

import pytest
import torch

from shapeshift.positions import pairs, relative
from shapeshift.positions.relative import (
    Clip,
    by_distance,
    key_bias,
    key_scores,
    value_mix,
    value_outputs,
)

B, H, E = 2, 3, 4


def run_of(start, length):
    return torch.arange(start, start + length)[None]


def expected_rows(clip, pos_q, pos_k):
    """The definition, a pair at a time (Shaw et al. 2018, section 3.2)."""
    k, top = clip.max_distance, 0 if clip.causal else clip.max_distance
    return [
        [[max(-k, min(top, j - i)) + k for j in keys] for i in queries]
        for queries, keys in zip(pos_q.tolist(), pos_k.tolist(), strict=True)
    ]


POSITIONS = {
    "square": (run_of(0, 9), run_of(0, 9)),
    "two": (run_of(0, 2), run_of(0, 2)),
    "last of many": (run_of(20, 3), run_of(0, 23)),
    "one query": (run_of(6, 1), run_of(0, 7)),
    "first keys alone": (run_of(0, 9), run_of(0, 4)),
    "keys far left": (run_of(40, 5), run_of(0, 4)),
    "keys far right": (run_of(0, 5), run_of(40, 4)),
    "an offset each": (run_of(0, 6) + torch.tensor([[3], [250]]),) * 2,
    "gaps": (torch.tensor([[0, 2, 3, 9]]), torch.tensor([[0, 2, 3, 9]])),
    "lags differ": (run_of(0, 5) + torch.tensor([[3], [1]]), run_of(0, 6)),
}


WAYS = {  # below how many keys each distance has a row, how many numbers are sorted at a time
    "exact": (1000, 1),
    "clipped": (0, 1 << 19),
    "clipped in groups": (0, 1),
}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def _way(request, monkeypatch):
    below, in_cache = request.param
    monkeypatch.setattr(relative, "_EXACT_BELOW", below)
    monkeypatch.setattr(relative, "_ALIGNED", 1)
    monkeypatch.setattr(pairs, "IN_CACHE", in_cache)


CLIPS = [Clip(2, False), Clip(2, True), Clip(0, False), Clip(0, True), Clip(30, False)]
CLIPS += [Clip(1, False), Clip(1, True), Clip(30, True)]


def wanted(q, probs, keys, values, clip, pos_q, pos_k):
    """Return q_i a_ij^T and sum_j p_ij a_ij, a pair at a time."""
    bias, mix = torch.zeros_like(probs), torch.zeros_like(q)
    both = (pos.expand(len(q), -1) for pos in (pos_q, pos_k))
    for b, queries in enumerate(expected_rows(clip, *both)):
        for i, rows in enumerate(queries):
            for j, row in enumerate(rows):
                bias[b, :, i, j] = q[b, :, i] @ keys[0, row]
                mix[b, :, i] += probs[b, :, i, j, None] * values[0, row]
    return bias, mix


def numbers(positions, clip):
    num_queries, num_keys = (pos.shape[1] for pos in positions)
    q = torch.randn(B, H, num_queries, E, dtype=torch.float64)
    probs = torch.rand(B, H, num_queries, num_keys, dtype=torch.float64)
    return q, probs, *torch.randn(2, 1, clip.num_rows, E, dtype=torch.float64)


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
def test_each_pair_has_the_vector_of_its_row(positions, clip):
    q, probs, keys, values = numbers(positions, clip)
    bias, mix = wanted(q, probs, keys, values, clip, *positions)
    same = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(key_bias(q, keys, clip.rows(*positions)), bias, **same)
    torch.testing.assert_close(value_mix(probs, values, clip.rows(*positions)), mix, **same)


FAST = {"square", "two", "last of many", "first keys alone", "keys far left", "keys far right"}
FAST |= {"an offset each"}
NOT_CAUSAL = {"first keys alone", "keys far left", "keys far right"}


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("name", POSITIONS)
def test_sequences_without_gaps_have_a_faster_way(name, clip, monkeypatch):
    asked = []
    monkeypatch.setattr(pairs, "scores", lambda *given: asked.append(given))
    q, _, keys, _ = numbers(POSITIONS[name], clip)
    k = q.new_zeros(B, H, POSITIONS[name][1].shape[1], E)
    key_scores(q, k, keys, clip, *POSITIONS[name])
    fast = name in FAST and clip.max_distance and not (clip.causal and name in NOT_CAUSAL)
    assert len(asked) == bool(fast)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    ("name", "clip"),
    [(x, clip) for x in POSITIONS for clip in CLIPS if not (clip.causal and x in NOT_CAUSAL)],
)
def test_every_way_comes_to_the_same(name, clip):
    positions = POSITIONS[name]
    q, probs, keys, values = numbers(positions, clip)
    k, v = torch.randn(2, B, H, positions[1].shape[1], E, dtype=torch.float64)
    right = (positions[1][:, None, :] > positions[0][:, :, None]).unsqueeze(1)
    hidden = right & clip.causal
    probs = probs.masked_fill(hidden, 0)
    probs = probs / probs.sum(-1, keepdim=True)
    bias, mix = wanted(q, probs, keys, values, clip, *positions)
    same = {"rtol": 0, "atol": 1e-12}
    outputs = value_outputs(probs, v, values, clip, *positions)
    torch.testing.assert_close(outputs, probs @ v + mix, **same)
    scores, expected = key_scores(q, k, keys, clip, *positions), q @ k.transpose(-1, -2) + bias
    scores, expected = (x.masked_fill(hidden, -torch.inf) for x in (scores, expected))
    torch.testing.assert_close(scores.softmax(-1), expected.softmax(-1), **same)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize(
    ("name", "clip"),
    [(x, clip) for x in sorted(FAST - NOT_CAUSAL) for clip in CLIPS if clip.causal],
)
def test_queries_without_keys_spoil_no_other(name, clip):
    positions = POSITIONS[name]
    _, probs, _, values = numbers(positions, clip)
    v = torch.randn(B, H, positions[1].shape[1], E, dtype=torch.float64)
    probs = probs.masked_fill((positions[1][:, None] > positions[0][..., None])[:, None], 0)
    expected = value_outputs(probs, v, values, clip, *positions)
    for first in (0, 1):  # which queries have no key, every other one
        spoiled = probs.clone()
        spoiled[:, :, first::2] = torch.nan
        got = value_outputs(spoiled, v, values, clip, *positions)
        assert torch.equal(got[:, :, 1 - first :: 2], expected[:, :, 1 - first :: 2])


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("clip", [Clip(3, False), Clip(3, True), Clip(12, False), Clip(12, True)])
@pytest.mark.parametrize("tables", [1, H])
@pytest.mark.parametrize("queries", [run_of(0, 9), run_of(6, 3), run_of(2, 4)])
def test_gradients_of_the_faster_way(clip, tables, queries):
    keys = run_of(0, 9)
    size = queries.shape[1]
    hidden = ((keys[0] > queries[0, :, None]) & clip.causal)[None, None]
    q, probs, k, table = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in (
            (B, H, size, E),
            (B, H, size, 9),
            (B, H, 9, E),
            (tables, clip.num_rows, E),
        )
    )

    def scores(q, k, table):
        found = key_scores(q, k, table, clip, queries, keys)
        return found.masked_fill(hidden, 0)

    def outputs(probs, v, table):
        return value_outputs(probs.masked_fill(hidden, 0), v, table, clip, queries, keys)

    for function, x in ((scores, q), (outputs, probs)):
        assert torch.autograd.gradcheck(function, (x, k, table), fast_mode=True)
        assert torch.autograd.gradgradcheck(function, (x, k, table), fast_mode=True)


@pytest.mark.parametrize("clip", [Clip(3, False), Clip(3, True), Clip(12, False)])
@pytest.mark.parametrize("tables", [1, H])
def test_gradients_of_keys_and_values(clip, tables):
    pos = run_of(0, 9)
    q = torch.randn(B, H, 9, E, dtype=torch.float64, requires_grad=True)
    probs = torch.rand(B, H, 9, 9, dtype=torch.float64, requires_grad=True)
    table = torch.randn(tables, clip.num_rows, E, dtype=torch.float64, requires_grad=True)
    for function, x in ((key_bias, q), (value_mix, probs)):

        def call(x, table, function=function):
            return function(x, table, clip.rows(pos, pos))

        assert torch.autograd.gradcheck(call, (x, table), fast_mode=True)
        assert torch.autograd.gradgradcheck(call, (x, table), fast_mode=True)


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
def test_a_bias_of_the_distance_alone(positions):
    pos_q, pos_k = positions

    def values(distances):
        return torch.stack([distances * 1.5, distances.double() ** 2, distances + 0.25])

    got = by_distance(values, pos_q, pos_k, torch.float64)
    distances = pos_k[:, None, :] - pos_q[:, :, None]
    assert torch.equal(
        got.expand(distances.shape[0], -1, -1, -1), values(distances).transpose(0, 1).double()
    )


def test_gradients_of_a_bias_of_the_distance_alone():
    table = torch.randn(H, 40, dtype=torch.float64, requires_grad=True)
    pos_q, pos_k = run_of(3, 5), run_of(0, 9)

    def call(table):
        return by_distance(lambda distances: table[:, distances + 20], pos_q, pos_k, table.dtype)

    assert torch.autograd.gradcheck(call, table)
    assert torch.autograd.gradgradcheck(call, table)


@pytest.mark.parametrize("clip", [Clip(8, False), Clip(8, True)])
def test_no_tensor_of_pairs_and_channels_is_made(clip):
    # 64 queries and keys: n · n · E would be 64 · 64 · E numbers for each head.
    pos, largest = run_of(0, 64), 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes() // tensor.itemsize)
            return out

    q = torch.randn(1, 1, 64, 32, requires_grad=True)
    table = torch.randn(1, clip.num_rows, 32, requires_grad=True)
    with Watch():
        probs = key_scores(q, q, table, clip, pos, pos).softmax(-1)
        value_outputs(probs, q, table, clip, pos, pos).sum().backward()
        probs = key_bias(q, table, clip.rows(pos, pos)).softmax(-1)
        value_mix(probs, table, clip.rows(pos, pos)).sum().backward()
    assert largest <= 64 * 127  # the pairs sorted by distance


@pytest.mark.parametrize("num_keys", [1, 7, 30, 32, 45])
@pytest.mark.parametrize("more", ["each pair", "each key", "padding", "diagonals"])
@pytest.mark.parametrize("whole", [True, False], ids=["all pairs", "some of each row"])
@pytest.mark.parametrize(
    ("dtype", "added_dtype"),
    [
        (torch.bfloat16, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float16),
        (torch.float32, torch.float32),
    ],
)
def test_what_is_added_is_the_sum(
    num_keys: int, more: str, whole: bool, dtype: torch.dtype, added_dtype: torch.dtype
) -> None:
    B, H, Q, K = 2, 3, 5, num_keys
    torch.manual_seed(num_keys)
    added = {
        "each pair": torch.randn(B, H, Q, K),
        "each key": torch.randn(Q, K),
        "padding": torch.randn(B, 1, 1, K),
        "diagonals": pairs.diagonals(torch.randn(B, H, Q, Q + K), K),
    }[more].to(added_dtype)
    base = torch.randn(B, H, Q, K if whole else K + 2).to(dtype)
    view = base[..., :K]
    expected, rest = (view + added).to(dtype), base[..., K:].clone()
    pairs.add(view, added)
    assert torch.equal(view, expected)
    assert torch.equal(base[..., K:], rest)


def test_the_gradient_of_what_is_added_in_bf16() -> None:
    added = torch.randn(3, 5, 7).bfloat16().requires_grad_()
    made = torch.zeros(2, 3, 5, 7).bfloat16().requires_grad_() * 1.0
    pairs.add(made, added)
    made.sum().backward()
    assert torch.equal(added.grad, torch.full_like(added, 2.0))
