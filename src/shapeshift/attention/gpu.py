"""Attention with tables of vectors by distance on a GPU: one Triton kernel forward, two backward.

A query's products with the rows of the table of keys come from outside, and so does the product of
the table of values with what the kernel sums by row. Each program owns some queries, or some keys,
and adds up in a fixed order: results are the same in every call.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from shapeshift.positions.checks import as_positions
from shapeshift.positions.pairs import Table, autocast_inputs, by_table


def attend_by_tables(
    heads: tuple[Tensor, Tensor, Tensor],
    tables: tuple[Table | None, Table | None],
    mask: Tensor | None,
    pos_q: Tensor,
    pos_k: Tensor,
    *,
    causal: bool,
) -> Tensor:
    """Return the attention output `(B, H, Q, E)`; a query that may see no key gets zeros.

    Args:
        heads: queries, not scaled, keys and values `(B, H, Q|K, E)`.
        tables: what `Representation.tables` returns: one of them, or both for the same distances.
        mask: `(B|1, 1, 1, K)`, added to the scores; it needs no gradient.
        pos_q, pos_k, causal: see `attend`.
    """
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in autocast_inputs(*heads))
    keys, values = tables
    first = keys or values
    assert first is not None
    by_row = None
    if keys is not None:
        by_row = by_table(q * q.shape[-1] ** -0.5, keys.vectors.transpose(-1, -2)).contiguous()
    positions = [as_positions(x).contiguous() for x in (pos_q, pos_k)]
    mask = mask if mask is None else mask[:, 0, 0].contiguous()
    how = mask, *positions, first.low, first.vectors.shape[1], causal, values is not None
    out: Tensor
    out, sums, _ = _attend(q, k, v, by_row, *how)
    return out if values is None else out + by_table(sums, values.vectors)


# Operators of PyTorch, which `torch.compile` takes as they are.


@torch.library.custom_op("shapeshift::attend_by_rows", mutates_args=())
def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    by_row: Tensor | None,
    mask: Tensor | None,
    pos_q: Tensor,
    pos_k: Tensor,
    low: int,
    num_rows: int,
    causal: bool,
    with_sums: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Attention with `by_row (B, H, Q, R)` added to the scores, each at the pairs of its row. Also
    return the probabilities summed by row, or nothing, and log Σ exp(scores) of each query."""
    made: tuple[Tensor, Tensor, Tensor] = _empty(q, num_rows, causal, with_sums)
    shape, options = _arguments(q, k, mask, pos_q, pos_k, low, num_rows, causal)
    options |= {"BIASED": by_row is not None, "SUMMED": with_sums}
    _forward[q.shape[0] * q.shape[1], triton.cdiv(q.shape[2], options["M"])](
        q, k, v, by_row, mask, pos_q, pos_k, *made, *_strides(q, k, v, made[0]), *shape, **options
    )
    return made


