"""What kinds share that look up a table by the clipped distance between two tokens."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from .checks import can_read

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

    def rows(self, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return the row of each pair, clip(j − i) + k: `(B|1, 1, Q, K)`, for all heads.

        Args:
            pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
        """
        distances = pos_k.unsqueeze(-2) - pos_q.unsqueeze(-1)  # (B|1, Q, K)
        largest = 0 if self.causal else self.max_distance
        return (distances.clamp(-self.max_distance, largest) + self.max_distance).unsqueeze(1)


def tables(
    shape: tuple[int, int, int], add_to: AddTo, share: bool
) -> tuple[nn.Parameter | None, nn.Parameter | None]:
    """Return the tables a^K and a^V, None where there is none (Shaw et al. 2018, section 3.2).

    Args:
        shape: `(H|1, R, E)`; each head's (R, E) is Xavier-uniform by itself.
        add_to: which of the two there are.
        share: whether one serves as both.

    Raises:
        ShapeshiftError: if `add_to` is none of the three.
    """
    if add_to not in get_args(AddTo):
        raise ShapeshiftError(f"add_to must be 'both', 'keys' or 'values', got {add_to!r}")

    def table() -> nn.Parameter:
        limit = (6 / (shape[1] + shape[2])) ** 0.5
        return nn.Parameter(torch.empty(shape).uniform_(-limit, limit))

    keys = table() if add_to != "values" else None
    if add_to == "keys":
        return keys, None
    return keys, keys if share and keys is not None else table()


def key_bias(q: Tensor, keys: Tensor, clip: Clip, pos_q: Tensor, pos_k: Tensor) -> Tensor:
    """Return q_i a_ij^T, `(B, H, Q, K)`, without the n × n × E tensor a_ij.

    Queries meet the R rows of the table once, and the products go to their pairs.

    Args:
        q: `(B, H, Q, E)`.
        keys: the table, `(H|1, R, E)`.
        clip: which row a pair has.
        pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
    """
    keys, where = _find(keys, clip, pos_q, pos_k)
    return _spread(by_table(q, keys.transpose(-1, -2)), where)


def value_mix(probs: Tensor, values: Tensor, clip: Clip, pos_q: Tensor, pos_k: Tensor) -> Tensor:
    """Return sum_j p_ij a_ij, `(B, H, Q, E)`, without the n × n × E tensor a_ij.

    Probabilities are summed by row of the table before they meet it.

    Args:
        probs: `(B, H, Q, K)`.
        values: the table, `(H|1, R, E)`.
        clip: which row a pair has.
        pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
    """
    values, where = _find(values, clip, pos_q, pos_k)
    return by_table(_collect(probs, where, values.shape[1]), values)


def by_distance(values: Callable[[Tensor], Tensor], pos_q: Tensor, pos_k: Tensor) -> Tensor:
    """Return a bias `(B|1, H, Q, K)` that depends on the distance alone.

    Args:
        values: distances j − i, any shape -> `(H, …)`.
        pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
    """
    num_queries, num_keys = pos_q.shape[1], pos_k.shape[1]
    lag = _lag(pos_q, pos_k)
    if lag is None:
        return values(pos_k.unsqueeze(-2) - pos_q.unsqueeze(-1)).transpose(0, 1)
    furthest = max(num_queries + lag, num_keys - lag) - 1
    table = values(torch.arange(-furthest, furthest + 1))  # (H, 2 · furthest + 1)
    by_row = table[:, None].expand(-1, num_queries, -1).unsqueeze(0)
    return _spread(by_row, _Runs(Clip(furthest, causal=False), num_keys, lag))


def by_table(x: Tensor, table: Tensor) -> Tensor:
    """Return `x (B, H, Q, n) @ table (H|1, n, m)` in one product, or one for each table."""
    if table.shape[0] == 1:
        return x @ table[0]
    by_head = x.transpose(0, 1).flatten(1, 2) @ table  # (H, B · Q, m)
    return by_head.view(table.shape[0], x.shape[0], x.shape[2], -1).transpose(0, 1)


def _lag(pos_q: Tensor, pos_k: Tensor) -> int | None:
    """Return pos_q[b, 0] − pos_k[b, 0] if that is one number and all positions follow each other
    without gaps, else None. None, too, where to look would make a device wait or split a graph,
    and for a single query, which the general way serves as well."""
    if pos_q.device.type != "cpu" or not can_read(pos_q) or pos_q.shape[1] < 2:
        return None
    for pos in (pos_q,) if pos_k is pos_q else (pos_q, pos_k):
        counted = torch.arange(pos.shape[1])
        if not torch.equal(pos - pos[:, :1], counted.expand_as(pos)):
            return None
    lags = (pos_q[:, :1] - pos_k[:, :1]).flatten()
    lag = int(lags[0])
    return lag if pos_k is pos_q or bool((lags == lag).all()) else None


def _find(table: Tensor, clip: Clip, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, _Runs | Tensor]:
    """Return the rows of the table that are needed, and which of them each pair has."""
    num_queries, num_keys = pos_q.shape[1], pos_k.shape[1]
    lag = _lag(pos_q, pos_k)
    if lag is None:
        return table, clip.rows(pos_q, pos_k)
    table, runs = _Runs(clip, num_keys, lag).reached(table, num_queries)
    return table, runs if num_keys >= _RUNS_FROM else runs.clip.rows(pos_q, pos_k)


def _spread(by_row: Tensor, where: _Runs | Tensor) -> Tensor:
    """Return `by_row[…, i, row(i, j)]` for each pair, `(B, H, Q, K)`."""
    if isinstance(where, Tensor):
        return by_row.gather(-1, where.expand(*by_row.shape[:3], -1))
    made: Tensor = _Spread.apply(by_row, where)  # type: ignore[no-untyped-call]
    return made


