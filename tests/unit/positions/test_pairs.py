"""Numbers of table rows reach their pairs of tokens and come back, however the positions run."""

import pytest
import torch

from shapeshift.positions import Shaw, pairs

B, H, E = 2, 3, 4


def run_of(start, length):
    return torch.arange(start, start + length)[None]


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
WITHOUT_LAYOUT = {"one query", "gaps", "lags differ"}
positions = pytest.mark.parametrize("name", POSITIONS)
distances = pytest.mark.parametrize("max_distance", [0, 1, 2, 3, 30])
causal = pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
per_head = pytest.mark.parametrize("per_head", [False, True], ids=["one table", "per head"])
CLOSE = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(params=[1 << 19, 1], ids=["at once", "in groups"])
def in_cache(request, monkeypatch):
    monkeypatch.setattr(pairs, "IN_CACHE", request.param)


def shaw(max_distance, *, causal=False, per_head=False):
    torch.manual_seed(0)
    options = {"max_distance": max_distance, "causal": causal, "per_head": per_head}
    return Shaw(num_heads=H, head_dim=E, **options).double()


def numbers(pos_q, pos_k):
    size, num_keys = pos_q.shape[1], pos_k.shape[1]
    q = torch.randn(B, H, size, E, dtype=torch.float64)
    k, v = torch.randn(2, B, H, num_keys, E, dtype=torch.float64)
    return q, k, v, torch.rand(B, H, size, num_keys, dtype=torch.float64)


def vectors(kind, table, pos_q, pos_k):
    """a_ij of every pair, `(B, H, Q, K, E)`: the definition (Shaw et al. 2018, section 3.2)."""
    k, top = kind.clip.max_distance, 0 if kind.clip.causal else kind.clip.max_distance
    rows = [
        [[max(-k, min(top, j - i)) + k for j in keys] for i in queries]
        for queries, keys in zip(
            pos_q.expand(B, -1).tolist(), pos_k.expand(B, -1).tolist(), strict=True
        )
    ]
    return table.expand(H, -1, -1)[:, torch.tensor(rows)].transpose(0, 1)


@positions
@distances
@causal
@per_head
@pytest.mark.usefixtures("in_cache")
@torch.no_grad()
def test_each_pair_has_the_vector_of_its_distance(name, max_distance, causal, per_head):
    kind, at = shaw(max_distance, causal=causal, per_head=per_head), POSITIONS[name]
    q, k, v, probs = numbers(*at)
    keys, values = (vectors(kind, table, *at) for table in (kind.keys, kind.values))
    bias = torch.einsum("bhqe,bhqke->bhqk", q, keys)
    mix = torch.einsum("bhqk,bhqke->bhqe", probs, values)
    torch.testing.assert_close(kind.query_bias(q, *at), bias, **CLOSE)
    torch.testing.assert_close(kind.value_bias(probs, *at), mix, **CLOSE)
    scores, expected = kind.scores(q, k, *at), q @ k.transpose(-1, -2) + bias
    torch.testing.assert_close(scores.softmax(-1), expected.softmax(-1), **CLOSE)
    probs = probs / probs.sum(-1, keepdim=True)
    mix = torch.einsum("bhqk,bhqke->bhqe", probs, values)
    torch.testing.assert_close(kind.outputs(probs, v, *at), probs @ v + mix, **CLOSE)
    has_layout = name not in WITHOUT_LAYOUT and max_distance > 0
    assert (kind.clip.layout(kind.keys, *at) is not None) == has_layout


@pytest.mark.usefixtures("in_cache")
@torch.no_grad()
def test_queries_without_keys_spoil_no_other():
    kind, at = shaw(3, causal=True), POSITIONS["square"]
    _, _, v, probs = numbers(*at)
    expected = kind.outputs(probs, v, *at)
    for first in (0, 1):  # which queries have no key, every other one
        spoiled = probs.clone()
        spoiled[:, :, first::2] = torch.nan
        got = kind.outputs(spoiled, v, *at)
        assert torch.equal(got[:, :, 1 - first :: 2], expected[:, :, 1 - first :: 2])


