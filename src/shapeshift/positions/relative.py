"""What kinds share that look up a table by the clipped distance between two tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from . import pairs
from .checks import can_read
from .pairs import Band, Clipped, Exact, Layout, by_table, diagonals

AddTo = Literal["both", "keys", "values"]
"""Which vectors of a pair there are: a^K and a^V, or one of them."""


class Clip(NamedTuple):
    """clip(x, k) = max(−k, min(k, x)) of the distances x = j − i (Shaw et al. 2018, section 3.2).

    Attributes:
        max_distance: k.
        causal: keys never stand right of the query, so that the rows for j > i are left out.
    """

    max_distance: int
    causal: bool

    @property
    def num_rows(self) -> int:
        """R: 2k + 1, or k + 1 if causal."""
        return self.max_distance + 1 if self.causal else 2 * self.max_distance + 1

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest distance."""
        return -self.max_distance, 0 if self.causal else self.max_distance

    def rows(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return the row of each pair, clip(j − i) + k: `(B|1, 1, Q, K)`, for all heads.

        Args:
            pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
        """
        distances = pos_k.unsqueeze(-2) - pos_q.unsqueeze(-1)  # (B|1, Q, K)
        return (distances.clamp(*self.limits) + self.max_distance).unsqueeze(1)


def tables(
    shape: tuple[int, int, int], add_to: AddTo, share: bool, std: float | None = None
) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """Return the tables a^K and a^V, None where there is none (Shaw et al. 2018, section 3.2).

    Args:
        shape: `(H|1, R, E)`; each head's (R, E) is Xavier-uniform by itself.
        add_to: which of the two there are.
        share: whether one serves as both.
        std: of normal initial values instead.

    Raises:
        ShapeshiftError: if `add_to` is none of the three, or there is one table and so nothing to
            share.
    """
    if add_to not in get_args(AddTo):
        raise ShapeshiftError(f"add_to must be 'both', 'keys' or 'values', got {add_to!r}")
    if share and add_to != "both":
        raise ShapeshiftError(
            f"share_tables has no meaning with add_to={add_to!r}, which has one table; leave it"
            " out, or use add_to='both'"
        )

    def table() -> nn.Parameter:
        if std is not None:
            return nn.Parameter(torch.empty(shape).normal_(std=std))
        limit = (6 / (shape[1] + shape[2])) ** 0.5
        return nn.Parameter(torch.empty(shape).uniform_(-limit, limit))

    keys = table() if add_to != "values" else None
    if add_to == "keys":
        return keys, None
    return keys, keys if share else table()


def key_bias(q: Tensor, keys: Tensor, rows: Tensor) -> Tensor:
    """Return q_i a_ij^T, `(B, H, Q, K)`, without the n × n × E tensor a_ij.

    Queries meet the R rows of the table once, and the products go to their pairs.

    Args:
        q: `(B, H, Q, E)`.
        keys: the table, `(H|1, R, E)`.
        rows: of each pair, `(B|1, 1, Q, K)`, see `Clip.rows`.
    """
    by_row = by_table(q, keys.transpose(-1, -2))
    return by_row.gather(-1, rows.expand(*by_row.shape[:3], -1))


def value_mix(probs: Tensor, values: Tensor, rows: Tensor) -> Tensor:
    """Return sum_j p_ij a_ij, `(B, H, Q, E)`, without the n × n × E tensor a_ij.

    Probabilities are summed by row of the table before they meet it.

    Args:
        probs: `(B, H, Q, K)`.
        values: the table, `(H|1, R, E)`.
        rows: see `key_bias`.
    """
    # In float32 at least: thousands of small numbers may fall into one sum.
    wide = probs.to(torch.promote_types(probs.dtype, torch.float32))
    sums = wide.new_zeros(*wide.shape[:3], values.shape[1])
    sums = sums.scatter_add(-1, rows.expand_as(wide), wide)
    return by_table(sums.to(probs.dtype), values)


def key_scores(
    q: Tensor, k: Tensor, keys: Tensor, clip: Clip, pos_q: Tensor, pos_k: Tensor
) -> Tensor:
    """Return q_i (k_j + a_ij)^T, `(B, H, Q, K)`, up to a constant for each query, to which softmax
    is invariant: what `key_bias` adds, in a faster way where there is one.

    Args:
        q, k: `(B, H, Q|K, E)`.
        keys: see `key_bias`.
        clip: which row a pair has.
        pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
    """
    found = _layout(keys, clip, pos_q, pos_k, q.dtype)
    if found is None:
        made = q @ k.transpose(-1, -2)
        return made.add_(key_bias(q, keys, clip.rows(pos_q, pos_k)))
    layout, rows, _ = found
    return pairs.scores(q, k, rows, layout)


def value_outputs(
    probs: Tensor, v: Tensor, values: Tensor, clip: Clip, pos_q: Tensor, pos_k: Tensor
) -> Tensor:
    """Return sum_j p_ij (v_j + a_ij), `(B, H, Q, E)`: what `value_mix` adds, in a faster way where
    there is one.

    Args:
        probs: `(B, H, Q, K)`; zeros for pairs without a part in attention.
        v: `(B, H, K, E)`.
        values, clip, pos_q, pos_k: see `value_mix`.
    """
    found = _layout(values, clip, pos_q, pos_k, probs.dtype)
    if found is None:
        return (probs @ v).add_(value_mix(probs, values, clip.rows(pos_q, pos_k)))
    layout, rows, furthest = found
    if furthest is not None:
        v = v + furthest.to(v.dtype).unsqueeze(-2)
    return pairs.outputs(probs, v, rows, layout)


def by_distance(
    values: Callable[[Tensor], Tensor], pos_q: Tensor, pos_k: Tensor, dtype: torch.dtype
) -> Tensor:
    """Return a bias `(B|1, H, Q, K)` that depends on the distance alone.

    Args:
        values: distances j − i, any shape -> `(H, …)`.
        pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
        dtype: of the bias.
    """
    lag = _lag(pos_q, pos_k)
    if lag is None:
        return values(pos_k.unsqueeze(-2) - pos_q.unsqueeze(-1)).transpose(0, 1).to(dtype)
    num_queries, num_keys = pos_q.shape[1], pos_k.shape[1]
    row = values(torch.arange(1 - num_queries - lag, num_keys - lag)).to(dtype)  # (H, Q + K − 1)
    return diagonals(row.unsqueeze(-2).repeat(1, num_queries, 1), num_keys).unsqueeze(0)


def distance_between(
    pos_q: Tensor, pos_k: Tensor, num_sentences: int, limits: tuple[int, int] | None = None
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Return the function (sentence, query, key) -> distance j − i that a `score_mod` asks.

    Args:
        pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
        num_sentences: B.
        limits: if given, distances are clipped to them and counted from the lower one.
    """
    at_q, at_k = (pos.expand(num_sentences, -1) for pos in (pos_q, pos_k))
    if limits is None:
        return lambda b, i, j: at_k[b, j] - at_q[b, i]
    # As tensors, for which a compiled kernel takes whatever number they have.
    low, high = (torch.full((), limit, device=pos_q.device) for limit in limits)
    return lambda b, i, j: (at_k[b, j] - at_q[b, i]).clamp(low, high) - low


def _lag(pos_q: Tensor, pos_k: Tensor) -> int | None:
    """Return pos_q[b, 0] − pos_k[b, 0] if that is one number and all positions follow each other
    without gaps, else None. None, too, where to look would make a device wait or split a graph,
    and for no pair or a single query, which the general way serves as well."""
    if pos_q.device.type != "cpu" or not can_read(pos_q) or pos_q.shape[1] < 2:
        return None
    if not pos_q.numel() or not pos_k.numel():
        return None
    for pos in (pos_q,) if pos_k is pos_q else (pos_q, pos_k):
        counted = torch.arange(pos.shape[1])
        if not torch.equal(pos - pos[:, :1], counted.expand_as(pos)):
            return None
    lags = (pos_q[:, :1] - pos_k[:, :1]).flatten()
    lag = int(lags[0])
    return lag if pos_k is pos_q or bool((lags == lag).all()) else None


_EXACT_BELOW = 48
"""The number of keys below which a row for each distance costs less than finding the clipped ones,
in bf16 on a CPU (dev/log.md). In float32 it never does."""

_ALIGNED = 32
"""Rows of a band come in multiples of this many numbers, which one instruction adds in bf16."""


def _layout(
    table: Tensor, clip: Clip, pos_q: Tensor, pos_k: Tensor, dtype: torch.dtype
) -> tuple[Layout, Tensor, Tensor | None] | None:
    """Return where the pairs stand, the rows of the table that it asks for, `(H|1, R, E)`, and
    what has been taken from them: the vector `(H|1, E)` of the keys furthest left, or None.

    All is None where positions have gaps, where the device is not a CPU, and for a table of a
    single row."""
    lag = _lag(pos_q, pos_k)
    num_queries, num_keys = pos_q.shape[1], pos_k.shape[1]
    k, causal = clip
    if lag is None or k == 0:
        return None

    def rows(first: int, last: int) -> Tensor:
        """Return the vectors of the distances from `first` to `last`."""
        distances = torch.arange(first, last + 1).clamp_(-k, 0 if causal else k)
        return table.index_select(1, distances.add_(k))

    if causal:
        if not 0 <= lag <= num_keys - num_queries:
            return None
        width = min(-(-k // _ALIGNED) * _ALIGNED, num_keys)
        if width == num_keys:
            return Band(width, lag), rows(1 - width, 0), None
        return Band(width, lag), rows(1 - width, 0) - table[:, :1], table[:, 0]
    furthest = max(num_queries + lag, num_keys - lag) - 1
    if furthest <= k or (num_keys < _EXACT_BELOW and dtype.itemsize == 2):
        return Exact(), rows(1 - num_queries - lag, num_keys - lag), None
    return Clipped(k, lag), table[:, 1:] - table[:, :1], table[:, 0]
