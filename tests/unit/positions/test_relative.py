"""Numbers of table rows go to pairs of tokens and back, however the positions run."""

import pytest
import torch

from shapeshift.positions import relative
from shapeshift.positions.relative import Clip, by_distance, key_bias, value_mix

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


WAYS = {  # from how many keys on pairs are sorted by distance, and how many numbers at a time
    "gathered": (1000, 1),
    "sorted": (1, 1 << 19),
    "sorted in groups": (1, 1),
}


@pytest.fixture(params=WAYS.values(), ids=list(WAYS))
def _way(request, monkeypatch):
    runs_from, in_cache = request.param
    monkeypatch.setattr(relative, "_RUNS_FROM", runs_from)
    monkeypatch.setattr(relative, "_IN_CACHE", in_cache)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("clip", [Clip(2, False), Clip(2, True), Clip(0, False), Clip(30, False)])
@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
def test_each_pair_has_the_vector_of_its_row(positions, clip):
    pos_q, pos_k = positions
    both = (pos_q.expand(B, -1), pos_k.expand(B, -1))
    num_queries, num_keys = pos_q.shape[1], pos_k.shape[1]
    q = torch.randn(B, H, num_queries, E, dtype=torch.float64)
    probs = torch.rand(B, H, num_queries, num_keys, dtype=torch.float64)
    keys, values = torch.randn(2, 1, clip.num_rows, E, dtype=torch.float64)
    bias = key_bias(q, keys, clip, pos_q, pos_k)
    mix = value_mix(probs, values, clip, pos_q, pos_k)
    wanted_bias, wanted_mix = torch.zeros_like(bias), torch.zeros_like(mix)
    for b, queries in enumerate(expected_rows(clip, *both)):
        for i, rows in enumerate(queries):
            for j, row in enumerate(rows):
                wanted_bias[b, :, i, j] = q[b, :, i] @ keys[0, row]
                wanted_mix[b, :, i] += probs[b, :, i, j, None] * values[0, row]
    torch.testing.assert_close(bias, wanted_bias, rtol=0, atol=1e-12)
    torch.testing.assert_close(mix, wanted_mix, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("_way")
@pytest.mark.parametrize("clip", [Clip(3, False), Clip(3, True), Clip(12, False)])
@pytest.mark.parametrize("tables", [1, H])
def test_gradients_of_keys_and_values(clip, tables):
    pos = run_of(0, 9)
    q = torch.randn(B, H, 9, E, dtype=torch.float64, requires_grad=True)
    probs = torch.rand(B, H, 9, 9, dtype=torch.float64, requires_grad=True)
    table = torch.randn(tables, clip.num_rows, E, dtype=torch.float64, requires_grad=True)
    for function, x in ((key_bias, q), (value_mix, probs)):

        def call(x, table, function=function):
            return function(x, table, clip, pos, pos)

        assert torch.autograd.gradcheck(call, (x, table), fast_mode=True)
        assert torch.autograd.gradgradcheck(call, (x, table), fast_mode=True)


@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
def test_a_bias_of_the_distance_alone(positions):
    pos_q, pos_k = positions

    def values(distances):
        return torch.stack([distances * 1.5, distances.double() ** 2, distances + 0.25])

    got = by_distance(values, pos_q, pos_k)
    distances = pos_k[:, None, :] - pos_q[:, :, None]
    assert torch.equal(
        got.expand(distances.shape[0], -1, -1, -1), values(distances).transpose(0, 1)
    )


def test_no_tensor_of_pairs_and_channels_is_made():
    # 64 queries and keys: n · n · E would be 64 · 64 · E numbers for each head.
    pos, clip = run_of(0, 64), Clip(8, False)
    largest = 0

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
        scores = key_bias(q, table, clip, pos, pos)
        value_mix(scores.softmax(-1), table, clip, pos, pos).sum().backward()
    assert largest <= 64 * 127  # the pairs sorted by distance
