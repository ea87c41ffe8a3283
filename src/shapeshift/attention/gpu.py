"""Attention with a table by distance on a GPU: one Triton kernel forward, two backward.

The table has vectors, or numbers that are added as they are. A query's products with the rows of
the table of keys come from outside, and so does the product of the table of values with what the
kernel sums by row. Each program owns some queries, or some keys, and adds up in a fixed order:
results are the same in every call.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from shapeshift.attention.backends.reference import in_steps
from shapeshift.attention.call import scaled
from shapeshift.kernels import differentiate, needs_steps
from shapeshift.positions.checks import as_positions
from shapeshift.positions.pairs import Table, autocast_inputs, by_table
from shapeshift.positions.relative import distances


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
        tables: for the scores and for the output: one of them, or both for the same distances.
        mask: `(B|1, 1, 1, K)`, added to the scores; it needs no gradient.
        pos_q, pos_k, causal: see `attend`.
    """
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in autocast_inputs(*heads))
    keys, values = tables
    first = keys or values
    assert first is not None
    num_rows = first.vectors.shape[1]
    missing = _aligned(num_rows) - num_rows
    by_row = None
    if keys is not None and keys.vectors.ndim == 2:  # (H, R)
        by_row = F.pad(keys.vectors, (0, missing)).expand(q.shape[1], -1).contiguous()
    elif keys is not None:  # (B, Q, H, R), as tokens lie in memory
        scaled = (q * q.shape[-1] ** -0.5).transpose(1, 2)
        table = F.pad(keys.vectors, (0, 0, 0, missing))
        by_row = _by_table(scaled, table.transpose(-1, -2)).contiguous()
    positions = [as_positions(x).contiguous() for x in (pos_q, pos_k)]
    mask = mask if mask is None else mask[:, 0, 0].contiguous()
    options = mask, *positions, first.low, num_rows, causal, values is not None
    out: Tensor
    run: Any = _attend if torch.compiler.is_compiling() else _Attention.apply
    out, sums, _ = run(q, k, v, by_row, *options)
    if values is None:
        return out
    return out + _by_table(sums, F.pad(values.vectors, (0, 0, 0, missing))).transpose(1, 2)


def _aligned(num_rows: int) -> int:
    """Return the rows padded with rows of zeros to an aligned number; otherwise, products take up
    to four times as long."""
    return num_rows + -num_rows % int(ALIGNED.value)


def _by_table(x: Tensor, table: Tensor) -> Tensor:
    """As `by_table`, for `x (B, Q, H, n)` -> `(B, Q, H, m)`."""
    if len(table) == 1:
        return x @ table[0]
    return by_table(x.transpose(1, 2), table).transpose(1, 2)


ALIGNED = tl.constexpr(8)
"""Numbers by row lie together for a multiple of this many rows."""


