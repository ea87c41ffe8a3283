"""What kinds share that look up a table by the clipped distance between two tokens."""

from __future__ import annotations

from torch import Tensor


def num_offsets(max_distance: int, *, causal: bool) -> int:
    """Return R, the rows of a table: 2k + 1, or k + 1 if keys never stand right of the query."""
    return max_distance + 1 if causal else 2 * max_distance + 1


def rows(pos_q: Tensor, pos_k: Tensor, max_distance: int, *, causal: bool) -> Tensor:
    """Return the row of each pair, clip(j − i, −k, k) + k (Shaw et al. 2018, section 3.2).

    Args:
        pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
        max_distance: k.
        causal: whether the rows for j > i are left out.

    Returns:
        `(B|1, 1, Q, K)`, to be expanded over the heads.
    """
    offsets = pos_k.unsqueeze(-2) - pos_q.unsqueeze(-1)  # (B|1, Q, K)
    largest = 0 if causal else max_distance
    return (offsets.clamp(-max_distance, largest) + max_distance).unsqueeze(1)


def key_bias(q: Tensor, keys: Tensor, row: Tensor) -> Tensor:
    """Return q_i a_ij^T / sqrt(E), `(B, H, Q, K)`, without the n × n × E tensor a_ij.

    Queries meet the R rows of the table once, and the products are gathered.

    Args:
        q: `(B, H, Q, E)`, not scaled.
        keys: the table, `(H|1, R, E)`.
        row: from `rows`.
    """
    products = q @ (keys * q.shape[-1] ** -0.5).transpose(-1, -2)  # (B, H, Q, R)
    gathered: Tensor = products.gather(-1, row.expand(*q.shape[:3], -1))  # (B, H, Q, K)
    return gathered
