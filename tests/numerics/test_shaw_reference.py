"""Shaw et al. 2018 against loops over i and j: scores, outputs, whole layers, gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from shapeshift.attention import causal_mask
from shapeshift.model.attention import Attention
from shapeshift.positions import Shaw

DIM, HEADS, WIDTH = 8, 2, 4
LAYOUTS = [
    {"add_to": "keys"},
    {"add_to": "values"},
    {"add_to": "both"},
    {"add_to": "both", "share_tables": True},
    {"add_to": "keys", "per_head": True},
    {"add_to": "both", "per_head": True},
    {"add_to": "both", "per_head": True, "share_tables": True},
]


def identify(options: dict) -> str:
    return "-".join(str(v) if k == "add_to" else k for k, v in options.items())


def make_layer(max_distance: int, causal: bool, options: dict) -> Attention:
    torch.manual_seed(max_distance)
    position = Shaw(
        num_heads=HEADS, head_dim=WIDTH, max_distance=max_distance, causal=causal, **options
    )
    layer = Attention(DIM, HEADS, 0.0, position).double()
    torch.nn.init.normal_(layer.in_bias)
    torch.nn.init.normal_(layer.out.bias)
    return layer


def tables(position: Shaw) -> dict:
    copied = {
        name: None if table is None else table.detach().numpy().copy()
        for name, table in (("keys", position.keys), ("values", position.values))
    }
    return {"clip": position.max_distance, **copied}


def run(layer: Attention, x: Tensor, causal: bool) -> Tensor:
    length = x.shape[1]
    pos = torch.arange(length)[None]
    mask = causal_mask(length, length, x.dtype, x.device) if causal else None
    return layer(x, x, pos, pos, mask)


@pytest.mark.parametrize("options", LAYOUTS, ids=identify)
@pytest.mark.parametrize("causal", [False, True], ids=["bidirectional", "causal"])
@pytest.mark.parametrize("max_distance", [0, 1, 3, 16])
def test_layer_equals_the_papers_equations(max_distance, causal, options, slow_attention) -> None:
    layer = make_layer(max_distance, causal, options)
    x = torch.randn(2, max_distance + 6, DIM, dtype=torch.float64)
    slow = slow_attention(layer, **tables(layer.position))
    got = run(layer, x, causal).detach().numpy()
    for sentence, out in zip(x.numpy(), got, strict=True):
        expected = slow(sentence, sentence, lambda i, j: j <= i or not causal)
        np.testing.assert_allclose(out, expected, rtol=0, atol=1e-10)


def test_half_precision_sums_far_keys_without_losing_them() -> None:
    # 4,096 keys fall into one clipped row; added up in bfloat16 one by one they would stop at 256.
    torch.manual_seed(0)
    shaw = Shaw(num_heads=1, head_dim=WIDTH, max_distance=1, add_to="values")
    pos_q, pos_k = torch.tensor([[0]]), torch.arange(1, 4097)[None]
    probs = torch.full((1, 1, 1, 4096), 1 / 4096)
    got = shaw.to(torch.bfloat16).value_bias(probs.bfloat16(), pos_q, pos_k)
    torch.testing.assert_close(got[0, 0, 0], shaw.values[0, 2], rtol=0.02, atol=0.0)
