"""Attention with a table of vectors by distance, without a tensor of pairs and channels.

Queries are multiplied with the rows of the table once. The product, one number for each query and
row, is added to the scores of the pairs at the row's distance; the transpose sums probabilities or
gradients by row. If the positions of queries and keys are consecutive, pairs of one distance are on
a diagonal, and a layout (`Exact`, `Band`, `Clipped`) accesses them as views.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shapeshift import kernels


def by_table(x: Tensor, table: Tensor) -> Tensor:
    """Return `x (B, H, Q, n) @ table (H|1, n, m)` in one product, or one for each table."""
    if table.shape[0] == 1:
        return x @ table[0]
    by_head = x.transpose(0, 1).flatten(1, 2) @ table  # (H, B · Q, m)
    by_head = by_head.view(table.shape[0], x.shape[0], x.shape[2], table.shape[2])
    return by_head.transpose(0, 1)


def scores(q: Tensor, k: Tensor, table: Tensor, layout: Layout) -> Tensor:
    """Return q_i (k_j + a_ij)^T, `(B, H, Q, K)`.

    Args:
        q: `(B, H, Q, E)`.
        k: `(B, H, K, E)`.
        table: rows of a, `(H|1, R, E)`.
        layout: which row a pair has.
    """
    by_row = by_table(q, table.transpose(-1, -2))  # (B, H, Q, R)
    out: Tensor = _Scores.apply(*autocast_inputs(q, k, by_row), layout)  # type: ignore[no-untyped-call]
    return out


def outputs(probs: Tensor, v: Tensor, table: Tensor, layout: Layout) -> Tensor:
    """Return sum_j p_ij (v_j + a_ij), `(B, H, Q, E)`.

    Args:
        probs: `(B, H, Q, K)`.
        v: `(B, H, K, E)`.
        table: rows of a, `(H|1, R, E)`.
        layout: which row a pair has.
    """
    out: Tensor
    out, by_row = _Outputs.apply(*autocast_inputs(probs, v), layout)  # type: ignore[no-untyped-call]
    if table.shape[0] == 1:  # the product adds to what is there
        flat = torch.addmm(out.flatten(0, 2), by_row.flatten(0, 2), table[0].to(out.dtype))
        return flat.view_as(out)
    return out.add_(by_table(by_row, table))


def add(pairs: Tensor, more: Tensor) -> None:
    """Add a tensor that broadcasts to `pairs (…, Q, K)` to them in place; it may have the same
    numbers for all queries.

    On a CPU, PyTorch adds 32 numbers of a row at a time in bf16, and the remaining ones one by one,
    each as slow as 32. Contiguous queries are one row, and a copy is fast for any strides. (So the
    gradient of a term that all queries share is summed in two steps and rounded in each.)
    """
    *_, num_queries, num_keys = pairs.shape
    quick = torch.compiler.is_compiling() or pairs.device.type != "cpu" or pairs.dtype.itemsize > 2
    if quick or num_keys % 32 == 0 or num_queries == 1:
        pairs += more
    elif pairs.stride()[-2:] == (num_keys, 1):
        pairs += more.expand(*more.shape[:-2], num_queries, num_keys).contiguous()
    else:
        pairs.copy_(pairs.contiguous().add_(more.contiguous()))


def diagonals(by_distance: Tensor, num_keys: int) -> Tensor:
    """Return the pairs `(…, Q, K)`, a view of a contiguous `(…, Q, Q + K − 1 or more)`, the row of
    each query sorted by distance."""
    *batch, num_queries, width = by_distance.shape
    return by_distance.as_strided(
        (*batch, num_queries, num_keys),
        (*by_distance.stride()[:-2], width - 1, 1),
        by_distance.storage_offset() + num_queries - 1,
    )


class Exact(NamedTuple):
    """One row for each distance from 1 − Q − lag to K − lag. No pair uses the last one: it makes
    the width even for the matrix product.

    A query's products are a row of Q + K numbers, of which the query uses K: key j is at
    j − i + Q − 1. So the pairs are a view `(Q, K)` in which each row starts one element before the
    row above ends.
    """

    def window(self, num_queries: int, num_keys: int) -> tuple[int, int, bool]:
        """Return R, and `shift` and `repeat` of `kernels.add_rows`."""
        return num_queries + num_keys, 1 - num_queries, False

    def add(self, by_pair: Tensor, by_row: Tensor) -> None:
        """Add `by_row (…, Q, R)` to the pairs `(…, Q, K)` of each row, in place."""
        add(by_pair, diagonals(by_row.contiguous(), by_pair.shape[-1]))

    def collect(self, by_pair: Tensor) -> Tensor:
        """Return the sums `(…, Q, R)` over the pairs of each row: the transpose of `add`."""
        *batch, num_queries, num_keys = by_pair.shape
        out = by_pair.new_zeros(*batch, num_queries, num_queries + num_keys)
        diagonals(out, num_keys).copy_(by_pair)
        return out


class Band(NamedTuple):
    """One row for each distance from 1 − R to 0; no key is to the right of its query, and keys
    further left have no row.

    In the matrix of pairs these R keys are a view in which each row starts one element further
    right. If they would begin left of the first key, the view takes the end of the row above, which
    holds keys to the right of that query: these elements do not change and are not used.

    Attributes:
        num_rows: R, at most K.
        lag: the first query's position less the first key's, 0 ≤ lag ≤ K − Q.
    """

    num_rows: int
    lag: int

    def window(self, num_queries: int, num_keys: int) -> tuple[int, int, bool]:
        """See `Exact.window`."""
        return self.num_rows, self.lag + 1 - self.num_rows, False

    def add(self, by_pair: Tensor, by_row: Tensor) -> None:
        """See `Exact.add`; entries of `by_row` without a pair are set to zero."""
        view, first = self._view(by_pair)
        self._clear(by_row)
        add(view, by_row[..., first:, :])
        if first:
            by_pair[..., 0, : self.lag + 1] += by_row[..., 0, -self.lag - 1 :]

    def collect(self, by_pair: Tensor) -> Tensor:
        """See `Exact.collect`."""
        view, first = self._view(by_pair)
        if not first:
            return view.contiguous()
        out = by_pair.new_empty(*by_pair.shape[:-1], self.num_rows)
        out[..., first:, :] = view
        out[..., 0, -self.lag - 1 :] = by_pair[..., 0, : self.lag + 1]
        self._clear(out)
        return out

    def _clear(self, by_row: Tensor) -> None:
        """Set `by_row (…, Q, R)` to zero for the keys left of the first one, even if it is NaN
        because a query is fully masked.

        Uses integers, because on a CPU PyTorch masks many of them at a time but floats one by one.
        """
        missing = self.num_rows - 1 - self.lag  # of the first query, one fewer of each next
        if missing < 1:
            return
        bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[by_row.itemsize]
        first = by_row[..., :missing, :].view(bits)
        kept = first.new_full((first.shape[-2] + self.num_rows - 1,), -1)  # all bits of a number
        kept[:missing] = 0
        first &= kept.unfold(0, self.num_rows, 1).contiguous()

    def _view(self, by_pair: Tensor) -> tuple[Tensor, int]:
        """Return the band, without the first query if its row begins before the first pair, and the
        number of queries left out, 1 or 0."""
        *batch, num_queries, num_keys = by_pair.shape
        start = self.lag + 1 - self.num_rows
        first = int(start < 0)
        view = by_pair.as_strided(
            (*batch, num_queries - first, self.num_rows),
            (*by_pair.stride()[:-2], num_keys + 1, 1),
            by_pair.storage_offset() + start + first * (num_keys + 1),
        )
        return view, first


class Clipped(NamedTuple):
    """One row for each distance from 1 − k to k; the last row is also used for all keys further
    right, and keys further left have no row.

    As in `Exact`, the pairs of each query are a row, sorted by distance. Its first columns are
    empty, its last columns repeat the last row of the table, and the columns between hold the table
    itself.

    Attributes:
        max_distance: k, at least 1.
        lag: the first query's position less the first key's.
    """

    max_distance: int
    lag: int

    def window(self, num_queries: int, num_keys: int) -> tuple[int, int, bool]:
        """See `Exact.window`."""
        return 2 * self.max_distance, self.lag + 1 - self.max_distance, True

    def add(self, by_pair: Tensor, by_row: Tensor) -> None:
        """See `Exact.add`."""
        for queries, left, rows, right in self._groups(by_pair):
            part = by_row[..., queries, :]
            sides = (part.new_zeros(()), left), (part[..., -1:], right)
            empty, repeated = (x.expand(*part.shape[:-1], n) for x, n in sides)
            by_distance = torch.cat([empty, part[..., rows], repeated], dim=-1)
            add(by_pair[..., queries, :], diagonals(by_distance, by_pair.shape[-1]))

    def collect(self, by_pair: Tensor) -> Tensor:
        """See `Exact.collect`."""
        *batch, num_queries, num_keys = by_pair.shape
        out = by_pair.new_zeros(*batch, num_queries, 2 * self.max_distance)
        by_distance = by_pair.new_empty(0)
        for queries, left, rows, right in self._groups(by_pair):
            size = queries.stop - queries.start
            width = size + num_keys - 1
            if by_distance.shape[-1] != width:  # only pairs are written, the rest stays zero
                by_distance = by_pair.new_zeros(*batch, size, width)
            diagonals(by_distance, num_keys).copy_(by_pair[..., queries, :])
            part = out[..., queries, :]
            part[..., rows] = by_distance[..., left : width - right]
            if right:
                part[..., -1] += by_distance[..., width - right :].sum(-1)
        return out

    def _groups(self, by_pair: Tensor) -> Iterator[tuple[slice, int, slice, int]]:
        """Yield a few queries at a time, which fit the cache and need few columns; the number of
        columns left of the table, the rows of the table that occur, the number of columns right."""
        *batch, num_queries, num_keys = by_pair.shape
        size = max(8, IN_CACHE // max(1, math.prod(batch) * num_keys))
        for start in range(0, num_queries, size):
            stop = min(start + size, num_queries)
            width = stop - start + num_keys - 1
            first = stop + self.lag - self.max_distance  # the column of the first row
            left = min(max(first, 0), width)
            right = min(max(width - first - 2 * self.max_distance, 0), width)
            row = min(max(-first, 0), 2 * self.max_distance)
            yield slice(start, stop), left, slice(row, row + width - left - right), right


Layout = Exact | Band | Clipped

IN_CACHE = 1 << 19
"""How many numbers are sorted by distance at a time, so that they fit the cache of one core."""


def autocast_inputs(*tensors: Tensor) -> list[Tensor]:
    """Cast tensors to the dtype that autocast would use, because it does not reach the backward
    pass of a custom function."""
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device) and tensors[0].dtype != torch.float64:
        return [x.to(torch.get_autocast_dtype(device)) for x in tensors]
    return [x.to(tensors[0].dtype) for x in tensors]


class _Scores(torch.autograd.Function):
    """q k^T, with `by_row (B, H, Q, R)` added to its pairs. Its backward pass is `_Outputs`, and
    vice versa: adding to the pairs of a row is the transpose of summing over them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, by_row: Tensor, layout: Layout) -> Tensor:
        out = q @ k.transpose(-1, -2)
        if kernels.serves(out) and out.is_contiguous():
            _, shift, repeat = layout.window(*out.shape[-2:])
            kernels.add_rows(out, by_row, shift, repeat=repeat)
        else:
            layout.add(out, by_row)
        return out

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Tensor, Layout], output: Tensor
    ) -> None:
        q, k, _, ctx.layout = inputs
        ctx.save_for_backward(q, k)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k = ctx.saved_tensors
        grad_q, grad_rows = _Outputs.apply(grad, k, ctx.layout)  # type: ignore[no-untyped-call]
        return grad_q, grad.transpose(-1, -2) @ q, grad_rows, None


class _Outputs(torch.autograd.Function):
    """p v, and the sums `(B, H, Q, R)` of p over the pairs of each row."""

    generate_vmap_rule = True

    @staticmethod
    def forward(probs: Tensor, v: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        probs = probs.contiguous()
        out = probs @ v
        if kernels.serves(probs):
            num_rows, shift, repeat = layout.window(*probs.shape[-2:])
            return out, kernels.collect_rows(probs, num_rows, shift, repeat=repeat)
        return out, layout.collect(probs)

    @staticmethod
    def setup_context(
        ctx: Any, inputs: tuple[Tensor, Tensor, Layout], output: tuple[Tensor, Tensor]
    ) -> None:
        probs, v, ctx.layout = inputs
        ctx.save_for_backward(probs, v)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_rows: Tensor) -> tuple[Tensor, Tensor, None]:
        probs, v = ctx.saved_tensors
        grad = grad.contiguous()  # it is in two products
        grad_probs = _Scores.apply(grad, v, grad_rows, ctx.layout)  # type: ignore[no-untyped-call]
        return grad_probs, probs.transpose(-1, -2) @ grad, None
