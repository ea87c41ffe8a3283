"""Numbers of pairs of tokens `(…, Q, K)`: adding to them, and sorting them by distance.

Where the positions of queries and of keys follow each other without gaps, the pairs of one distance
are a diagonal, which a strided view finds without gathering or scattering.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import can_read

IN_CACHE = 1 << 19
"""How many numbers are sorted by distance at a time: so few stay in the cache of one core."""


def by_table(x: Tensor, table: Tensor) -> Tensor:
    """Return `x (B, H, Q, n) @ table (H|1, n, m)` in one product, or one for each table."""
    if table.shape[0] == 1:
        return x @ table[0]
    by_head = x.transpose(0, 1).flatten(1, 2) @ table  # (H, B · Q, m)
    by_head = by_head.view(table.shape[0], x.shape[0], x.shape[2], table.shape[2])
    return by_head.transpose(0, 1)


def add(pairs: Tensor, more: Tensor) -> None:
    """Add to `pairs (…, Q, K)` in place what broadcasts to them; numbers for each query, or for all
    alike.

    On a CPU, PyTorch adds 32 numbers of a row at a time in bf16, and those left over one by one,
    each as slow as 32. Contiguous queries are one row, and a copy is quick whatever the strides.
    (So the gradient of what is the same for all queries is summed in two steps, rounded in each.)
    """
    *_, num_queries, num_keys = pairs.shape
    quick = torch.compiler.is_compiling() or pairs.device.type != "cpu" or pairs.dtype.itemsize > 2
    if quick or num_keys % 32 == 0 or num_queries == 1:
        pairs += more
    elif pairs.stride()[-2:] == (num_keys, 1):
        pairs += more.expand(*more.shape[:-2], num_queries, num_keys).contiguous()
    else:
        pairs.copy_(pairs.contiguous().add_(more.contiguous()))


def by_distance(
    values: Callable[[Tensor], Tensor], pos_q: Tensor, pos_k: Tensor, dtype: torch.dtype
) -> Tensor:
    """Return a bias `(B|1, H, Q, K)` that depends on the distance alone.

    Args:
        values: distances j − i, any shape -> `(H, …)`.
        pos_q, pos_k: `(B|1, Q)` and `(B|1, K)`.
        dtype: of the bias.
    """
    lag = common_lag(pos_q, pos_k)
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


def common_lag(pos_q: Tensor, pos_k: Tensor) -> int | None:
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


def diagonals(by_distance: Tensor, num_keys: int) -> Tensor:
    """Return the pairs `(…, Q, K)`, a view of a contiguous `(…, Q, Q + K − 1)`, the row of each
    query sorted by distance."""
    *batch, num_queries, width = by_distance.shape
    return by_distance.as_strided(
        (*batch, num_queries, num_keys),
        (*by_distance.stride()[:-2], width - 1, 1),
        by_distance.storage_offset() + num_queries - 1,
    )


class Rows(NamedTuple):
    """The R rows of a table by distance, where positions have no gaps: row r is for the distance
    `first + r`. The last one serves all keys further right as well; keys further left have none.

    Pairs are sorted by distance, a row of Q + K − 1 for each query. Of its columns the first ones
    are empty, the last ones repeat the last row of the table, and between them is the table.

    Attributes:
        first: the distance of the first row.
        num_rows: R.
        lag: the first query's position less the first key's.
    """

    first: int
    num_rows: int
    lag: int

    def add(self, pairs: Tensor, by_row: Tensor) -> Tensor:
        """Add `by_row (B, H, Q, R)` to the pairs `(B, H, Q, K)` of each row, in place."""
        out: Tensor = _Add.apply(pairs, by_row, self)  # type: ignore[no-untyped-call]
        return out

    def outputs(self, probs: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return `probs v`, `(B, H, Q, E)`, and the sums `(B, H, Q, R)` of the probabilities
        `(B, H, Q, K)` over the pairs of each row."""
        out: tuple[Tensor, Tensor] = _Outputs.apply(probs, v, self)  # type: ignore[no-untyped-call]
        return out

    def collect(self, pairs: Tensor) -> Tensor:
        """Return the sums `(B, H, Q, R)` over the pairs of each row: the transpose of `add`; no
        gradient flows."""
        *batch, num_queries, num_keys = pairs.shape
        sums = pairs.new_zeros(*batch, num_queries, self.num_rows)
        sorted_pairs = pairs.new_empty(0)
        for queries, left, rows, right in self.groups(pairs):
            width = queries.stop - queries.start + num_keys - 1
            if sorted_pairs.shape[-1] != width:  # only pairs are written, the rest stays zero
                sorted_pairs = pairs.new_zeros(*batch, queries.stop - queries.start, width)
            diagonals(sorted_pairs, num_keys).copy_(pairs[..., queries, :])
            part = sums[..., queries, :]
            part[..., rows] = sorted_pairs[..., left : width - right]
            if right:
                part[..., -1] += sorted_pairs[..., width - right :].sum(-1)
        return sums

    def groups(self, pairs: Tensor) -> Iterator[tuple[slice, int, slice, int]]:
        """Yield some queries at a time, few enough for the cache and for few columns; the number of
        columns left of the table, which of its rows are there, the number of columns right."""
        *batch, num_queries, num_keys = pairs.shape
        size = max(8, IN_CACHE // max(1, math.prod(batch) * num_keys))
        for start in range(0, num_queries, size):
            stop = min(start + size, num_queries)
            width = stop - start + num_keys - 1
            column = stop - 1 + self.lag + self.first  # of the first row
            left = min(max(column, 0), width)
            right = min(max(width - column - self.num_rows, 0), width)
            row = min(max(-column, 0), self.num_rows)
            yield slice(start, stop), left, slice(row, row + width - left - right), right


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(pairs: Tensor, by_row: Tensor, layout: Rows) -> Tensor:
        for queries, left, rows, right in layout.groups(pairs):
            part = by_row[..., queries, :]
            sides = (part.new_zeros(()), left), (part[..., -1:], right)
            empty, repeated = (x.expand(*part.shape[:-1], n) for x, n in sides)
            sorted_pairs = torch.cat([empty, part[..., rows], repeated], dim=-1)
            add(pairs[..., queries, :], diagonals(sorted_pairs, pairs.shape[-1]))
        return pairs

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Rows], output: Tensor) -> None:
        pairs, _, ctx.layout = inputs
        ctx.mark_dirty(pairs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        no_values = grad.new_empty(*grad.shape[:2], grad.shape[3], 0)
        return grad, ctx.layout.outputs(grad, no_values)[1], None


class _Outputs(torch.autograd.Function):
    @staticmethod
    def forward(probs: Tensor, v: Tensor, layout: Rows) -> tuple[Tensor, Tensor]:
        return probs @ v, layout.collect(probs)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Rows], output: tuple[Tensor, Tensor]
    ) -> None:
        *tensors, ctx.layout = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, by_row: Tensor) -> tuple[Tensor, Tensor, None]:
        probs, v = ctx.saved_tensors
        grad_probs = ctx.layout.add(grad @ v.transpose(-1, -2), by_row)
        return grad_probs, probs.transpose(-1, -2) @ grad, None