@_attend.register_fake
def _empty(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    (B, H, Q, E), (num_rows, _, with_sums) = q.shape, rest[-3:]
    out = q.new_empty(B, Q, H, E).transpose(1, 2)
    sums = q.new_empty((B, H, Q, num_rows) if with_sums else (0,))
    return out, sums, q.new_empty(B, H, Q, dtype=torch.float32)


@torch.library.custom_op("shapeshift::attend_by_rows_backward", mutates_args=())
def _attend_backward(
    grad: Tensor,
    grad_sums: Tensor | None,
    saved: list[Tensor],
    by_row: Tensor | None,
    mask: Tensor | None,
    low: int,
    num_rows: int,
    causal: bool,
) -> list[Tensor]:
    """Return the gradients of q, k, v and, if there is one, `by_row`."""
    q, k, v, pos_q, pos_k, out, sums, lse = saved
    grads: list[Tensor] = _empty_grads(grad, grad_sums, saved, by_row)
    grad_by_row = None if by_row is None else grads[3]
    delta = torch.empty_like(lse)
    (B, H, Q, _), K = q.shape, k.shape[2]
    shape, options = _arguments(q, k, mask, pos_q, pos_k, low, num_rows, causal)
    options |= {"BIASED": by_row is not None, "SUMMED": grad_sums is not None}
    _backward_queries[B * H, triton.cdiv(Q, options["M"])](
        q, k, v, by_row, mask, pos_q, pos_k, out, sums, lse, delta, grad, grad_sums, grads[0],
        grad_by_row, *_strides(q, k, v, out, grad, grads[0]), *shape, **options,
    )  # fmt: skip
    _backward_keys[B * H, triton.cdiv(K, options["N"])](
        q, k, v, by_row, mask, pos_q, pos_k, lse, delta, grad, grad_sums, grads[1], grads[2],
        *_strides(q, k, v, grad, grads[1], grads[2]), *shape, **options,
    )  # fmt: skip
    return grads


@_attend_backward.register_fake
def _empty_grads(
    grad: Tensor, grad_sums: Any, saved: list[Tensor], by_row: Tensor | None, *_: Any
) -> list[Tensor]:
    grads = [x.new_empty(x.transpose(1, 2).shape).transpose(1, 2) for x in saved[:3]]
    return grads if by_row is None else [*grads, torch.empty_like(by_row)]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, by_row, mask, pos_q, pos_k, *ctx.how, ctx.with_sums = inputs
    ctx.save_for_backward(q, k, v, pos_q, pos_k, *output, by_row, mask)


def _differentiate(ctx: Any, grad: Tensor, grad_sums: Tensor, _: Tensor) -> tuple[Any, ...]:
    *saved, by_row, mask = ctx.saved_tensors
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    sums = grad_sums.contiguous() if ctx.with_sums else None
    grads = _attend_backward(grad, sums, saved, by_row, mask, *ctx.how)
    return *grads, *(None,) * (11 - len(grads))


_attend.register_autograd(_differentiate, setup_context=_save)


def _strides(*heads: Tensor) -> list[int]:
    return [stride for x in heads for stride in x.stride()[:3]]


def _arguments(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    pos_q: Tensor,
    pos_k: Tensor,
    low: int,
    num_rows: int,
    causal: bool,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    (_, H, Q, E), K = q.shape, k.shape[2]
    # As many queries as the registers hold without spilling (ptxas for sm_90).
    small = max(Q, K) <= 32 or num_rows > 64 or E > 64 or q.itemsize > 2
    per_sentence = [0 if x is None or len(x) == 1 else x.stride(0) for x in (mask, pos_q, pos_k)]
    return (*per_sentence, H, Q, K, E**-0.5, low), {
        "ROWS": num_rows,
        "WIDTH": max(16, triton.next_power_of_2(num_rows)),
        "E": E,
        "M": 32 if small else 64,
        "N": 32,
        "CAUSAL": causal,
        "MASKED": mask is not None,
        "num_warps": 4,
        "num_stages": 2,
    }


# In the kernels: i are queries and j keys of a block, e channels; the last query sees all keys.


@triton.jit
def _load(x, at, size, stride, E: tl.constexpr):
    """Rows `at` of heads, zeros from `size` on."""
    pointers = x + at[:, None] * stride + tl.arange(0, E)[None, :]
    return tl.load(pointers, mask=(at < size)[:, None], other=0.0)


@triton.jit
def _store(x, values, at, size, stride, E: tl.constexpr):
    pointers = x + at[:, None] * stride + tl.arange(0, E)[None, :]
    tl.store(pointers, values.to(x.dtype.element_ty), mask=(at < size)[:, None])


@triton.jit
def _product(a, b):
    return tl.dot(a, b, input_precision="tf32x3")


@triton.jit
def _rows_of(pos_q, pos_k, i, j, Q, K, low, ROWS):
    """The row of each pair, and the first and the last that occur."""
    at_q = tl.load(pos_q + tl.minimum(i, Q - 1))
    at_k = tl.load(pos_k + tl.minimum(j, K - 1)) - low
    origin = tl.min(at_q, 0)  # from which 32 bits reach far beyond every row
    at_q = tl.minimum(at_q - origin, 1 << 29).to(tl.int32)
    at_k = tl.minimum(tl.maximum(at_k - origin, -(1 << 29)), 1 << 30).to(tl.int32)
    rows = tl.minimum(tl.maximum(at_k[None, :] - at_q[:, None], 0), ROWS - 1)
    return rows, tl.min(tl.min(rows, 1), 0), tl.max(tl.max(rows, 1), 0)


@triton.jit
def _gathered(x, i, Q, rows, first, last, ROWS):
    """For each pair the number of its query and row, of `x (Q, R)`."""
    inside = i < Q
    if first == last:
        one = tl.load(x + i * ROWS + first, mask=inside, other=0.0).to(tl.float32)
        found = tl.broadcast_to(one[:, None], rows.shape)
    else:
        pointers = x + (i[:, None] * ROWS + rows)
        found = tl.load(pointers, mask=inside[:, None], other=0.0).to(tl.float32)
    return found


@triton.jit
def _of_row(x, rows, row, columns):
    one = tl.sum(tl.where(rows == row, x, 0.0), 1)
    return tl.where(columns[None, :] == row, one[:, None], 0.0)


@triton.jit
def _summed(x, rows, first, last, columns, pos_q, pos_k, i, j, Q, K, low, ROWS: tl.constexpr):
    """Sums of pairs `x (M, N)` by query and row, `(M, WIDTH)`."""
    if first == last:
        sums = _of_row(x, rows, first, columns)
    else:
        # If the keys' positions are consecutive, each row but the first and last has one key.
        start = tl.min(j, 0)
        at_k = tl.load(pos_k + tl.minimum(j, K - 1))
        origin = tl.load(pos_k + start)
        if tl.max(tl.abs(at_k - origin - (tl.minimum(j, K - 1) - start)), 0) == 0:
            at_q = tl.load(pos_q + tl.minimum(i, Q - 1)) + low
            index = (at_q - origin)[:, None] + columns[None, :]
            inside = (index >= 0) & (index < x.shape[1])
            inside &= ((columns > 0) & (columns < ROWS - 1))[None, :]
            picked = tl.gather(x, tl.where(inside, index, 0).to(tl.int32), 1)
            sums = tl.where(inside, picked, 0.0)
            sums += _of_row(x, rows, 0, columns) + _of_row(x, rows, ROWS - 1, columns)
        else:
            sums = tl.zeros((x.shape[0], columns.shape[0]), tl.float32)
            for row in range(first, last + 1):
                sums += _of_row(x, rows, row, columns)
    return sums


@triton.jit
def _scores(
    q, k, by_row, mask, i, j, Q, K, scale,
    rows, first, last,
    ROWS: tl.constexpr, CAUSAL: tl.constexpr, MASKED: tl.constexpr, BIASED: tl.constexpr,
):  # fmt: skip
    scores = _product(q, tl.trans(k)) * scale
    if BIASED:
        scores += _gathered(by_row, i, Q, rows, first, last, ROWS)
    if MASKED:
        scores += tl.load(mask + j, mask=j < K, other=float("-inf")).to(tl.float32)[None, :]
    seen = (j < K)[None, :]
    if CAUSAL:
        seen = seen & (j[None, :] <= i[:, None] + (K - Q))
    return tl.where(seen, scores, float("-inf"))


@triton.jit
def _forward(
    q, k, v, by_row, mask, pos_q, pos_k,
    out, sums, lse,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j,
    out_b, out_h, out_i, mask_b, pos_q_b, pos_k_b,
    H, Q, K, scale, low,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BIASED: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    b, h = head // H, head % H
    i = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.arange(0, WIDTH)
    queries = _load(q + b * q_b + h * q_h, i, Q, q_i, E)
    if BIASED:
        by_row += head * Q * ROWS
    if MASKED:
        mask += b * mask_b
    pos_q += b * pos_q_b
    pos_k += b * pos_k_b
    peak = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    found = tl.zeros((M, E), tl.float32)
    by_distance = tl.zeros((M, WIDTH), tl.float32)
    end = K
    if CAUSAL:
        end = tl.minimum(K, tl.program_id(1) * M + M + K - Q)
    for start in range(0, end, N):
        j = start + tl.arange(0, N)
        keys = _load(k + b * k_b + h * k_h, j, K, k_j, E)
        rows, first, last = _rows_of(pos_q, pos_k, i, j, Q, K, low, ROWS)
        scores = _scores(
            queries, keys, by_row, mask, i, j, Q, K, scale, rows, first, last,
            ROWS, CAUSAL, MASKED, BIASED,
        )  # fmt: skip
        highest = tl.maximum(peak, tl.max(scores, 1))
        safe = tl.where(highest == float("-inf"), 0.0, highest)
        probs = tl.exp(scores - safe[:, None])
        kept = tl.exp(peak - safe)
        values = _load(v + b * v_b + h * v_h, j, K, v_j, E)
        found = found * kept[:, None] + _product(probs.to(values.dtype), values)
        if SUMMED:
            by_distance = by_distance * kept[:, None] + _summed(
                probs, rows, first, last, columns, pos_q, pos_k, i, j, Q, K, low, ROWS
            )
        total = total * kept + tl.sum(probs, 1)
        peak = highest
    share = tl.where(total > 0, 1 / total, 0.0)
    _store(out + b * out_b + h * out_h, found * share[:, None], i, Q, out_i, E)
    # Without a key, probabilities are exp(score - inf) = 0.
    tl.store(
        lse + head * Q + i, tl.where(total > 0, peak + tl.log(total), float("inf")), mask=i < Q
    )
    if SUMMED:
        inside = (i < Q)[:, None] & (columns < ROWS)[None, :]
        pointers = sums + (head * Q + i)[:, None] * ROWS + columns[None, :]
        tl.store(pointers, (by_distance * share[:, None]).to(sums.dtype.element_ty), mask=inside)


@triton.jit
def _backward_queries(
    q, k, v, by_row, mask, pos_q, pos_k,
    out, sums, lse, delta, grad, grad_sums, grad_q,
    grad_by_row,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j,
    out_b, out_h, out_i, grad_b, grad_h, grad_i,
    grad_q_b, grad_q_h, grad_q_i, mask_b, pos_q_b, pos_k_b,
    H, Q, K, scale, low,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BIASED: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    b, h = head // H, head % H
    i = tl.program_id(1) * M + tl.arange(0, M)
    columns = tl.arange(0, WIDTH)
    queries = _load(q + b * q_b + h * q_h, i, Q, q_i, E)
    grads = _load(grad + b * grad_b + h * grad_h, i, Q, grad_i, E)
    outputs = _load(out + b * out_b + h * out_h, i, Q, out_i, E)
    log_sum = tl.load(lse + head * Q + i, mask=i < Q, other=float("inf"))
    mean = tl.sum(grads.to(tl.float32) * outputs.to(tl.float32), 1)  # of gradients, by probability
    inside = (i < Q)[:, None] & (columns < ROWS)[None, :]
    at = (head * Q + i)[:, None] * ROWS + columns[None, :]
    if SUMMED:
        products = tl.load(grad_sums + at, mask=inside, other=0.0).to(tl.float32)
        products *= tl.load(sums + at, mask=inside, other=0.0).to(tl.float32)
        mean += tl.sum(products, 1)
        grad_sums += head * Q * ROWS
    tl.store(delta + head * Q + i, mean, mask=i < Q)
    if BIASED:
        by_row += head * Q * ROWS
    if MASKED:
        mask += b * mask_b
    pos_q += b * pos_q_b
    pos_k += b * pos_k_b
    found = tl.zeros((M, E), tl.float32)
    by_distance = tl.zeros((M, WIDTH), tl.float32)
    end = K
    if CAUSAL:
        end = tl.minimum(K, tl.program_id(1) * M + M + K - Q)
    for start in range(0, end, N):
        j = start + tl.arange(0, N)
        keys = _load(k + b * k_b + h * k_h, j, K, k_j, E)
        values = _load(v + b * v_b + h * v_h, j, K, v_j, E)
        rows, first, last = _rows_of(pos_q, pos_k, i, j, Q, K, low, ROWS)
        scores = _scores(
            queries, keys, by_row, mask, i, j, Q, K, scale, rows, first, last,
            ROWS, CAUSAL, MASKED, BIASED,
        )  # fmt: skip
        grad_probs = _product(grads, tl.trans(values))
        if SUMMED:
            grad_probs += _gathered(grad_sums, i, Q, rows, first, last, ROWS)
        grad_scores = tl.exp(scores - log_sum[:, None]) * (grad_probs - mean[:, None])
        found += _product(grad_scores.to(keys.dtype), keys)
        if BIASED:
            by_distance += _summed(
                grad_scores, rows, first, last, columns, pos_q, pos_k, i, j, Q, K, low, ROWS
            )
    _store(grad_q + b * grad_q_b + h * grad_q_h, found * scale, i, Q, grad_q_i, E)
    if BIASED:
        tl.store(grad_by_row + at, by_distance.to(grad_by_row.dtype.element_ty), mask=inside)


@triton.jit
def _backward_keys(
    q, k, v, by_row, mask, pos_q, pos_k,
    lse, delta, grad, grad_sums, grad_k, grad_v,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j,
    grad_b, grad_h, grad_i, grad_k_b, grad_k_h, grad_k_j,
    grad_v_b, grad_v_h, grad_v_j, mask_b, pos_q_b, pos_k_b,
    H, Q, K, scale, low,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BIASED: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0).to(tl.int64)
    b, h = head // H, head % H
    j = tl.program_id(1) * N + tl.arange(0, N)
    keys = _load(k + b * k_b + h * k_h, j, K, k_j, E)
    values = _load(v + b * v_b + h * v_h, j, K, v_j, E)
    if BIASED:
        by_row += head * Q * ROWS
    if SUMMED:
        grad_sums += head * Q * ROWS
    if MASKED:
        mask += b * mask_b
    pos_q += b * pos_q_b
    pos_k += b * pos_k_b
    found_k = tl.zeros((N, E), tl.float32)
    found_v = tl.zeros((N, E), tl.float32)
    begin = 0
    if CAUSAL:  # the first query that sees one of these keys
        begin = tl.maximum(0, tl.program_id(1) * N - (K - Q)) // M * M
    for start in range(begin, Q, M):
        i = start + tl.arange(0, M)
        queries = _load(q + b * q_b + h * q_h, i, Q, q_i, E)
        grads = _load(grad + b * grad_b + h * grad_h, i, Q, grad_i, E)
        log_sum = tl.load(lse + head * Q + i, mask=i < Q, other=float("inf"))
        mean = tl.load(delta + head * Q + i, mask=i < Q, other=0.0)
        rows, first, last = _rows_of(pos_q, pos_k, i, j, Q, K, low, ROWS)
        scores = _scores(
            queries, keys, by_row, mask, i, j, Q, K, scale, rows, first, last,
            ROWS, CAUSAL, MASKED, BIASED,
        )  # fmt: skip
        probs = tl.exp(scores - log_sum[:, None])
        found_v += _product(tl.trans(probs.to(grads.dtype)), grads)
        grad_probs = _product(grads, tl.trans(values))
        if SUMMED:
            grad_probs += _gathered(grad_sums, i, Q, rows, first, last, ROWS)
        grad_scores = probs * (grad_probs - mean[:, None])
        found_k += _product(tl.trans(grad_scores.to(queries.dtype)), queries)
    _store(grad_k + b * grad_k_b + h * grad_k_h, found_k * scale, j, K, grad_k_j, E)
    _store(grad_v + b * grad_v_b + h * grad_v_h, found_v, j, K, grad_v_j, E)
