"""Relative position representations (Shaw et al. 2018)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from . import relative
from .base import Representation


class Shaw(Representation):
    """Vectors a^K, a^V for the clipped distance between two tokens (Shaw et al. 2018, section 3).

        e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(E)
        z_i  = sum_j softmax(e)_ij (x_j W^V + a^V_ij)
        a_ij = w_{clip(j - i, k)},  clip(x, k) = max(-k, min(k, x))

    The n × n × E tensor a_ij is never built: queries meet the 2k + 1 rows of the table once and the
    products are gathered (the paper's section 3.3 reshapes instead); probabilities are summed by
    distance before they meet the value table.

    Args:
        num_heads: H.
        head_dim: E.
        max_distance: k, the clipping distance; 0 leaves one row, which says nothing of position.
        add_to: `keys` (a^K only), `values` (a^V only) or `both`.
        share_tables: one table serves as a^K and a^V (the SHAPE authors' code); the paper has two.
        per_head: a table for each head; the paper shares one between the heads of a layer.
        share_layers: one set of tables for all layers; the paper has one for each layer. Read by
            whoever places the module, not here.
        causal: keys never stand right of the query, so the rows for j > i are left out.

    Raises:
        ShapeshiftError: if k is negative, or `add_to` none of the three.
    """

    places = ("self",)

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        max_distance: int = 16,
        add_to: Literal["both", "keys", "values"] = "both",
        share_tables: bool = False,
        per_head: bool = False,
        share_layers: bool = False,
        causal: bool = False,
    ):
        super().__init__()
        if max_distance < 0:
            raise ShapeshiftError(f"max_distance must not be negative, got {max_distance}")
        if add_to not in ("both", "keys", "values"):
            raise ShapeshiftError(f"add_to must be 'both', 'keys' or 'values', got {add_to!r}")
        self.max_distance = max_distance
        self.causal = causal
        self.mixes = add_to != "keys"
        num_offsets = relative.num_offsets(max_distance, causal=causal)  # R
        shape = (num_heads if per_head else 1, num_offsets, head_dim)

        def table() -> nn.Parameter:
            limit = (6 / (num_offsets + head_dim)) ** 0.5  # Xavier, each head's (R, E) by itself
            return nn.Parameter(torch.empty(shape).uniform_(-limit, limit))

        self.keys = table() if add_to != "values" else None  # (H|1, R, E)
        self.values = self.keys if share_tables and add_to == "both" else None
        if self.values is None and self.mixes:
            self.values = table()  # (H|1, R, E)

    def _rows(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return relative.rows(pos_q, pos_k, self.max_distance, causal=self.causal)

    def bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.keys is None:
            return None
        return relative.key_bias(q, self.keys, self._rows(pos_q, pos_k))

    def mix(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.values is None:
            return None
        rows = self._rows(pos_q, pos_k).expand_as(probs)
        by_offset = probs.new_zeros(*probs.shape[:3], self.values.shape[1])  # (B, H, Q, R)
        return by_offset.scatter_add(-1, rows, probs) @ self.values  # (B, H, Q, E)

    def extra_repr(self) -> str:
        tables = [name for name in ("keys", "values") if getattr(self, name) is not None]
        return f"max_distance={self.max_distance}, {'+'.join(tables)}, causal={self.causal}"
