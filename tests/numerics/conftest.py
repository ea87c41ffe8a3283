"""Slow attention in NumPy, one pair of tokens at a time, written from the papers' equations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from shapeshift.attention import causal_mask
from shapeshift.model.attention import Attention
from shapeshift.positions import Representation

Array = NDArray[np.float64]
Score = Callable[[int, int, int, Array, Array], float]
"""The score before softmax from h, the positions of query and key, q_i and k_j."""


@dataclass
class SlowAttention:
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2) with the relative vectors of
    Shaw et al. 2018, equations 3 and 4, where tables are given, or with scores of another kind."""

    in_weight: Array
    in_bias: Array
    out_weight: Array
    out_bias: Array
    num_heads: int
    keys: Array | None = None  # (1 or H, rows, E)
    values: Array | None = None
    clip: int = 0
    score: Score | None = None

    def __call__(self, x: Array, memory: Array, allowed: Callable[[int, int], bool]) -> Array:
        """`x (Q, D)` looks at `memory (K, D)`; query i may see key j where `allowed(i, j)`."""
        width = x.shape[1] // self.num_heads
        w_q, w_k, w_v = np.split(self.in_weight, 3)
        b_q, b_k, b_v = np.split(self.in_bias, 3)
        heads = []
        for h in range(self.num_heads):
            own = slice(h * width, (h + 1) * width)
            q = x @ w_q[own].T + b_q[own]
            k = memory @ w_k[own].T + b_k[own]
            v = memory @ w_v[own].T + b_v[own]
            heads.append([self._one(h, i, q, k, v, allowed) for i in range(len(x))])
        return np.concatenate(heads, axis=-1) @ self.out_weight.T + self.out_bias

    def _one(
        self, h: int, i: int, q: Array, k: Array, v: Array, allowed: Callable[[int, int], bool]
    ) -> Array:
        seen = [j for j in range(len(k)) if allowed(i, j)]
        weights = np.exp([self._score(h, i, j, q[i], k[j]) for j in seen])
        weights /= weights.sum()
        z = np.zeros(v.shape[1])
        for weight, j in zip(weights, seen, strict=True):
            z += weight * (v[j] + self._relative(self.values, h, j - i))
        return z

    def _score(self, h: int, i: int, j: int, q: Array, k: Array) -> float:
        if self.score is not None:
            return self.score(h, i, j, q, k)
        return q @ (k + self._relative(self.keys, h, j - i)) / np.sqrt(len(q))

    def _relative(self, table: Array | None, h: int, distance: int) -> Array | float:
        if table is None:
            return 0.0
        row = max(-self.clip, min(self.clip, distance)) + self.clip
        return table[h if len(table) > 1 else 0, row]


@pytest.fixture
def slow_attention() -> Callable[..., SlowAttention]:
    """Return a function that copies a layer's weights into a `SlowAttention`."""

    def copy(layer: Attention, **relative: object) -> SlowAttention:
        parameters = (layer.in_weight, layer.in_bias, layer.out.weight, layer.out.bias)
        arrays = (parameter.detach().numpy().copy() for parameter in parameters)
        return SlowAttention(*arrays, layer.num_heads, **relative)

    return copy


@pytest.fixture
def check_layer(slow_attention) -> Callable[..., None]:
    """Return a function that compares an attention layer with `position` in it with the slow one
    with `score`, for two sentences at positions of their own, with gaps."""

    def check(
        position: Representation,
        score: Score,
        *,
        dim: int = 8,
        num_heads: int = 2,
        causal: bool = False,
        cross: bool = False,
        pos: tuple[list[int], list[int]] = ([0, 1, 2, 5, 6, 20], [3, 50, 51, 53, 130, 400]),
    ) -> None:
        torch.manual_seed(0)
        layer = Attention(dim, num_heads, 0.0, position).double()
        torch.nn.init.normal_(layer.in_bias)
        torch.nn.init.normal_(layer.out.bias)
        pos_q = torch.tensor(pos)
        pos_k = pos_q[:, ::2] + 1 if cross else pos_q
        x = torch.randn(*pos_q.shape, dim, dtype=torch.float64)
        memory = torch.randn(*pos_k.shape, dim, dtype=torch.float64) if cross else x
        length = x.shape[1]
        mask = causal_mask(length, length, x.dtype, x.device) if causal else None
        got = layer(x, memory, pos_q, pos_k, mask).detach().numpy()
        for b, out in enumerate(got):
            at_q, at_k = pos_q[b].tolist(), pos_k[b].tolist()
            slow = slow_attention(
                layer, score=lambda h, i, j, q, k, i_=at_q, j_=at_k: score(h, i_[i], j_[j], q, k)
            )
            expected = slow(x[b].numpy(), memory[b].numpy(), lambda i, j: j <= i or not causal)
            np.testing.assert_allclose(out, expected, rtol=0, atol=1e-10)

    return check
