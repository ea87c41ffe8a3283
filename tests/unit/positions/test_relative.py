"""Rows of a table go to pairs of tokens and back, however the positions run.

`tests/numerics` compares the general way with the paper.
"""

import pytest
import torch
from tests.contract.conftest import Watch
from torch.utils._pytree import tree_leaves

from shapeshift import kernels
from shapeshift.attention import attend, attend_with_probs
from shapeshift.positions import Shaw

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


class General(Shaw):
    """Attention knows no faster way for a kind with a hook of its own."""

    def value_bias(self, probs, pos_q, pos_k):
        return super().value_bias(probs, pos_q, pos_k)


def build(k, causal=False, per_head=False, kind=Shaw):
    torch.manual_seed(k)
    sizes = {"num_heads": H, "head_dim": E, "max_distance": k}
    return kind(**sizes, causal=causal, per_head=per_head)


def by_pairs(inputs, mask, position, positions):
    """Attention in float64, with a vector for each pair of a query and a key."""
    q, k, v = (x.double() for x in inputs)
    last = 0 if position.causal_only else position.max_distance
    at_q, at_k = (pos.unsqueeze(dim) for pos, dim in zip(positions, (2, 1), strict=True))
    rows = (at_k - at_q).clamp(-position.max_distance, last) + position.max_distance
    keys, values = (x.double()[0][rows].unsqueeze(1) for x in (position.keys, position.values))
    scores = q @ k.mT + (q.unsqueeze(3) * keys).sum(-1)
    probs = (scores / E**0.5 + mask).softmax(-1)
    return probs @ v + (probs.unsqueeze(4) * values).sum(3)


def hidden_from(positions, causal):
    """Return `(B|1, 1, Q, K)` to add to the scores: keys right of their query are hidden, unless
    all keys are."""
    pos_q, pos_k = positions
    hidden = (pos_k[:, None, :] > pos_q[:, :, None]).unsqueeze(1) & causal
    hidden &= ~hidden.all(-1, keepdim=True)
    return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)


def heads(positions):
    num_queries, num_keys = (pos.shape[1] for pos in positions)
    return torch.randn(B, H, num_queries, E), *torch.randn(2, B, H, num_keys, E)


@pytest.mark.parametrize(("max_distance", "per_head"), [(0, False), (2, True), (30, False)])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("name", POSITIONS)
def test_the_fast_way_is_the_general_one(name, causal, max_distance, per_head, ran):
    positions = POSITIONS[name]
    mask, inputs = hidden_from(positions, causal), [x.requires_grad_() for x in heads(positions)]
    weights = torch.randn(inputs[0].shape)
    found = []
    for kind in (Shaw, General):
        position = build(max_distance, causal, per_head, kind)
        out = attend(*inputs, mask, position, *positions)
        served = kernels.is_available(torch.float32) and kind is Shaw and name not in GENERAL
        assert ran.pop() == ("cpu" if served else "reference")
        if not per_head:
            exact = by_pairs(inputs, mask, position, positions)
            torch.testing.assert_close(out.double(), exact, **SAME)
        leaves = [*inputs, *position.parameters()]
        found.append([out, *torch.autograd.grad((out * weights).sum(), leaves)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [Shaw, General])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
def test_no_tensor_of_pairs_and_channels_is_made(causal, kind):
    # 64 queries and keys: n · n · E would be 64 · 64 · 32 numbers for each head.
    pos, sizes = run_of(0, 64), []

    def see(operator, _, out):
        made = (x for x in tree_leaves(out) if isinstance(x, torch.Tensor))
        sizes.extend(x.untyped_storage().nbytes() // x.itemsize for x in made)

    q = torch.randn(1, 1, 64, 32, requires_grad=True)
    position = kind(num_heads=1, head_dim=32, max_distance=8, causal=causal)
    with Watch(see):
        attend_with_probs(q, q, q, None, position, pos, pos)[0].sum().backward()
    assert max(sizes) <= 64 * 127  # the pairs sorted by distance
