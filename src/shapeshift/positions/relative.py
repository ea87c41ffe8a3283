"""Functions shared by the kinds that use the distance between two tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .checks import as_positions, can_read


def by_distance(
    values: Callable[[Tensor, torch.dtype], Tensor],
    pos_q: Tensor,
    pos_k: Tensor,
    dtype: torch.dtype,
) -> Tensor:
    """Return a bias `(B|1, H, Q, K)` in `dtype`, of which `values` returns `(H, …)` for distances
    j − i `(…)` and the dtype."""
    lag = common_lag(pos_q, pos_k)
    if lag is None:
        return values(distances(pos_q, pos_k), dtype).transpose(0, 1).to(dtype)
    num_queries, num_keys = pos_q.shape[1], pos_k.shape[1]
    counted = torch.arange(1 - num_queries - lag, num_keys - lag, device=pos_q.device)
    row = values(counted, dtype).to(dtype)  # (H, Q + K − 1)
    rows = row.unsqueeze(-2).repeat(1, num_queries, 1)  # each query's, from which its keys are cut
    by_head, by_query, _ = rows.stride()
    shape, strides = (len(rows), num_queries, num_keys), (by_head, by_query - 1, 1)
    return rows.as_strided(shape, strides, num_queries - 1).unsqueeze(0)


def distances(pos_q: Tensor, pos_k: Tensor) -> Tensor:
    """Return the distances j − i of all pairs, `(B|1, Q, K)`."""
    return as_positions(pos_k).unsqueeze(-2) - as_positions(pos_q).unsqueeze(-1)


def common_lag(pos_q: Tensor, pos_k: Tensor) -> int | None:
    """Return pos_q[b, 0] − pos_k[b, 0] if it is the same for all b and all positions are
    consecutive, else None. Also return None if reading the positions would wait for a device or
    split a graph, and for a single query or no pair, where the general computation is as fast."""
    pos_q, pos_k = as_positions(pos_q), as_positions(pos_k)
    if pos_q.device.type != "cpu" or not can_read(pos_q) or pos_q.shape[1] < 2:
        return None
    if not pos_q.numel() or not pos_k.numel():
        return None
    for pos in (pos_q,) if pos_k is pos_q else (pos_q, pos_k):
        counted = torch.arange(pos.shape[1], device=pos.device)
        if not torch.equal(pos - pos[:, :1], counted.expand_as(pos)):
            return None
    lags = (pos_q[:, :1] - pos_k[:, :1]).flatten()
    lag = int(lags[0])
    return lag if pos_k is pos_q or bool((lags == lag).all()) else None
