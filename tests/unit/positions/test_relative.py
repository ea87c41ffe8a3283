"""Rows of a table go to pairs of tokens and back, however the positions run.

`tests/numerics` compares the general way with the paper.
"""

import pytest
import torch
from tests.contract.conftest import Watch
from torch.utils._pytree import tree_leaves

from shapeshift import kernels
from shapeshift.positions import Representation, Shaw, shaw

B, H, E = 2, 3, 4
SAME = {"rtol": 0, "atol": 1e-5}


def run_of(start, length):
    return torch.arange(start, start + length)[None]


POSITIONS = {
    "square": (run_of(0, 9), run_of(0, 9)),
    "last of many": (run_of(20, 3), run_of(0, 23)),
    "one query": (run_of(6, 1), run_of(0, 7)),
    "first keys alone": (run_of(0, 9), run_of(0, 4)),
    "keys far left": (run_of(40, 5), run_of(0, 4)),
    "keys far right": (run_of(0, 5), run_of(40, 4)),
    "an offset each": (run_of(0, 6) + torch.tensor([[3], [250]]),) * 2,
    "gaps, unsorted": (torch.tensor([[0, 9, 3, 2]]), torch.tensor([[30, 0, 2, 3, 9]])),
    "lags differ": (run_of(0, 5) + torch.tensor([[3], [1]]), run_of(0, 6)),
}
GENERAL = {"one query", "gaps, unsorted", "lags differ"}
NOT_CAUSAL = {"first keys alone", "keys far left", "keys far right"}


@pytest.fixture(autouse=True)
def _narrow(monkeypatch):
    monkeypatch.setattr(shaw, "_ALIGNED", 1)


def build(k, causal=False, per_head=False):
    torch.manual_seed(k)
    sizes = {"num_heads": H, "head_dim": E, "max_distance": k}
    return Shaw(**sizes, causal=causal, per_head=per_head)


def hidden_from(positions, causal):
    """Return `(B|1, 1, Q, K)`, which keys stand right of their query and are masked."""
    pos_q, pos_k = positions
    return (pos_k[:, None, :] > pos_q[:, :, None]).unsqueeze(1) & causal


def numbers(positions):
    num_queries, num_keys = (pos.shape[1] for pos in positions)
    q = torch.randn(B, H, num_queries, E)
    k, v = torch.randn(2, B, H, num_keys, E)
    return q, k, v, torch.rand(B, H, num_queries, num_keys)


@pytest.mark.parametrize("max_distance", [0, 1, 2, 30])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("name", POSITIONS)
@torch.no_grad()
def test_the_fast_way_is_the_general_one(name, causal, max_distance):
    positions, position = POSITIONS[name], build(max_distance, causal)
    q, k, v, probs = numbers(positions)
    if kernels.is_available(q.dtype):
        is_fast = name not in GENERAL and max_distance and not (causal and name in NOT_CAUSAL)
        assert bool(position._diagonals(position.keys, q, *positions)) == bool(is_fast)
    if causal and name in NOT_CAUSAL:
        return
    hidden = hidden_from(positions, causal)
    probs = probs.masked_fill(hidden, 0)
    outputs = (kind.outputs(position, probs, v, *positions) for kind in (Shaw, Representation))
    torch.testing.assert_close(*outputs, **SAME)
    scores = (kind.scores(position, q, k, *positions) for kind in (Shaw, Representation))
    got, expected = (each.masked_fill(hidden, -torch.inf).softmax(-1) for each in scores)
    torch.testing.assert_close(got, expected, **SAME)


QUERIES = [run_of(0, 9), run_of(2, 4), torch.tensor([[1, 3, 8]])]


@pytest.mark.parametrize("max_distance", [3, 12])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("queries", QUERIES, ids=["all", "middle", "gaps"])
def test_every_way_has_the_same_gradients(max_distance, causal, per_head, queries):
    positions, position = (queries, run_of(0, 9)), build(max_distance, causal, per_head)
    hidden = hidden_from(positions, causal)
    q, k, v, _ = (x.requires_grad_() for x in numbers(positions))
    tensors = [q, k, v, *position.parameters()]
    weights = torch.randn(B, H, queries.shape[1], E)

    def gradients(way):
        scores = way.scores(position, q, k, *positions).masked_fill(hidden, -torch.inf)
        out = way.outputs(position, scores.softmax(-1), v, *positions)
        return torch.autograd.grad((out * weights).sum(), tensors)

    torch.testing.assert_close(gradients(Shaw), gradients(Representation), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_no_tensor_of_pairs_and_channels_is_made(causal):
    # 64 queries and keys: n · n · E would be 64 · 64 · 32 numbers for each head.
    pos, sizes = run_of(0, 64), []

    def see(operator, _, out):
        made = (x for x in tree_leaves(out) if isinstance(x, torch.Tensor))
        sizes.extend(x.untyped_storage().nbytes() // x.itemsize for x in made)

    q = torch.randn(1, 1, 64, 32, requires_grad=True)
    position = Shaw(num_heads=1, head_dim=32, max_distance=8, causal=causal)
    with Watch(see):
        for way in (Shaw, Representation):
            probs = way.scores(position, q, q, pos, pos).softmax(-1)
            way.outputs(position, probs, q, pos, pos).sum().backward()
    assert max(sizes) <= 64 * 127  # the pairs sorted by distance
