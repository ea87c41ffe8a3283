"""Untied positions against loops over the paper's equation."""

from __future__ import annotations

import math

import pytest

from shapeshift.positions import T5, TUPE, Chain

DIM, HEADS, WIDTH = 8, 2, 4


def term(tupe: TUPE, h: int, i: int, j: int) -> float:
    """(p_i U^Q) (p_j U^K)^T of Ke et al. 2021, equation 7, for one head."""
    p_i, p_j = tupe.vectors.weight[[i, j]].tolist()
    total = 0.0
    for e in range(h * WIDTH, (h + 1) * WIDTH):
        left = sum(p_i[d] * tupe.query[d, e].item() for d in range(DIM))
        right = sum(p_j[d] * tupe.key[d, e].item() for d in range(DIM))
        total += left * right
    return total


@pytest.mark.parametrize("attention", ["bidirectional", "causal", "cross"])
def test_layer_equals_the_papers_equation(attention, check_layer) -> None:
    tupe = TUPE(dim=DIM, num_heads=HEADS)

    def score(h, i, j, q, k):
        return (q @ k + term(tupe, h, i, j)) / math.sqrt(2 * WIDTH)

    check_layer(tupe, score, causal=attention == "causal", cross=attention == "cross")


def test_with_t5s_bias_it_is_tupe_r(check_layer) -> None:
    tupe, t5 = (
        TUPE(dim=DIM, num_heads=HEADS),
        T5(dim=DIM, num_heads=HEADS, num_buckets=4, max_distance=3),
    )

    def score(h, i, j, q, k):
        bucket = min(abs(j - i), 1) + (2 if j > i else 0)  # one near and one far in a direction
        relative = t5.weight[bucket, h].item()
        return (q @ k + term(tupe, h, i, j)) / math.sqrt(2 * WIDTH) + relative

    check_layer(Chain(tupe, t5), score)
