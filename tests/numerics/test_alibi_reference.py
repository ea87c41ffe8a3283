"""Linear biases against loops, and the slopes of the paper's figures."""

from __future__ import annotations

import math

import pytest
import torch

from shapeshift.positions import ALiBi


def slope(head: int, num_heads: int) -> float:
    """Section 3 of Press et al. 2022: a geometric sequence that begins at 2^(-8/H) with that ratio;
    where H is no power of two, what is missing comes from twice the power below, every other."""
    if math.log2(num_heads).is_integer():
        return (2 ** (-8 / num_heads)) ** (head + 1)
    below = 2 ** math.floor(math.log2(num_heads))
    if head < below:
        return slope(head, below)
    return slope(2 * (head - below), 2 * below)


@pytest.mark.parametrize("num_heads", [1, 3, 8, 12, 31])
def test_slopes_by_the_rule(num_heads: int) -> None:
    expected = [slope(head, num_heads) for head in range(num_heads)]
    assert ALiBi(num_heads=num_heads).slopes().tolist() == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("num_heads", [2, 3])
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
def test_layer_equals_the_papers_equation(causal, num_heads, check_layer) -> None:
    def score(h, i, j, q, k):
        distance = i - j if causal else max(i - j, j - i)
        return q @ k / math.sqrt(len(q)) - slope(h, num_heads) * distance

    check_layer(ALiBi(num_heads=num_heads), score, dim=12, num_heads=num_heads, causal=causal)


def test_half_precision_rounds_the_product_alone() -> None:
    # 3,001 itself would become 3,008 in bfloat16; -3001 / 256 becomes the nearest there is.
    bias = ALiBi(num_heads=1).bias(
        torch.tensor([[3001]]), torch.tensor([[0]]), dtype=torch.bfloat16
    )
    assert bias.dtype == torch.bfloat16
    assert float(bias) == float(torch.tensor(-3001 / 256).bfloat16())
