"""FIRE against its formula, one pair at a time."""

from __future__ import annotations

import math

import pytest
import torch

from shapeshift.errors import ShapeshiftError
from shapeshift.positions import KINDS


@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("threshold", [1.0, 30.0])
def test_layer_equals_the_papers_equation(causal, threshold, check_layer) -> None:
    """Section 4 of Li et al. 2024; both sides as the docstring says."""
    torch.manual_seed(1)
    fire = KINDS["fire"].build(num_heads=2, hidden=5, threshold=threshold).double()
    torch.nn.init.normal_(fire.log_c)
    c, limit = math.exp(fire.log_c.item()), math.exp(fire.log_threshold.item())
    assert limit == pytest.approx(threshold)
    inner, inner_bias = fire.inner.weight[:, 0].tolist(), fire.inner.bias.tolist()
    outer, outer_bias = fire.outer.weight.tolist(), fire.outer.bias.tolist()

    def psi(x: float) -> float:
        return math.log(c * x + 1)

    def score(h, i, j, q, k):
        x = psi(i - j) / psi(max(limit, i)) if j <= i else -psi(j - i) / psi(max(limit, j))
        hidden = [max(0.0, w * x + b) for w, b in zip(inner, inner_bias, strict=True)]
        f = sum(w * unit for w, unit in zip(outer[h], hidden, strict=True)) + outer_bias[h]
        return q @ k / math.sqrt(len(q)) + f

    check_layer(fire, score, causal=causal)


def test_starts_where_it_says_and_refuses_what_has_no_meaning() -> None:
    fire = KINDS["fire"].build(num_heads=3)
    assert fire.log_c.exp().item() == pytest.approx(0.1)
    assert fire.log_threshold.exp().item() == pytest.approx(512)
    for options in ({"hidden": 0}, {"threshold": 0.0}):
        with pytest.raises(ShapeshiftError, match=f"{next(iter(options))}"):
            KINDS["fire"].build(num_heads=3, **options)