@pytest.mark.usefixtures("in_cache")
@pytest.mark.parametrize("max_distance", [3, 12])
@causal
@per_head
@pytest.mark.parametrize("queries", [run_of(0, 9), run_of(6, 3), run_of(8, 1)])
def test_first_and_second_gradients(max_distance, causal, per_head, queries):
    kind, at = shaw(max_distance, causal=causal, per_head=per_head), (queries, run_of(0, 9))
    hidden = ((at[1][0] > queries[0, :, None]) & causal)[None, None]
    q, k, v, probs = (x.requires_grad_() for x in numbers(*at))

    def scores(q, k, keys):  # softmax, for there is a constant for each query
        kind.keys = keys
        return kind.scores(q, k, *at).masked_fill(hidden, -torch.inf).softmax(-1)

    def outputs(probs, v, values):
        kind.values = values
        return kind.outputs(probs.masked_fill(hidden, 0), v, *at)

    def biases(q, probs, keys, values):
        kind.keys, kind.values = keys, values
        return kind.query_bias(q, *at), kind.value_bias(probs, *at)

    keys, values = kind.keys.detach().requires_grad_(), kind.values.detach().requires_grad_()
    del kind.keys, kind.values
    given = {scores: (q, k, keys), outputs: (probs, v, values), biases: (q, probs, keys, values)}
    for function, inputs in given.items():
        assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
        assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@positions
def test_a_bias_of_the_distance_alone(name):
    pos_q, pos_k = POSITIONS[name]

    def values(distances):
        return torch.stack([distances * 1.5, distances.double() ** 2, distances + 0.25])

    got = pairs.by_distance(values, pos_q, pos_k, torch.float64)
    expected = values(pos_k[:, None, :] - pos_q[:, :, None]).transpose(0, 1).double()
    assert torch.equal(got.expand(len(expected), -1, -1, -1), expected)


def test_gradients_of_a_bias_of_the_distance_alone():
    table = torch.randn(H, 40, dtype=torch.float64, requires_grad=True)

    def call(table):
        values = lambda distances: table[:, distances + 20]  # noqa: E731
        return pairs.by_distance(values, run_of(3, 5), run_of(0, 9), table.dtype)

    assert torch.autograd.gradcheck(call, table)
    assert torch.autograd.gradgradcheck(call, table)


@causal
def test_no_tensor_of_pairs_and_channels_is_made(causal):
    # 64 queries and keys: n · n · E would be 64 · 64 · 32 numbers for each head.
    pos, largest = run_of(0, 64), 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for tensor in out if isinstance(out, tuple | list) else (out,):
                if isinstance(tensor, torch.Tensor):
                    largest = max(largest, tensor.untyped_storage().nbytes() // tensor.itemsize)
            return out

    kind = Shaw(num_heads=1, head_dim=32, max_distance=8, causal=causal)
    q = torch.randn(1, 1, 64, 32, requires_grad=True)
    with Watch():
        kind.outputs(kind.scores(q, q, pos, pos).softmax(-1), q, pos, pos).sum().backward()
        kind.value_bias(kind.query_bias(q, pos, pos).softmax(-1), pos, pos).sum().backward()
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
def test_what_is_added_is_the_sum(num_keys, more, whole, dtype, added_dtype):
    Q, K = 5, num_keys
    torch.manual_seed(num_keys)
    added = {
        "each pair": torch.randn(B, H, Q, K),
        "each key": torch.randn(Q, K),
        "padding": torch.randn(B, 1, 1, K),
        "diagonals": pairs.diagonals(torch.randn(B, H, Q, Q + K - 1), K),
    }[more].to(added_dtype)
    base = torch.randn(B, H, Q, K if whole else K + 2).to(dtype)
    view = base[..., :K]
    expected, rest = (view + added).to(dtype), base[..., K:].clone()
    pairs.add(view, added)
    assert torch.equal(view, expected)
    assert torch.equal(base[..., K:], rest)


def test_the_gradient_of_what_is_added_in_bf16():
    added = torch.randn(3, 5, 7).bfloat16().requires_grad_()
    scores = torch.zeros(2, 3, 5, 7).bfloat16().requires_grad_() * 1.0
    pairs.add(scores, added)
    scores.sum().backward()
    assert torch.equal(added.grad, torch.full_like(added, 2.0))
