"""xPos against loops, and its numbers where one factor alone would overflow."""

from __future__ import annotations

import math

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import XPos

WIDTH = 8


def slow_score(i: int, j: int, q, k, pairs: str, gamma: float, scale_base: float) -> float:
    """Equation of section 3.1 of Sun et al. 2022, one pair of channels at a time."""
    half = WIDTH // 2
    total = 0.0
    for m in range(half):
        a, b = (2 * m, 2 * m + 1) if pairs == "interleaved" else (m, m + half)
        zeta = (m / half + gamma) / (1 + gamma)
        turned = complex(q[a], q[b]) * complex(k[a], -k[b])
        angle = (i - j) * math.pow(10_000, -2 * m / WIDTH)
        total += math.pow(zeta, (i - j) / scale_base) * (
            turned.real * math.cos(angle) - turned.imag * math.sin(angle)
        )
    return total / math.sqrt(WIDTH)


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@pytest.mark.parametrize(("gamma", "scale_base"), [(0.4, 512.0), (0.1, 20.0)])
def test_layer_equals_the_papers_equation(pairs, gamma, scale_base, check_layer) -> None:
    xpos = XPos(head_dim=WIDTH, pairs=pairs, gamma=gamma, scale_base=scale_base)

    def score(h, i, j, q, k):
        return slow_score(i, j, q, k, pairs, gamma, scale_base)

    check_layer(xpos, score, dim=16, causal=True)


def heads(xpos: XPos, dtype: torch.dtype, pos: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(1, 1, len(pos), WIDTH, dtype=torch.float64)
    return xpos.rotate(x.to(dtype), x.flip(-1).to(dtype), *[torch.tensor([pos])] * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_far_out_scores_are_finite_and_right(dtype: torch.dtype) -> None:
    pos = [0, 1_000, 13_000, 14_000]
    q, k = heads(XPos(head_dim=WIDTH), dtype, pos)
    scores = q.float() @ k.float().transpose(-1, -2)
    assert scores.isfinite().all(), "those that a mask covers must be finite, too"
    exact = heads(XPos(head_dim=WIDTH), torch.float64, pos)
    expected = exact[0] @ exact[1].transpose(-1, -2)
    allowed = torch.ones(4, 4).tril().bool()
    error = (scores - expected)[..., allowed].abs().max()
    assert error < (1e-5 if dtype == torch.float32 else 0.1)


def test_positions_out_of_range_are_refused() -> None:
    with pytest.raises(
        ShapeshiftError, match=r"float32 reaches position 145\d\d, got 20000; use kind"
    ):
        heads(XPos(head_dim=WIDTH), torch.float32, [0, 20_000])
    heads(XPos(head_dim=WIDTH), torch.float64, [0, 20_000])
