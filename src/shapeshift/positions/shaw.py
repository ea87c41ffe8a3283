"""Relative position representations (Shaw et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from shapeshift.errors import ShapeshiftError

from .base import Representation, ScoreMod, inherits
from .pairs import by_table
from .relative import (
    AddTo,
    Clip,
    distance_between,
    key_bias,
    key_scores,
    tables,
    value_mix,
    value_outputs,
)


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
        std: of normal initial values; None is Xavier-uniform, each head's table by itself.
        causal: keys never stand right of the query, so the rows for j > i are left out.

    Raises:
        ShapeshiftError: if k is negative, `add_to` none of the three, or `share_tables` true
            without both tables.
    """

    places = ("self",)
    shift_invariant = splits = True

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        max_distance: int = 16,
        add_to: AddTo = "both",
        share_tables: bool = False,
        per_head: bool = False,
        std: float | None = None,
        causal: bool = False,
    ):
        super().__init__()
        if max_distance < 0:
            raise ShapeshiftError(f"max_distance must not be negative, got {max_distance}")
        self.num_heads, self.head_dim = num_heads, head_dim
        self.clip = Clip(max_distance, causal)
        self.causal_only = causal
        shape = (num_heads if per_head else 1, self.clip.num_rows, head_dim)
        self.keys, self.values = tables(shape, add_to, share_tables, std)

    def overrides(self, hook: str) -> bool:
        tables = {"query_bias": self.keys, "value_bias": self.values}
        if hook in tables and inherits(type(self), hook, Shaw):
            return tables[hook] is not None
        return super().overrides(hook)

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.keys is None:
            return None
        return key_bias(q, self.keys, self.clip.rows(pos_q, pos_k))

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        if self.values is None:
            return None
        return value_mix(probs, self.values, self.clip.rows(pos_q, pos_k))

    def score_mod(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> ScoreMod | None:
        if self.keys is None:
            return None
        # In float32 at least: the gradients of many pairs add up in one row.
        by_row = by_table(q, self.keys.transpose(-1, -2))  # (B, H, Q, R)
        by_row = by_row.to(torch.promote_types(q.dtype, torch.float32))
        row = distance_between(pos_q, pos_k, len(q), self.clip.limits)
        return lambda score, b, h, i, j: score + by_row[b, h, i, row(b, i, j)]

    def scores(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        if self.keys is None:
            return super().scores(q, k, pos_q, pos_k)
        return key_scores(q, k, self.keys, self.clip, pos_q, pos_k)

    def outputs(self, probs: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        if self.values is None:
            return super().outputs(probs, v, pos_q, pos_k)
        return value_outputs(probs, v, self.values, self.clip, pos_q, pos_k)

    def extra_repr(self) -> str:
        tables = [name for name in ("keys", "values") if getattr(self, name) is not None]
        max_distance, causal = self.clip
        return f"max_distance={max_distance}, {'+'.join(tables)}, causal={causal}"
