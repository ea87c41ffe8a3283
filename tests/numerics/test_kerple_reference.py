"""Kernelized biases against the paper's logarithm, one pair at a time."""

from __future__ import annotations

import math

import pytest
import torch

from shapeshift.positions import KINDS


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("num_heads", [1, 3])
def test_layer_equals_the_papers_equation(num_heads, causal, check_layer) -> None:
    """Section 4 of Chi et al. 2022: the kernel -r1 log(1 + r2 |m - n|), added to the scores."""
    torch.manual_seed(1)
    kerple = KINDS["kerple"].build(num_heads=num_heads)
    r1 = [math.exp(each) for each in kerple.double().log_r1.tolist()]
    r2 = [math.exp(each) for each in kerple.log_r2.tolist()]
    assert all(0.01 <= each <= 2 for each in r1)
    assert all(0.01 <= each <= 1 for each in r2)

    def score(h, i, j, q, k):
        return q @ k / math.sqrt(len(q)) - r1[h] * math.log(1 + r2[h] * abs(i - j))

    check_layer(kerple, score, dim=12, num_heads=num_heads, causal=causal)


def test_half_precision_rounds_the_bias_alone() -> None:
    kerple = KINDS["kerple"].build(num_heads=1)
    with torch.no_grad():
        kerple.log_r1.zero_()
        kerple.log_r2.zero_()
    bias = kerple.bias(torch.tensor([[3001]]), torch.tensor([[0]]), dtype=torch.bfloat16)
    assert bias.item() == torch.tensor(-math.log(3002)).bfloat16().item()
