"""Attention with a vector for each pair of tokens, taken from a table, without a tensor (Q, K, E).

Queries are multiplied with the rows of the table once. The product, one number for each query and
row, is added to the scores of the pairs that have the row; the transpose sums probabilities or
gradients by row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .relative import distances


def by_table(x: Tensor, table: Tensor) -> Tensor:
    """Return `x (B, H, Q, n) @ table (H|1, n, m)` in one product, or one for each table."""
    if table.shape[0] == 1:
        return x @ table[0]
    by_head = x.transpose(0, 1).flatten(1, 2) @ table  # (H, B · Q, m)
    by_head = by_head.view(table.shape[0], x.shape[0], x.shape[2], table.shape[2])
    return by_head.transpose(0, 1)


def query_bias(q: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """Return q_i a_ij^T, `(B, H, Q, K)`, for `q (B, H, Q, E)` and a `table (H|1, R, E)` of which
    each pair has the row `rows (B|1, Q, K)`."""
    by_row = by_table(q, table.transpose(-1, -2))  # (B, H, Q, R)
    # In float32 at least: the gradient of a product is the sum over all pairs that have its row.
    wide = by_row.to(torch.promote_types(by_row.dtype, torch.float32))
    return wide.gather(-1, rows.unsqueeze(1).expand(*wide.shape[:3], -1)).to(by_row.dtype)


def value_bias(probs: Tensor, table: Tensor, rows: Tensor) -> Tensor:
    """Return sum_j p_ij a_ij, `(B, H, Q, E)`, for `probs (B, H, Q, K)`; see `query_bias`."""
    # In float32 at least: thousands of small numbers may fall into one sum.
    wide = probs.to(torch.promote_types(probs.dtype, torch.float32))
    sums = wide.new_zeros(*wide.shape[:3], table.shape[1])
    sums = sums.scatter_add(-1, rows.unsqueeze(1).expand_as(wide), wide)
    return by_table(sums.to(probs.dtype), table)


class Table(NamedTuple):
    """Vectors `(H|1, R, E)`, or numbers `(H|1, R)`, of the distances j − i from `low` on. Smaller
    distances use the first row, larger ones the last."""

    vectors: Tensor
    low: int

    def rows(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return the row of each pair, `(B|1, Q, K)`."""
        return (distances(pos_q, pos_k) - self.low).clamp(0, self.vectors.shape[1] - 1)


def autocast_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype of products with `x`: autocast's if it is enabled."""
    device = x.device.type
    available = torch.amp.is_autocast_available(device)  # not on the meta device
    enabled = available and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if enabled and x.dtype != torch.float64 else x.dtype


def autocast_inputs(*tensors: Tensor) -> list[Tensor]:
    """Cast tensors to the dtype that autocast would use, because it does not reach the backward
    pass of a custom function."""
    return [x.to(autocast_dtype(tensors[0])) for x in tensors]
