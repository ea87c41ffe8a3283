"""Relative position representations (Shaw et al. 2018)."""

from __future__ import annotations

import torch
from torch import Tensor

from shapeshift import kernels

from . import pairs
from .base import ScoreMod
from .checks import whole_number
from .relative import common_lag, distance_between, distances
from .vectors import AddTo, PairVectors

_ALIGNED = 32
"""A causal table has a multiple of this many rows, which suits matrix products in bf16."""


class Shaw(PairVectors):
    """Vectors a^K, a^V for the clipped distance between two tokens (Shaw et al. 2018, section 3).

        e_ij = x_i W^Q (x_j W^K + a^K_ij)^T / sqrt(E)
        z_i  = sum_j softmax(e)_ij (x_j W^V + a^V_ij)
        a_ij = w_{clip(j - i, k)},  clip(x, k) = max(-k, min(k, x))

    The n × n × E tensor a_ij is never built: queries are multiplied with the 2k + 1 rows of the
    table once and the products are gathered (the paper's section 3.3 reshapes instead);
    probabilities are summed by distance before the product with the value table.

    Args:
        num_heads: H.
        head_dim: E.
        max_distance: k, the clipping distance; 0 leaves one row, without position information.
        add_to: `keys` (a^K only), `values` (a^V only) or `both`.
        share_tables: use one table for a^K and a^V (the SHAPE authors' code); the paper has two.
        per_head: use a table for each head; in the paper the heads of a layer share one.
        causal: attention is causal, so the rows for j > i are left out.

    Raises:
        ShapeshiftError: if k is negative, or `share_tables` is true without both tables.
    """

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
        causal: bool = False,
    ):
        whole_number("max_distance", max_distance, 0)
        super().__init__(
            num_heads=num_heads,
            head_dim=head_dim,
            num_rows=max_distance + 1 if causal else 2 * max_distance + 1,
            add_to=add_to,
            share_tables=share_tables,
            per_head=per_head,
        )
        self.max_distance, self.causal_only = max_distance, causal
        self.limits = -max_distance, 0 if causal else max_distance

    def rows(self, num_sentences: int, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        clipped = distances(pos_q, pos_k).clamp(*self.limits)  # (B|1, Q, K)
        return (clipped + self.max_distance).unsqueeze(1)

    def score_mod(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> ScoreMod | None:
        if self.keys is None:
            return None
        # In float32 at least: the gradients of many pairs add up in one row.
        by_row = pairs.by_table(q, self.keys.transpose(-1, -2))  # (B, H, Q, R)
        by_row = by_row.to(torch.promote_types(q.dtype, torch.float32))
        row = distance_between(pos_q, pos_k, len(q), self.limits)
        return lambda score, b, h, i, j: score + by_row[b, h, i, row(b, i, j)]

    def scores(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        fast = self._diagonals(self.keys, q, pos_q, pos_k)
        if fast is None:
            return super().scores(q, k, pos_q, pos_k)
        where, table, _ = fast
        return pairs.scores(q, k, table, where)

    def outputs(self, probs: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        fast = self._diagonals(self.values, probs, pos_q, pos_k)
        if fast is None:
            return super().outputs(probs, v, pos_q, pos_k)
        where, table, furthest = fast
        if furthest is not None:
            v = v + furthest.to(v.dtype).unsqueeze(-2)
        return pairs.outputs(probs, v, table, where)

    def _diagonals(
        self, table: Tensor | None, x: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[pairs.Diagonals, Tensor, Tensor | None] | None:
        """Return where the pairs of each distance are, the rows of the table that they need,
        `(H|1, R, E)`, and the vector subtracted from them, `(H|1, E)`, which is that of the keys
        furthest left, or None if there are no such keys.

        Return None if there is no table, if it has a single row, if positions have gaps, or if
        there are no kernels for `x`, queries or probabilities.
        """
        k = self.max_distance
        if table is None or k == 0 or not kernels.serves(x):
            return None
        if not kernels.is_available(pairs.autocast_inputs(x[:0])[0].dtype):
            return None
        lag = common_lag(pos_q, pos_k)
        num_queries, num_keys = pos_q.shape[1], pos_k.shape[1]
        if lag is None or (self.causal_only and not 0 <= lag <= num_keys - num_queries):
            return None
        furthest = max(num_queries + lag, num_keys - lag) - 1  # of all distances
        if self.causal_only:
            k, last = min(-(-k // _ALIGNED) * _ALIGNED, num_keys), 0
        else:
            k = last = min(k, furthest + 1)
        clipped = torch.arange(1 - k, last + 1).clamp_(*self.limits)
        rows = table.index_select(1, clipped.add_(self.max_distance))
        where = pairs.Diagonals(len(clipped), lag + 1 - k, repeat=not self.causal_only)
        if furthest < k:
            return where, rows, None
        return where, rows - table[:, :1], table[:, 0]
