"""Attention without position, and whole encoder layers, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, sqrt

import numpy as np
import pytest
import torch

from shapeshift.attention import backends as attention_module
from shapeshift.model.attention import Attention
from shapeshift.model.layers import EncoderLayer, FeedForward, Residual
from shapeshift.positions import Representation

DIM, HEADS = 12, 3


def make_attention() -> Attention:
    torch.manual_seed(0)
    layer = Attention(DIM, HEADS, 0.0, Representation()).double()
    torch.nn.init.normal_(layer.in_bias)
    torch.nn.init.normal_(layer.out.bias)
    return layer


@pytest.mark.parametrize(("causal", "cross"), [(False, False), (True, False), (False, True)])
def test_layer_equals_the_papers_equation(causal, cross, check_layer, backend) -> None:
    def score(h, i, j, q, k):
        return q @ k / sqrt(len(q))

    check_layer(Representation(), score, dim=DIM, num_heads=HEADS, causal=causal, cross=cross)
    assert backend.calls


def layer_norm(x: np.ndarray, norm: torch.nn.LayerNorm) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return scaled * norm.weight.detach().numpy() + norm.bias.detach().numpy()


def relu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, x, 0.0)


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


@pytest.mark.parametrize("activation", [relu, gelu])
@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre", "post"])
def test_encoder_layer(pre_norm: bool, activation: Callable, slow_attention) -> None:
    attention = make_attention()
    layer = EncoderLayer(
        attention,
        FeedForward(DIM, 20, activation.__name__, 0.0),
        [Residual(DIM, 0.0, pre_norm) for _ in range(2)],
    ).double()
    for parameter in (p for name, p in layer.named_parameters() if "norm" in name):
        torch.nn.init.normal_(parameter, mean=1.0, std=0.5)
    torch.nn.init.normal_(layer.feed_forward.inner.bias)
    torch.nn.init.normal_(layer.feed_forward.outer.bias)
    tensor = torch.randn(1, 6, DIM, dtype=torch.float64)
    pos = torch.arange(6)[None]
    got = layer(tensor, pos, None)[0].detach().numpy()

    inner, outer = (
        (linear.weight.detach().numpy(), linear.bias.detach().numpy())
        for linear in (layer.feed_forward.inner, layer.feed_forward.outer)
    )

    def attend(x: np.ndarray) -> np.ndarray:
        return slow_attention(attention)(x, x, lambda i, j: True)

    def feed(x: np.ndarray) -> np.ndarray:
        return activation(x @ inner[0].T + inner[1]) @ outer[0].T + outer[1]

    norms = (layer.around_attention.norm, layer.around_feed_forward.norm)
    x = tensor[0].numpy()
    for branch, norm in zip((attend, feed), norms, strict=True):
        if pre_norm:
            x = x + branch(layer_norm(x, norm))
        else:
            x = layer_norm(x + branch(x), norm)
    np.testing.assert_allclose(got, x, rtol=0, atol=1e-10)


def test_scores_made_again_drop_the_same_units(monkeypatch) -> None:
    monkeypatch.setattr(attention_module, "BLOCK", 64)
    monkeypatch.setattr(attention_module, "RECOMPUTED_FROM", 8)
    layer = make_attention()
    layer.dropout = 0.5
    pos = torch.arange(10)[None]

    def run(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return layer(x, x, pos, pos, None)

    x = torch.randn(2, 10, DIM, dtype=torch.float64, requires_grad=True)
    assert not torch.equal(run(x), layer.eval()(x, x, pos, pos, None))
    layer.train()
    assert torch.autograd.gradcheck(run, (x,), fast_mode=True)
