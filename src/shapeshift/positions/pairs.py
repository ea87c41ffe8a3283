"""Attention with a table of vectors by distance, without a tensor of pairs and channels.

Queries are multiplied with the rows of the table once. The product, one number for each query and
row, is added to the scores of the pairs at the row's distance; the transpose sums probabilities or
gradients by row. If the positions of queries and keys are consecutive, pairs of one distance are on
a diagonal, and `shapeshift.kernels` finds them without an index.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.errors import ShapeshiftError


class Diagonals(NamedTuple):
    """Which row of a table each pair of consecutive queries and keys has.

    Attributes:
        num_rows: R.
        shift: row 0 of query i belongs to key i + shift, row r to key i + shift + r.
        repeat: whether all keys further right have the last row; if not, they have none. Keys
            further left have none.
    """

    num_rows: int
    shift: int
    repeat: bool


def by_table(x: Tensor, table: Tensor) -> Tensor:
    """Return `x (B, H, Q, n) @ table (H|1, n, m)` in one product, or one for each table."""
    if table.shape[0] == 1:
        return x @ table[0]
    by_head = x.transpose(0, 1).flatten(1, 2) @ table  # (H, B · Q, m)
    by_head = by_head.view(table.shape[0], x.shape[0], x.shape[2], table.shape[2])
    return by_head.transpose(0, 1)


def scores(q: Tensor, k: Tensor, table: Tensor, where: Diagonals) -> Tensor:
    """Return q_i (k_j + a_ij)^T, `(B, H, Q, K)`.

    Args:
        q: `(B, H, Q, E)`, which `kernels.serves`; likewise k.
        k: `(B, H, K, E)`.
        table: rows of a, `(H|1, R, E)`.
        where: which row a pair has.
    """
    by_row = by_table(q, table.transpose(-1, -2))  # (B, H, Q, R)
    out: Tensor = _Scores.apply(*autocast_inputs(q, k, by_row), where)  # type: ignore[no-untyped-call]
    return out


def outputs(probs: Tensor, v: Tensor, table: Tensor, where: Diagonals) -> Tensor:
    """Return sum_j p_ij (v_j + a_ij), `(B, H, Q, E)`.

    Args:
        probs: `(B, H, Q, K)`, which `kernels.serves`; likewise v.
        v: `(B, H, K, E)`.
        table: rows of a, `(H|1, R, E)`.
        where: which row a pair has.
    """
    out: Tensor
    out, by_row = _Outputs.apply(*autocast_inputs(probs, v), where)  # type: ignore[no-untyped-call]
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


def autocast_inputs(*tensors: Tensor) -> list[Tensor]:
    """Cast tensors to the dtype that autocast would use, because it does not reach the backward
    pass of a custom function."""
    device = tensors[0].device.type
    if torch.is_autocast_enabled(device) and tensors[0].dtype != torch.float64:
        return [x.to(torch.get_autocast_dtype(device)) for x in tensors]
    return [x.to(tensors[0].dtype) for x in tensors]


class _Scores(torch.autograd.Function):
    """q k^T, with `by_row (B, H, Q, R)` added to its pairs."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, by_row: Tensor, where: Diagonals) -> Tensor:
        ctx.save_for_backward(q, k)
        ctx.where = where
        return _add_rows(q @ k.transpose(-1, -2), by_row, where)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        _refuse_second_derivatives()
        q, k = ctx.saved_tensors
        grad = grad.contiguous()  # it is in two products
        return grad @ k, grad.transpose(-1, -2) @ q, _sum_rows(grad, ctx.where), None


class _Outputs(torch.autograd.Function):
    """p v, and the sums `(B, H, Q, R)` of p over the pairs of each row."""

    @staticmethod
    def forward(ctx: Any, probs: Tensor, v: Tensor, where: Diagonals) -> tuple[Tensor, Tensor]:
        probs = probs.contiguous()
        ctx.save_for_backward(probs, v)
        ctx.where = where
        return probs @ v, _sum_rows(probs, where)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_rows: Tensor) -> tuple[Tensor, Tensor, None]:
        _refuse_second_derivatives()
        probs, v = ctx.saved_tensors
        grad = grad.contiguous()  # it is in two products
        grad_probs = _add_rows(grad @ v.transpose(-1, -2), grad_rows, ctx.where)
        return grad_probs, probs.transpose(-1, -2) @ grad, None


def _refuse_second_derivatives() -> None:
    if torch.is_grad_enabled():  # a backward pass with `create_graph`
        raise ShapeshiftError(
            "second derivatives of attention on a CPU need float64; convert the model and its"
            " inputs with .double()"
        )


def _add_rows(pairs: Tensor, by_row: Tensor, where: Diagonals) -> Tensor:
    pairs = pairs.contiguous()
    kernels.add_rows(pairs, by_row, where.shift, repeat=where.repeat)
    return pairs


def _sum_rows(pairs: Tensor, where: Diagonals) -> Tensor:
    return kernels.collect_rows(pairs, where.num_rows, where.shift, repeat=where.repeat)
