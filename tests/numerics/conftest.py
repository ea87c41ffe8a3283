"""Slow attention in NumPy, one pair of tokens at a time, written from the papers' equations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from shapeshift.model.attention import Attention

Array = NDArray[np.float64]


@dataclass
class SlowAttention:
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2) with the relative vectors of
    Shaw et al. 2018, equations 3 and 4, where tables are given."""

    in_weight: Array
    in_bias: Array
    out_weight: Array
    out_bias: Array
    num_heads: int
    keys: Array | None = None  # (1 or H, rows, E)
    values: Array | None = None
    clip: int = 0

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
        scores = [q[i] @ (k[j] + self._relative(self.keys, h, j - i)) for j in seen]
        weights = np.exp(np.array(scores) / np.sqrt(q.shape[1]))
        weights /= weights.sum()
        z = np.zeros(v.shape[1])
        for weight, j in zip(weights, seen, strict=True):
            z += weight * (v[j] + self._relative(self.values, h, j - i))
        return z

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
