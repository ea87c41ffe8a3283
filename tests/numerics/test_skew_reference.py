"""The Music Transformer's relative term against loops, and against the skewing of its paper."""

from __future__ import annotations

import math

import pytest

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
