"""T5's buckets and biases, one distance and one pair at a time."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import pytest
import torch

from shapeshift.positions import T5

HEADS = 2


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


def buckets_of(t5: T5, distances: list[int]) -> list[int]:
    """The buckets that the module uses, read from biases that are the buckets' own numbers."""
    with torch.no_grad():
        t5.double().weight.copy_(torch.arange(len(t5.weight))[:, None].expand_as(t5.weight))
        start = torch.tensor([[100_000]])
        bias = t5.bias(start, start + torch.tensor([distances]), dtype=torch.float64)
    assert torch.equal(bias[:, 0], bias[:, 1])
    return bias[0, 0, 0].int().tolist()


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize(("num", "most"), [(32, 128), (4, 3), (12, 7), (64, 1000), (32, 17)])
def test_every_distance_falls_into_its_bucket(num: int, most: int, causal: bool) -> None:
    distances = list(range(-most - 40, most + 41))
    t5 = T5(dim=8, num_heads=HEADS, num_buckets=num, max_distance=most, causal=causal)
    assert buckets_of(t5, distances) == [bucket(d, num, most, causal) for d in distances]


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_layer_equals_the_papers_equation(causal, check_layer) -> None:
    t5 = T5(dim=8, num_heads=HEADS, num_buckets=8, max_distance=50, causal=causal)
    torch.nn.init.normal_(t5.weight)

    def score(h, i, j, q, k):
        return q @ k / math.sqrt(len(q)) + t5.weight[bucket(j - i, 8, 50, causal), h].item()

    check_layer(t5, score, causal=causal)