def _attend_forward(
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
    """Attention with `by_row (B, Q, H, _aligned(R))`, or `(H, _aligned(R))` for all queries, added
    to the scores, each at the pairs of its row. Also return the probabilities summed by row, or
    nothing, and `(B, H, 2, Q)` of each query: the highest score and 1 / Σ 2^(score - highest)."""
    made: tuple[Tensor, Tensor, Tensor] = _empty(q, num_rows, causal, with_sums)
    shape, options = _arguments(q, k, mask, pos_q, pos_k, low, num_rows, causal)
    options |= _with_rows(by_row, with_sums)
    with torch.cuda.device_of(q):
        _forward[(q.shape[0] * q.shape[1] * triton.cdiv(q.shape[2], options["M"]),)](
            q, k, v, by_row, mask, pos_q, pos_k, *made,
            *_strides(q, k, v, made[0]), *shape, **options,
        )  # fmt: skip
    return made


def _empty(q: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    (B, H, Q, E), (num_rows, _, with_sums) = q.shape, rest[-3:]
    out = q.new_empty(B, Q, H, E).transpose(1, 2)
    sums = q.new_empty((B, Q, H, _aligned(num_rows)) if with_sums else (0,))
    return out, sums, q.new_empty(B, H, 2, Q, dtype=torch.float32)


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
    """Return the gradients of q, k, v and, if there is one, `by_row`, of each query."""
    q, k, v, pos_q, pos_k, out, sums, norms = saved
    grads: list[Tensor] = _empty_grads(grad, grad_sums, saved, by_row)
    grad_by_row = None if by_row is None else grads[3]
    (B, H, Q, _), K = q.shape, k.shape[2]
    terms = norms.new_empty(B, H, 7, Q)
    shape, options = _arguments(q, k, mask, pos_q, pos_k, low, num_rows, causal)
    options |= _with_rows(by_row, grad_sums is not None)
    _backward_queries[(B * H * triton.cdiv(Q, options["M"]),)](
        q, k, v, by_row, mask, pos_q, pos_k, out, sums, norms, terms, grad, grad_sums, grads[0],
        grad_by_row, *_strides(q, k, v, out, grad, grads[0]), *shape, **options,
    )  # fmt: skip
    options |= {"M": options["N"], "N": options["M"]}  # it owns keys
    _backward_keys[(B * H * triton.cdiv(K, options["N"]),)](
        q, k, v, by_row, mask, pos_q, pos_k, terms, grad, grad_sums, grads[1], grads[2],
        *_strides(q, k, v, grad, grads[1], grads[2]), *shape, **options,
    )  # fmt: skip
    return grads


def _empty_grads(
    grad: Tensor, grad_sums: Any, saved: list[Tensor], by_row: Tensor | None, *_: Any
) -> list[Tensor]:
    grads = [x.new_empty(x.transpose(1, 2).shape).transpose(1, 2) for x in saved[:3]]
    if by_row is not None:
        B, H, Q, _E = saved[0].shape
        grads.append(saved[0].new_empty(B, Q, H, by_row.shape[-1]))
    return grads


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    q, k, v, by_row, mask, pos_q, pos_k, *ctx.options, ctx.with_sums = inputs
    ctx.save_for_backward(q, k, v, pos_q, pos_k, *output, by_row, mask)


def _differentiate(ctx: Any, *gradients: Tensor, run: Any) -> tuple[Any, ...]:
    grad, grad_sums, _ = gradients
    *saved, by_row, mask = ctx.saved_tensors
    grad = grad if grad.stride(-1) == 1 else grad.contiguous()
    sums = grad_sums.contiguous() if ctx.with_sums else None
    grads = run(grad, sums, saved, by_row, mask, *ctx.options)
    if by_row is not None and by_row.ndim == 2:
        grads[3] = grads[3].sum((0, 1), dtype=by_row.dtype)
    return *grads, *(None,) * (11 - len(grads))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        output = _attend_forward(*inputs)
        _save(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        if any(x is not None and needs_steps(x) for x in grads):
            q, k, v, pos_q, pos_k, *_, by_row, mask = ctx.saved_tensors
            options = mask, pos_q, pos_k, *ctx.options, ctx.with_sums
            run = partial(_in_steps, options=options)
            found = differentiate(run, (q, k, v, by_row), grads[: 1 + ctx.with_sums])
            return *found, *(None,) * 7
        return _differentiate(ctx, *grads, run=_attend_backward)


def _in_steps(
    q: Tensor, k: Tensor, v: Tensor, by_row: Tensor | None, options: tuple[Any, ...]
) -> list[Tensor]:
    """`_attend_forward` in plain PyTorch: the output and, if asked for, the sums."""
    mask, pos_q, pos_k, low, num_rows, causal, with_sums = options
    rows = (distances(pos_q, pos_k) - low).clamp(0, num_rows - 1).unsqueeze(1)  # (B|1, 1, Q, K)
    rows = rows.expand(*q.shape[:3], -1)
    biases = [mask if mask is None else mask[:, None, None]]
    if by_row is not None:
        numbers = by_row.unsqueeze(1) if by_row.ndim == 2 else by_row.transpose(1, 2)
        biases.append(numbers.float().expand(*q.shape[:3], -1).gather(-1, rows))
    out, probs = in_steps(scaled(q.float()), k.float(), v.float(), biases, causal=causal)
    out = out.to(q.dtype)
    if not with_sums:
        return [out]
    sums = probs.new_zeros(*q.shape[:3], _aligned(num_rows)).scatter_add(-1, rows, probs)
    return [out, sums.transpose(1, 2).to(q.dtype)]


# The same as operators of PyTorch, which `torch.compile` takes as they are, and which take a host
# several times as long.
_attend = torch.library.custom_op("shapeshift::attend_by_rows", _attend_forward, mutates_args=())
_attend.register_fake(_empty)
_backward = torch.library.custom_op(
    "shapeshift::attend_by_rows_backward", _attend_backward, mutates_args=()
)
_backward.register_fake(_empty_grads)
_attend.register_autograd(partial(_differentiate, run=_backward), setup_context=_save)


def _with_rows(by_row: Tensor | None, summed: bool) -> dict[str, bool]:
    shared = by_row is not None and by_row.ndim == 2
    return {"BIASED": by_row is not None, "SHARED": shared, "SUMMED": summed}


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
    width = triton.next_power_of_2(max(16, num_rows - 2))
    short, wide = max(Q, K) <= 32, width > 64 or E > 64 or q.itemsize > 2
    small = short or wide
    per_sentence = [0 if x is None or len(x) == 1 else x.stride(0) for x in (mask, pos_q, pos_k)]
    return (*per_sentence, H, Q, K, E**-0.5, low), {
        "ROWS": num_rows,
        "STEP": _aligned(num_rows),
        "WIDTH": width,
        "E": E,
        "M": 32 if small else 64,
        "N": 32,
        # Three programs on a multiprocessor. With 33 rows the loop over clipped blocks spills
        # nothing (ptxas for sm_90), the band's a few numbers.
        "maxnreg": None if small else 168,
        "CAUSAL": causal,
        "MASKED": mask is not None,
        "num_warps": 2 if short and not wide else 4,
        "num_stages": 2 if small else 3,
    }


# In the kernels: i are queries and j keys of a block, e channels; the last query sees all keys.
# Scores are multiplied by log2(e), and their exponentials are powers of 2.
#
# Blocks whose pairs all have the first row, or all the last, need one number of each query. They
# come first (part 0), then the band of the others: with consecutive positions (part 1), which say
# where a row's pairs are, or with any (part 2).

SIZES = ("mask_b", "pos_q_b", "pos_k_b", "Q", "K", "low")
"""Numbers for which nothing is compiled anew: they vary from batch to batch."""

LOG2E = tl.constexpr(1.4426950408889634)


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
def _band(own, others, num, low, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Return the band's first block of SIZE others and the one after its last: in blocks before it
    all pairs with `own` have the first row, in those after it the last. Also return 0 if the
    positions of all `num` others are consecutive, else 1, and where the first row then is."""
    lowest, highest = tl.min(own, 0) + low, tl.max(own, 0) + low + ROWS - 1
    left = tl.full((256,), 0, tl.int32) + num
    right = tl.zeros((256,), tl.int32)
    uneven = tl.zeros((256,), tl.int32)
    origin = tl.load(others)
    for start in range(0, num, 256):
        n = start + tl.arange(0, 256)
        at = tl.load(others + n, mask=n < num, other=0)
        left = tl.where((n < num) & (at > lowest), tl.minimum(left, n), left)
        right = tl.where((n < num) & (at < highest), n + 1, right)
        uneven = tl.where((n < num) & (at - origin != n), 1, uneven)
    left_block = tl.min(left, 0) // SIZE
    right_block = tl.maximum(tl.cdiv(tl.max(right, 0), SIZE), left_block)
    offsets = tl.minimum(tl.maximum(own + low - origin, -(1 << 30)), 1 << 30).to(tl.int32)
    return left_block, right_block, tl.max(uneven, 0), offsets


@triton.jit
def _of_keys(mask, j, K, MASKED: tl.constexpr):
    """What is added to the scores of each key."""
    if MASKED:
        added = tl.load(mask + j, mask=j < K, other=float("-inf")).to(tl.float32)
        # The smallest finite number stays one.
        added = tl.where(added == float("-inf"), added, tl.maximum(added, -2e38) * LOG2E)
    else:
        added = tl.where(j < K, 0.0, float("-inf"))
    return added


@triton.jit
def _pairs(x, at, inside):
    return tl.load(x + at, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _range(part: tl.constexpr, left, begin, middle, right, blocks):
    """Part 0 counts the blocks before `left` and those from `right` on."""
    if part == 0:
        return 0, left + blocks - right
    elif part == 1:
        return begin, middle
    else:
        return middle, right


@triton.jit
def _rows(offsets, own, m, num_own, others, n, num, low, ROWS: tl.constexpr, EVEN: tl.constexpr):
    """Return the row of each pair of own `m` and others `n`, `(len(m), len(n))`; if others are
    consecutive, from the `offsets` of the first row in them."""
    if EVEN:
        distances = tl.arange(0, n.shape[0])[None, :] - offsets[:, None]
    else:
        at = tl.load(others + tl.minimum(n, num - 1))
        distances = at[None, :] - tl.load(own + tl.minimum(m, num_own - 1))[:, None] - low
    return tl.minimum(tl.maximum(distances, 0), ROWS - 1).to(tl.int32)


@triton.jit
def _of_row(x, rows, row):
    return tl.sum(tl.where(rows == row, x, 0.0), 1)


@triton.jit
def _between(
    x, rows, offsets, ROWS: tl.constexpr, WIDTH: tl.constexpr, EVEN: tl.constexpr
):  # fmt: skip
    """Return sums of pairs `x (M, N)` by query and row, `(M, WIDTH)`, from the second row to the
    one before the last. Columns after it have no meaning."""
    N: tl.constexpr = x.shape[1]
    columns = tl.arange(0, WIDTH)[None, :]
    if EVEN:  # each of these rows has one key
        index = offsets[:, None] + 1 + columns
        sums = tl.where((index & -N) == 0, tl.gather(x, index & (N - 1), 1), 0.0)
    else:
        sums = tl.zeros((x.shape[0], WIDTH), tl.float32)
        first, last = tl.min(tl.min(rows, 1), 0), tl.max(tl.max(rows, 1), 0)
        for row in range(tl.maximum(first, 1), tl.minimum(last, ROWS - 2) + 1):
            sums += tl.where(columns == row - 1, _of_row(x, rows, row)[:, None], 0.0)
    return sums


@triton.jit
def _store_sums(
    x, first, between, last, i, Q, step,
    ROWS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    columns = tl.arange(0, WIDTH)[None, :] + 1
    kind = x.dtype.element_ty
    inside = (i < Q)[:, None] & (columns < ROWS - 1)
    tl.store(x + i[:, None] * step + columns, between.to(kind), mask=inside)
    if ROWS > 1:
        tl.store(x + i * step + ROWS - 1, last.to(kind), mask=i < Q)
    else:
        first += last
    tl.store(x + i * step, first.to(kind), mask=i < Q)
    if STEP > ROWS:
        columns = ROWS + tl.arange(0, ALIGNED)[None, :]
        inside = (i < Q)[:, None] & (columns < STEP)
        tl.store(x + i[:, None] * step + columns, tl.zeros_like(columns).to(kind), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def _forward(
    q, k, v, by_row, mask, pos_q, pos_k,
    out, sums, norms,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j,
    out_b, out_h, out_i, mask_b, pos_q_b, pos_k_b,
    H, Q, K, scale, low,
    ROWS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BIASED: tl.constexpr, SHARED: tl.constexpr,
    SUMMED: tl.constexpr,
):  # fmt: skip
    num_blocks = tl.cdiv(Q, M)
    head = (tl.program_id(0) // num_blocks).to(tl.int64)
    start_i = tl.program_id(0) % num_blocks * M
    b, h = head // H, head % H
    step = H * STEP
    i = start_i + tl.arange(0, M)
    queries = _load(q + b * q_b + h * q_h, i, Q, q_i, E)
    if BIASED:
        by_row += (h if SHARED else b * Q * H + h) * STEP
        bias_step = 0 if SHARED else step
        bias_first = _pairs(by_row, i * bias_step, i < Q) * LOG2E
        bias_last = _pairs(by_row, i * bias_step + ROWS - 1, i < Q) * LOG2E
    if MASKED:
        mask += b * mask_b
    pos_q += b * pos_q_b
    pos_k += b * pos_k_b
    at_q = tl.load(pos_q + tl.minimum(i, Q - 1))
    left, right, uneven, offsets = _band(at_q, pos_k, K, low, ROWS, N)
    blocks = tl.cdiv(K, N)
    if CAUSAL:
        blocks = tl.cdiv(tl.maximum(tl.minimum(K, start_i + M + K - Q), 0), N)
        left = tl.minimum(left, tl.maximum(start_i + 1 + K - Q, 0) // N)
        right = blocks
    peak = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    first = tl.zeros((M,), tl.float32)
    last = tl.zeros((M,), tl.float32)
    found = tl.zeros((M, E), tl.float32)
    between = tl.zeros((M, WIDTH), tl.float32)
    middle = tl.where(uneven == 0, right, left)
    for part in tl.static_range(3):
        begin, end = _range(part, left, left, middle, right, blocks)
        for n in range(begin, end):
            before = n < left
            start = (n if part > 0 else tl.where(before, n, n + right - left)) * N
            j = start + tl.arange(0, N)
            if part > 0:
                rows = _rows(offsets - start, pos_q, i, Q, pos_k, j, K, low, ROWS, part == 1)
                if BIASED:
                    pairs = i[:, None] * bias_step + rows
                    bias = _pairs(by_row, pairs, (i < Q)[:, None]) * LOG2E
            elif BIASED:
                bias = tl.where(before, bias_first, bias_last)[:, None]
            keys = _load(k + b * k_b + h * k_h, j, K, k_j, E)
            scores = _product(queries, tl.trans(keys)) * (scale * LOG2E)
            if BIASED:
                scores += bias
            scores += _of_keys(mask, j, K, MASKED)[None, :]
            if CAUSAL and part > 0:
                seen = j[None, :] <= i[:, None] + (K - Q)
                scores = tl.where(seen, scores, float("-inf"))
            highest = tl.maximum(peak, tl.max(scores, 1))
            safe = tl.where(highest == float("-inf"), 0.0, highest)
            probs = tl.exp2(scores - safe[:, None])
            kept = tl.exp2(peak - safe)
            peak = highest
            values = _load(v + b * v_b + h * v_h, j, K, v_j, E)
            found = found * kept[:, None] + _product(probs.to(values.dtype), values)
            added = tl.sum(probs, 1)
            total = total * kept + added
            if SUMMED:
                first *= kept
                last *= kept
                if part > 0:
                    first += _of_row(probs, rows, 0)
                    if ROWS > 1:
                        last += _of_row(probs, rows, ROWS - 1)
                    between *= kept[:, None]
                    between += _between(probs, rows, offsets - start, ROWS, WIDTH, part == 1)
                else:
                    first += tl.where(before, added, 0.0)
                    last += tl.where(before, 0.0, added)
    share = tl.where(total > 0, 1 / total, 0.0)
    _store(out + b * out_b + h * out_h, found * share[:, None], i, Q, out_i, E)
    # Apart, as the logarithm of the total would be lost in a peak such as -1e9. Without a key,
    # probabilities are 2^(score - inf) = 0.
    norms += head * 2 * Q + i
    tl.store(norms, tl.where(total > 0, peak, float("inf")), mask=i < Q)
    tl.store(norms + Q, share, mask=i < Q)
    if SUMMED:
        between *= share[:, None]
        sums += (b * Q * H + h) * STEP
        _store_sums(sums, first * share, between, last * share, i, Q, step, ROWS, STEP, WIDTH)


@triton.jit(do_not_specialize=SIZES)
def _backward_queries(
    q, k, v, by_row, mask, pos_q, pos_k,
    out, sums, norms, terms, grad, grad_sums, grad_q,
    grad_by_row,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j,
    out_b, out_h, out_i, grad_b, grad_h, grad_i,
    grad_q_b, grad_q_h, grad_q_i, mask_b, pos_q_b, pos_k_b,
    H, Q, K, scale, low,
    ROWS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BIASED: tl.constexpr, SHARED: tl.constexpr,
    SUMMED: tl.constexpr,
):  # fmt: skip
    num_blocks = tl.cdiv(Q, M)
    head = (tl.program_id(0) // num_blocks).to(tl.int64)
    start_i = tl.program_id(0) % num_blocks * M
    b, h = head // H, head % H
    step = H * STEP
    i = start_i + tl.arange(0, M)
    queries = _load(q + b * q_b + h * q_h, i, Q, q_i, E)
    grads = _load(grad + b * grad_b + h * grad_h, i, Q, grad_i, E)
    outputs = _load(out + b * out_b + h * out_h, i, Q, out_i, E)
    norms += head * 2 * Q + i
    peak = tl.load(norms, mask=i < Q, other=float("inf"))
    share = tl.load(norms + Q, mask=i < Q, other=0.0)
    mean = tl.sum(grads.to(tl.float32) * outputs.to(tl.float32), 1)  # of gradients, by probability
    if SUMMED:
        grad_sums += (b * Q * H + h) * STEP
        sums += (b * Q * H + h) * STEP
        columns = tl.arange(0, 2 * WIDTH)[None, :]
        inside = (i < Q)[:, None] & (columns < ROWS)
        every = i[:, None] * step + columns
        mean += tl.sum(_pairs(grad_sums, every, inside) * _pairs(sums, every, inside), 1)
    # Scores less `peak`, and gradients less `mean`: what pairs of the first and the last row add to
    # a product of vectors is in these numbers, of which `_backward_keys` needs all.
    peak_first, peak_last, mean_first, mean_last = peak, peak, mean, mean
    if BIASED:
        by_row += (h if SHARED else b * Q * H + h) * STEP
        bias_step = 0 if SHARED else step
        peak_first -= _pairs(by_row, i * bias_step, i < Q) * LOG2E
        peak_last -= _pairs(by_row, i * bias_step + ROWS - 1, i < Q) * LOG2E
    if SUMMED:
        mean_first -= _pairs(grad_sums, i * step, i < Q)
        mean_last -= _pairs(grad_sums, i * step + ROWS - 1, i < Q)
    terms += head * 7 * Q + i
    tl.store(terms, peak_first, mask=i < Q)
    tl.store(terms + Q, mean_first, mask=i < Q)
    tl.store(terms + 2 * Q, peak_last, mask=i < Q)
    tl.store(terms + 3 * Q, mean_last, mask=i < Q)
    tl.store(terms + 4 * Q, peak, mask=i < Q)
    tl.store(terms + 5 * Q, mean, mask=i < Q)
    tl.store(terms + 6 * Q, share, mask=i < Q)
    if MASKED:
        mask += b * mask_b
    pos_q += b * pos_q_b
    pos_k += b * pos_k_b
    at_q = tl.load(pos_q + tl.minimum(i, Q - 1))
    left, right, uneven, offsets = _band(at_q, pos_k, K, low, ROWS, N)
    blocks = tl.cdiv(K, N)
    if CAUSAL:
        blocks = tl.cdiv(tl.maximum(tl.minimum(K, start_i + M + K - Q), 0), N)
        left = tl.minimum(left, tl.maximum(start_i + 1 + K - Q, 0) // N)
        right = blocks
    first = tl.zeros((M,), tl.float32)
    last = tl.zeros((M,), tl.float32)
    found = tl.zeros((M, E), tl.float32)
    between = tl.zeros((M, WIDTH), tl.float32)
    middle = tl.where(uneven == 0, right, left)
    for part in tl.static_range(3):
        begin, end = _range(part, left, left, middle, right, blocks)
        for n in range(begin, end):
            before = n < left
            start = (n if part > 0 else tl.where(before, n, n + right - left)) * N
            j = start + tl.arange(0, N)
            less, less_grad = peak, mean
            if part > 0:
                rows = _rows(offsets - start, pos_q, i, Q, pos_k, j, K, low, ROWS, part == 1)
                if BIASED:
                    pairs = i[:, None] * bias_step + rows
                    bias = _pairs(by_row, pairs, (i < Q)[:, None]) * LOG2E
                if SUMMED:
                    grad_bias = _pairs(grad_sums, i[:, None] * step + rows, (i < Q)[:, None])
            else:
                less = tl.where(before, peak_first, peak_last)
                less_grad = tl.where(before, mean_first, mean_last)
            keys = _load(k + b * k_b + h * k_h, j, K, k_j, E)
            values = _load(v + b * v_b + h * v_h, j, K, v_j, E)
            scores = _product(queries, tl.trans(keys)) * (scale * LOG2E)
            if BIASED and part > 0:
                scores += bias
            # As in the forward pass, where a low mask may have left nothing of the rest.
            scores = scores + _of_keys(mask, j, K, MASKED)[None, :] - less[:, None]
            grad_probs = _product(grads, tl.trans(values)) - less_grad[:, None]
            if part > 0:
                if SUMMED:
                    grad_probs += grad_bias
                if CAUSAL:
                    seen = j[None, :] <= i[:, None] + (K - Q)
                    scores = tl.where(seen, scores, float("-inf"))
            grad_scores = tl.exp2(scores) * share[:, None] * grad_probs
            found += _product(grad_scores.to(keys.dtype), keys)
            if BIASED:
                if part > 0:
                    first += _of_row(grad_scores, rows, 0)
                    if ROWS > 1:
                        last += _of_row(grad_scores, rows, ROWS - 1)
                    between += _between(grad_scores, rows, offsets - start, ROWS, WIDTH, part == 1)
                else:
                    added = tl.sum(grad_scores, 1)
                    first += tl.where(before, added, 0.0)
                    last += tl.where(before, 0.0, added)
    _store(grad_q + b * grad_q_b + h * grad_q_h, found * scale, i, Q, grad_q_i, E)
    if BIASED:
        grad_by_row += (b * Q * H + h) * STEP
        _store_sums(grad_by_row, first, between, last, i, Q, step, ROWS, STEP, WIDTH)


@triton.jit(do_not_specialize=SIZES)
def _backward_keys(
    q, k, v, by_row, mask, pos_q, pos_k,
    terms, grad, grad_sums, grad_k, grad_v,
    q_b, q_h, q_i, k_b, k_h, k_j, v_b, v_h, v_j,
    grad_b, grad_h, grad_i, grad_k_b, grad_k_h, grad_k_j,
    grad_v_b, grad_v_h, grad_v_j, mask_b, pos_q_b, pos_k_b,
    H, Q, K, scale, low,
    ROWS: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr, E: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, BIASED: tl.constexpr, SHARED: tl.constexpr,
    SUMMED: tl.constexpr,
):  # fmt: skip
    num_blocks = tl.cdiv(K, N)
    head = (tl.program_id(0) // num_blocks).to(tl.int64)
    start_j = tl.program_id(0) % num_blocks * N
    b, h = head // H, head % H
    step = H * STEP
    j = start_j + tl.arange(0, N)
    keys = _load(k + b * k_b + h * k_h, j, K, k_j, E)
    values = _load(v + b * v_b + h * v_h, j, K, v_j, E)
    by_key = _of_keys(mask + b * mask_b if MASKED else mask, j, K, MASKED)
    if BIASED:
        by_row += (h if SHARED else b * Q * H + h) * STEP
        bias_step = 0 if SHARED else step
    if SUMMED:
        grad_sums += (b * Q * H + h) * STEP
    terms += head * 7 * Q
    pos_q += b * pos_q_b
    pos_k += b * pos_k_b
    at_k = tl.load(pos_k + tl.minimum(j, K - 1))
    # From the keys the queries are seen at distances of the other sign: last row before the band.
    mirrored = 1 - low - ROWS
    left, right, uneven, offsets = _band(at_k, pos_q, Q, mirrored, ROWS, M)
    seen_from = left
    blocks = tl.cdiv(Q, M)
    if CAUSAL:
        left = 0
        seen_from = tl.maximum(0, start_j - (K - Q)) // M  # the first that sees one of these keys
        right = tl.maximum(right, tl.cdiv(tl.maximum(start_j + N - 1 - (K - Q), 0), M))
        right = tl.minimum(tl.maximum(right, seen_from), blocks)
    found_k = tl.zeros((N, E), tl.float32)
    found_v = tl.zeros((N, E), tl.float32)
    middle = tl.where(uneven == 0, right, seen_from)
    for part in tl.static_range(3):
        begin, end = _range(part, left, seen_from, middle, right, blocks)
        for n in range(begin, end):
            before = n < left
            start = (n if part > 0 else tl.where(before, n, n + right - left)) * M
            i = start + tl.arange(0, M)
            which = 4 if part > 0 else tl.where(before, 2, 0)
            if part > 0:
                rows = _rows(offsets - start, pos_k, j, K, pos_q, i, Q, mirrored, ROWS, part == 1)
                rows = ROWS - 1 - rows
                if BIASED:
                    pairs = i[None, :] * bias_step + rows
                    bias = _pairs(by_row, pairs, (i < Q)[None, :]) * LOG2E
                if SUMMED:
                    grad_bias = _pairs(grad_sums, i[None, :] * step + rows, (i < Q)[None, :])
            queries = _load(q + b * q_b + h * q_h, i, Q, q_i, E)
            grads = _load(grad + b * grad_b + h * grad_h, i, Q, grad_i, E)
            less = tl.load(terms + which * Q + i, mask=i < Q, other=float("inf"))
            less_grad = tl.load(terms + (which + 1) * Q + i, mask=i < Q, other=0.0)
            share = tl.load(terms + 6 * Q + i, mask=i < Q, other=0.0)
            scores = _product(keys, tl.trans(queries)) * (scale * LOG2E)
            if BIASED and part > 0:
                scores += bias
            scores = scores + by_key[:, None] - less[None, :]
            grad_probs = _product(values, tl.trans(grads)) - less_grad[None, :]
            if part > 0:
                if SUMMED:
                    grad_probs += grad_bias
                if CAUSAL:
                    seen = j[:, None] <= i[None, :] + (K - Q)
                    scores = tl.where(seen, scores, float("-inf"))
            probs = tl.exp2(scores) * share[None, :]
            found_v += _product(probs.to(grads.dtype), grads)
            grad_scores = probs * grad_probs
            found_k += _product(grad_scores.to(queries.dtype), queries)
    _store(grad_k + b * grad_k_b + h * grad_k_h, found_k * scale, j, K, grad_k_j, E)
    _store(grad_v + b * grad_v_b + h * grad_v_h, found_v, j, K, grad_v_j, E)
