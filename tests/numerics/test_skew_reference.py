"""The Music Transformer's relative term against loops, and against the skewing of its paper."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

from shapeshift.positions import Skew

HEADS, WIDTH = 2, 4


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("per_head", [False, True], ids=["one table", "per head"])
@pytest.mark.parametrize("max_distance", [0, 2, 64])
def test_layer_equals_the_papers_equation(max_distance, per_head, causal, check_layer) -> None:
    skew = Skew(
        num_heads=HEADS, head_dim=WIDTH, max_distance=max_distance, per_head=per_head, causal=causal
    )

    def score(h, i, j, q, k):
        table = skew.keys.detach().numpy()[h if per_head else 0]
        r = table[max(-max_distance, min(max_distance, j - i)) + max_distance]
        return (q @ k + q @ r) / math.sqrt(WIDTH)

    check_layer(skew, score, causal=causal)


@torch.no_grad()
def test_it_is_what_skewing_makes_of_the_products() -> None:
    # Section 3.4.1: pad a column on the left, read the rows at another width, drop the first.
    length = 9
    skew = Skew(num_heads=HEADS, head_dim=WIDTH, max_distance=length - 1, causal=True).double()
    q, pos = torch.randn(1, HEADS, length, WIDTH, dtype=torch.float64), torch.arange(length)[None]
    products = q @ skew.keys.transpose(-1, -2)  # columns: distance -8 … 0
    skewed = F.pad(products, (1, 0)).view(1, HEADS, length + 1, length)[:, :, 1:]
    left = torch.ones(length, length).tril().bool()
    expected = skewed[..., left] / math.sqrt(WIDTH)
    torch.testing.assert_close(
        skew.query_bias(q * q.shape[-1] ** -0.5, pos, pos)[..., left], expected, rtol=0, atol=1e-12
    )