def _collect(by_pair: Tensor, where: _Runs | Tensor, num_rows: int) -> Tensor:
    """Return the sums `(B, H, Q, R)` over the keys that share a row: the transpose of `_spread`."""
    if isinstance(where, Tensor):
        # In float32 at least: thousands of small numbers may fall into one sum.
        wide = by_pair.to(torch.promote_types(by_pair.dtype, torch.float32))
        sums = wide.new_zeros(*wide.shape[:3], num_rows)
        return sums.scatter_add(-1, where.expand_as(wide), wide).to(by_pair.dtype)
    made: Tensor = _Collect.apply(by_pair, where)  # type: ignore[no-untyped-call]
    return made


_RUNS_FROM = 48
"""The number of keys from which sorting pairs by distance beats gather and scatter on a CPU: 32 to
64, by precision and width (docs/benchmarks.md)."""

_IN_CACHE = 1 << 19
"""How many numbers are sorted by distance at a time: so few stay in the cache of one core."""


class _Runs(NamedTuple):
    """Q queries and K keys whose positions follow each other without gaps.

    Sorted by distance, the pairs of a query are a row of Q + K − 1 numbers of which K are its own:
    key j stands at j − i + Q − 1. So the pairs are a view `(Q, K)` of a `(Q, Q + K − 1)` tensor in
    which each row starts one element before the row above ends. The columns are distances: the
    first ones are those that are clipped to the first row of the table, the last ones those clipped
    to its last row, and between them lies the table itself.

    Attributes:
        clip: which row of the table a distance has.
        num_keys: K.
        lag: the first query's position less the first key's.
    """

    clip: Clip
    num_keys: int
    lag: int

    def reached(self, table: Tensor, num_queries: int) -> tuple[Tensor, _Runs]:
        """Leave out the rows of distances that short sentences do not have."""
        furthest = max(num_queries + self.lag, self.num_keys - self.lag) - 1
        if furthest >= self.clip.max_distance:
            return table, self
        nearer = self._replace(clip=Clip(furthest, self.clip.causal))
        first = self.clip.max_distance - furthest
        return table[:, first : first + nearer.clip.num_rows], nearer

    def groups(self, num_queries: int, num_rows: int) -> list[slice]:
        """Return the queries in groups: the fewer at once, the fewer columns there are.

        Args:
            num_queries: Q.
            num_rows: of each query, B · H.
        """
        size = max(8, _IN_CACHE // (num_rows * self.num_keys))
        return [slice(i, min(i + size, num_queries)) for i in range(0, num_queries, size)]

    def columns(self, queries: slice) -> tuple[int, slice, int]:
        """Return the number of columns left of the table, which of its rows are there, and the
        number of columns right of it."""
        size = queries.stop - queries.start
        width = size + self.num_keys - 1
        first = size - 1 + queries.start + self.lag - self.clip.max_distance  # column of row 0
        num_rows = self.clip.num_rows
        left = min(max(first, 0), width)
        right = min(max(width - first - num_rows, 0), width)
        start = min(max(-first, 0), num_rows)
        return left, slice(start, start + width - left - right), right

    def pairs(self, by_distance: Tensor) -> Tensor:
        """Return the view `(…, Q, K)` of a contiguous `(…, Q, Q + K − 1)`."""
        *batch, num_queries, width = by_distance.shape
        strides = (*by_distance.stride()[:-2], width - 1, 1)
        return by_distance.as_strided(
            (*batch, num_queries, self.num_keys), strides, num_queries - 1
        )


def _by_distance(by_row: Tensor, runs: _Runs, queries: slice) -> Tensor:
    left, rows, right = runs.columns(queries)
    part = by_row[..., queries, :]
    sides, widths = (part[..., :1], part[..., rows], part[..., -1:]), (left, -1, right)
    return torch.cat(
        [x.expand(*x.shape[:-1], n) for x, n in zip(sides, widths, strict=True)], dim=-1
    )


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(by_row: Tensor, runs: _Runs) -> Tensor:
        *batch, num_queries, _ = by_row.shape
        groups = runs.groups(num_queries, math.prod(batch))
        if len(groups) == 1:
            return runs.pairs(_by_distance(by_row, runs, groups[0]))
        made = by_row.new_empty(*batch, num_queries, runs.num_keys)
        for queries in groups:
            made[..., queries, :] = runs.pairs(_by_distance(by_row, runs, queries))
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, _Runs], output: Tensor) -> None:
        ctx.runs = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Collect.apply(grad, ctx.runs), None  # type: ignore[no-untyped-call]


class _Collect(torch.autograd.Function):
    @staticmethod
    def forward(by_pair: Tensor, runs: _Runs) -> Tensor:
        *batch, num_queries, num_keys = by_pair.shape
        made = by_pair.new_zeros(*batch, num_queries, runs.clip.num_rows)
        by_distance = by_pair.new_empty(0)
        for queries in runs.groups(num_queries, math.prod(batch)):
            size = queries.stop - queries.start
            width = size + num_keys - 1
            if by_distance.shape[-1] != width:  # only pairs are written, the rest stays zero
                by_distance = by_pair.new_zeros(*batch, size, width)
            runs.pairs(by_distance).copy_(by_pair[..., queries, :])
            left, rows, right = runs.columns(queries)
            part = made[..., queries, :]
            part[..., rows] = by_distance[..., left : width - right]
            if left:
                part[..., 0] += by_distance[..., :left].sum(-1)
            if right:
                part[..., -1] += by_distance[..., width - right :].sum(-1)
        return made

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, _Runs], output: Tensor) -> None:
        ctx.runs = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _Spread.apply(grad, ctx.runs), None  # type: ignore[no-untyped-call]
