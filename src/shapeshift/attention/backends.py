"""softmax(Q K^T / sqrt(E)) V with whatever a position representation adds, on every device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend
from torch.utils.checkpoint import checkpoint

from shapeshift import kernels
from shapeshift.errors import ShapeshiftError
from shapeshift.positions import Representation, pairs
from shapeshift.positions.base import (
    check_heads,
    check_numbers,
    check_sizes,
    known_tables,
    known_turns,
    total,
    total_bias,
)
from shapeshift.positions.checks import describe
from shapeshift.positions.relative import common_lag
from shapeshift.positions.rotary import rotate

from .dropout import draw_seed, dropout, numbers
from .flex import attend_flex, prefers_flex

FUSED_FROM = {torch.bfloat16: 512, torch.float32: 64, torch.float64: 64}
"""Keys from which PyTorch's fused kernel beats matmul + softmax on a CPU, if ours cannot serve."""

BLOCK = 1 << 22
"""Scores that `_attend_in_blocks` computes at a time: few enough for the cache of a CPU."""

FEW = 16
"""The most queries of a row for which `attend_few` serves: to a source, one for each beam."""

RECOMPUTED_FROM = 512
"""Keys from which a CPU recomputes probabilities in the backward pass, in place of keeping them."""

ANY_SHAPE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""PyTorch's kernels but for cuDNN's, which makes a plan for each new shape: where lengths vary,
that takes several times as long as the training step."""

MAX_ROWS = 512
"""Rows of a table for which a GPU's kernel has registers."""


class Kept(Protocol):
    """Keys and values, as `model.cache` keeps them."""

    def attend(
        self, q: Tensor, keys: Tensor, values: Tensor, **how: Any
    ) -> tuple[Tensor, Tensor | None]: ...


_recorded: ContextVar[list[Tensor] | None] = ContextVar("recorded", default=None)
_num_recordings = 0  # of all threads: torch.compile cannot read a context variable, but this
_lock = Lock()


@contextmanager
def recording() -> Iterator[list[Tensor]]:
    """Collect the probabilities `(B, H, Q, K)` of every attention in this context, in the order of
    the calls; it is computed in plain steps. Other threads and tasks are not recorded. Meanwhile,
    code that is compiled with `fullgraph=True` raises an error of torch.compile."""
    global _num_recordings
    probabilities: list[Tensor] = []
    token = _recorded.set(probabilities)
    with _lock:
        _num_recordings += 1
    try:
        yield probabilities
    finally:
        with _lock:
            _num_recordings -= 1
        _recorded.reset(token)


def is_recording() -> bool:
    """Return whether `recording` collects probabilities, which fused kernels do not return."""
    return _num_recordings > 0 and _recorded.get() is not None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
    dropout_p: float = 0.0,
    *,
    causal: bool = False,
) -> Tensor:
    """Return the attention output `(B, H, Q, E)`; a query that may see no key gets zeros, and no
    gradient comes from it.

    Args:
        q, k, v: heads `(B, H, Q|K, E)` of one dtype; the queries are not scaled.
        mask: broadcastable to `(B, H, Q, K)`; boolean, true where attention is allowed, or a float
            that is added to the scores, where `-inf` forbids. A finite number beyond the range of
            the scores' dtype stays finite: it becomes half of the lowest one.
        position: its `bias`, `query_bias` and `value_bias` are called, or its `score_mod` in place
            of the first two, or its `tables`; the caller has called `inputs` and `rotate`.
        pos_q, pos_k: positions `(B|1, Q|K)`.
        dropout_p: of the probabilities; 0 in evaluation.
        causal: whether query i sees only the keys up to i + K - Q, so that the last query sees all.
            Without a bias, a fused kernel needs no mask for it.

    Raises:
        ShapeshiftError: if heads, positions, the mask and the sizes of `position` do not fit each
            other, heads have different dtypes (outside autocast), or the mask is neither boolean
            nor float.
    """
    check_call(q, k, v, position, pos_q, pos_k)
    num_queries, num_keys = q.shape[2], k.shape[2]
    if mask is not None:
        mask = _additive_for(mask, q, num_keys)
    learned = mask is not None and mask.requires_grad  # for which only PyTorch has gradients
    tables = tables_for_gpu(position, q, num_keys, mask, dropout_p)
    if tables is not None:
        from .gpu import attend_by_tables

        return attend_by_tables((q, k, v), tables, mask, pos_q, pos_k, causal=causal)
    if not is_recording() and not learned and prefers_flex(position, q, num_keys, dropout_p):
        score_mod = position.score_mod(_scaled(q), pos_q, pos_k)
        if score_mod is not None:
            return attend_flex(q, k, v, mask, score_mod, causal=causal)
    causal = causal and num_queries > 1
    part = q, k, v, mask, position, pos_q, pos_k, dropout_p
    fused = prefers_fused(position, q, num_keys, dropout_p)
    if not fused or num_queries > 1:
        served = _attend_here(part, causal)
        if served is not None:
            return served
    if fused and not is_recording():
        if causal and mask is None and not _is_biased(position) and num_queries == num_keys:
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True)
        mask = _with_triangle(mask, q, num_keys) if causal else mask
        # Its kernels differ in what they return for a query that may see nothing.
        blind = None if mask is None else (mask == float("-inf")).all(-1, keepdim=True)
        mask = mask if mask is None or blind is None else mask.masked_fill(blind, 0.0)
        bias = total_bias(position, _scaled(q), pos_q, pos_k) if _is_biased(position) else None
        added = bias if mask is None else mask if bias is None else bias + mask
        if added is not None:
            added = added.to(q.dtype)
            if added.stride(-1) != 1:  # which no fused kernel of a GPU takes
                added = added.contiguous()
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=dropout_p)
        return out if blind is None else out.masked_fill(blind, 0.0)
    splits = position.holds("splits") and q.device.type == "cpu" and not kernels.is_traced()
    splits = splits and not is_recording() and not (causal and num_queries > num_keys)
    if splits and q.shape[:3].numel() * num_keys > BLOCK:
        return _attend_in_blocks(part, causal)
    return _attend_part(part, causal)


def check_call(
    q: Tensor, k: Tensor, v: Tensor, position: Representation, pos_q: Tensor, pos_k: Tensor
) -> None:
    """Raise a `ShapeshiftError` if heads or positions would broadcast, or be read beyond their
    end."""
    fits = q.ndim == k.ndim == v.ndim == 4 and k.shape == v.shape
    if not fits or q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise ShapeshiftError(
            "queries must be (B, H, Q, E), keys and values (B, H, K, E), got"
            f" {', '.join(map(describe, (q, k, v)))}; repeat the keys and values of grouped-query"
            " heads with repeat_interleave"
        )
    device = q.device.type
    casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    if not q.device == k.device == v.device:
        raise ShapeshiftError(
            "queries, keys and values must be on one device, got"
            f" {', '.join(str(x.device) for x in (q, k, v))}; move them with .to(q.device)"
        )
    if not q.dtype == k.dtype == v.dtype and not casts:
        raise ShapeshiftError(
            "queries, keys and values must have one dtype, got"
            f" {', '.join(map(describe, (q, k, v)))}; convert them with .to(q.dtype)"
        )
    check_heads(q, k, pos_q, pos_k)
    check_sizes(position, num_heads=q.shape[1], head_dim=q.shape[3])


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask to add to scores in `dtype`, see `attend`; else all scores would be cast."""
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))
    if not mask.is_floating_point():
        raise ShapeshiftError(
            "a mask must be boolean, true where attention is allowed, or a float that is added to"
            f" the scores, got {describe(mask)}; give mask.bool() if its ones are what is allowed"
        )
    mask = mask if mask.ndim > 1 else mask.view(1, -1)
    fits = torch.finfo(mask.dtype).max <= torch.finfo(dtype).max
    if fits and dtype != torch.float16:
        return mask.to(dtype)
    # A forbidding number such as the lowest of float32 would become -inf, and a row of it NaN. With
    # half of the range, it does not overflow when a bias is added either, which in float16 is near.
    limit = torch.finfo(dtype).max / 2
    return torch.where(mask.isinf(), mask, mask.clamp(-limit, limit)).to(dtype)


def _additive_for(mask: Tensor, q: Tensor, num_keys: int) -> Tensor:
    """As `additive`, for queries `(B, H, Q, E)`.

    Raises:
        ShapeshiftError: if the mask cannot be broadcast to `(B, H, Q, K)`, or is elsewhere.
    """
    wanted = *q.shape[:3], num_keys
    if mask.device != q.device:
        raise ShapeshiftError(
            f"a mask must be on the device of the heads, {q.device}, got {mask.device}; move it"
            " with .to(q.device)"
        )
    if not kernels.broadcasts(mask.shape, wanted):
        raise kernels.wrong_size("a mask", mask.shape, f"(B, H, Q, K) = {wanted}, or 1")
    return additive(mask, pairs.autocast_dtype(q))


def _attend_here(part: tuple[Any, ...], causal: bool, *, whole: bool = True) -> Tensor | None:
    """As `attend`, by `attend_rows`; None where that does not serve, for the `whole` or a block."""
    q, k, v, mask, position, pos_q, pos_k, dropout_p = part
    if mask is not None and mask.requires_grad:
        return None
    vectors = vectors_of(position, q, pos_q, pos_k)
    bias: Tensor | DistanceBias | None = None
    if vectors is None or (causal and q.shape[2] > k.shape[2]):  # some queries see no key
        return None
    if vectors[0] is None and _is_biased(position):
        bias = _bias_by_distance(position, q.dtype, pos_q, pos_k)
        if bias is None:
            if whole and k.shape[2] >= RECOMPUTED_FROM:  # a number for each pair: too much memory
                return None
            bias = total_bias(position, _scaled(q), pos_q, pos_k)
    return attend_rows((q, k, v), vectors, mask, dropout_p, bias=bias, causal=causal)


def _attend_part(part: tuple[Any, ...], causal: bool) -> Tensor:
    served = _attend_here(part, causal, whole=False)
    if served is not None:
        return served
    # A contiguous batch of B · H matrices; otherwise the product copies k slowly. In 32 bits, the
    # rows of a matrix may be apart, as in a cache.
    q, k, v = (
        x.contiguous() if x.itemsize == 2 else x.flatten(0, 1).view(x.shape) for x in part[:3]
    )
    mask = _with_triangle(part[3], q, k.shape[2]) if causal else part[3]
    return attend_with_probs(q, k, v, mask, *part[4:])[0]


class Diagonals(NamedTuple):
    """Vectors `(H|1, R, E)` of consecutive queries and keys, and which of them each pair has."""

    table: Tensor
    rows: kernels.Rows


Vectors = tuple[Diagonals | None, Diagonals | None]


class DistanceBias(NamedTuple):
    """A bias of consecutive queries and keys, `(H|1, Q + K − 1)`: that of query i and key j is
    `numbers[:, origin + j − i]`."""

    numbers: Tensor
    origin: int


def _bias_by_distance(
    position: Representation, dtype: torch.dtype, pos_q: Tensor, pos_k: Tensor
) -> DistanceBias | None:
    """Return the bias as numbers by distance, None if it cannot be."""
    if position.overrides("query_bias") or not position.overrides("bias_by_distance"):
        return None
    lag = common_lag(pos_q, pos_k)
    if lag is None:
        return None
    origin = pos_q.shape[1] - 1
    distances = torch.arange(-origin - lag, pos_k.shape[1] - lag, device=pos_q.device)
    numbers = position.bias_by_distance(distances, dtype=dtype)
    if numbers is None:
        return None
    if numbers.ndim != 2 or numbers.shape[1] != len(distances):
        raise ShapeshiftError(
            f"what bias_by_distance returns must be (H or 1, {len(distances)}), a number for each"
            f" distance, got {tuple(numbers.shape)}"
        )
    return DistanceBias(numbers.to(dtype), origin)


def vectors_of(position: Representation, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Vectors | None:
    """Return what a representation adds to keys and to values by distance, for `attend_rows`; None
    if that does not serve for the representation and queries `q`, of any shape."""
    if is_recording() or not kernels.serves(q):
        return None
    if not kernels.is_available(pairs.autocast_dtype(q)):
        return None
    tables = [x if x and x.vectors.ndim == 3 else None for x in known_tables(position)]
    lag = common_lag(pos_q, pos_k) if any(tables) else None
    keys, values = (None if x is None else _diagonals(x, lag) for x in tables)
    mixes = position.overrides("value_bias") and values is None
    return None if mixes else (keys, values)


def _diagonals(table: pairs.Table, lag: int | None) -> Diagonals | None:
    if lag is None:
        return None
    return Diagonals(table.vectors, kernels.Rows(table.vectors.shape[1], lag + table.low))


def tables_for_gpu(
    position: Representation, q: Tensor, num_keys: int, mask: Tensor | None, dropout_p: float
) -> tuple[pairs.Table | None, pairs.Table | None] | None:
    """Return the tables of `position` if `gpu.attend_by_tables` serves for them, else None."""
    compiling = torch.compiler.is_compiling() and kernels.compiles_for(q.device.type)
    if is_recording() or not (compiling or kernels.serves_on_gpu(q)):
        return None
    if dropout_p or q.shape[2] < 2 or q.dtype == torch.float64:
        return None
    if q.shape[3] not in (16, 32, 64, 128):
        return None
    if mask is not None and (mask.requires_grad or mask.shape[1:] != (1, 1, num_keys)):
        return None
    keys, values = tables = known_tables(position)
    found = [x for x in tables if x is not None]
    same = len({(x.low, x.vectors.shape[1]) for x in found}) == 1
    scores = keys is not None or not _is_biased(position)
    mixes = values is not None or not position.overrides("value_bias")
    fits = same and found[0].vectors.shape[1] <= MAX_ROWS
    return tables if scores and mixes and fits else None


def prefers_rows(
    position: Representation,
    projected: Sequence[Tensor],
    num_heads: int,
    pos_q: Tensor,
    pos_k: Tensor,
) -> tuple[Vectors, dict[str, Any]] | None:
    """Return the vectors, and `bias` and `turns` as keywords, with which `attend_rows` is the best
    way to attend with projections; None if it is not."""
    first = projected[0]
    how: dict[str, Any] = {}
    vectors = vectors_of(position, first, pos_q, pos_k)
    if vectors is None:
        return None
    if position.overrides("rotate"):
        q, k, _ = split_heads(projected, num_heads)
        turns = how["turns"] = known_turns(position, q, k, pos_q, pos_k)
        if turns is None or any(x.requires_grad for turn in turns for x in (turn.cos, turn.sin)):
            return None
    if vectors[0] is None and _is_biased(position):
        how["bias"] = _bias_by_distance(position, first.dtype, pos_q, pos_k)
        if how["bias"] is None:
            if position.overrides("query_bias") or pos_k.shape[-1] >= RECOMPUTED_FROM:
                return None
            how["bias"] = total([position("bias", pos_q, pos_k, dtype=first.dtype)])
    return vectors, how


def attend_rows(
    inputs: Sequence[Tensor],
    vectors: Vectors,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *,
    bias: Tensor | DistanceBias | None = None,
    causal: bool = False,
    num_heads: int = 0,
    spans: tuple[kernels.Spans, kernels.Spans] | None = None,
    turns: tuple[kernels.Turn, kernels.Turn] | None = None,
) -> Tensor:
    """Return the attention `(…, H · E)`, or of heads `(B, H, Q, E)`, computed by a kernel without
    tensors of scores.

    Args:
        inputs: heads `(B, H, Q|K, E)` of queries, keys and values; or projections of tokens
            `(B, Q|K, ·)`, with `spans` `(N, ·)`, concatenated in the last dimension: `[qkv]`,
            `[q, kv]` or `[q, k, v]`, with H · E channels each.
        vectors: what `vectors_of` returns.
        num_heads: H of projections.
        spans: which rows are a sentence, on the sides of the queries and of the keys. The result is
            zero for other rows.
        turns: how queries and keys rotate before.
        bias: added to the scaled scores, as `mask` is, which needs no gradient.
        mask, dropout_p, causal: as of `attend`.
    """
    inputs, origin = pairs.autocast_inputs(*inputs), 0
    mask = mask if mask is None else additive(mask, inputs[0].dtype)
    if isinstance(bias, DistanceBias):
        bias, origin = bias
    if any(vectors):
        vectors = _of_pairs(vectors, inputs, spans, causal)
    added = bias, *(x and x.table for x in vectors)
    wanted = torch.is_grad_enabled() and any(
        x.requires_grad for x in (*inputs, *added) if x is not None
    )
    how = mask, spans, causal, turns, origin
    call = num_heads, dropout_p, [x and x.rows for x in vectors], how, wanted
    out: Tensor = _Attention.apply(*call, *added, *inputs)  # type: ignore[no-untyped-call]
    if inputs[0].ndim == 4:
        return out.view(inputs[0].transpose(1, 2).shape).transpose(1, 2)
    return out


def _of_pairs(
    vectors: Vectors,
    inputs: Sequence[Tensor],
    spans: tuple[kernels.Spans, kernels.Spans] | None,
    causal: bool,
) -> Vectors:
    """Return the vectors without those of distances at which no query sees a key."""
    if spans is None:
        Q, K = inputs[0].shape[-2], inputs[-1].shape[-2]
        ahead = K - Q
    else:
        queries, keys = (span.size for span in spans)
        Q, K, ahead = (int(x.max()) for x in (queries, keys, keys - queries))
    ends = 1 - Q, ahead if causal else K - 1  # of j - i

    def shortened(x: Diagonals) -> Diagonals:
        num_rows, shift = x.rows
        first, last = (min(max(end - shift, 0), num_rows - 1) for end in ends)
        if (first, last) == (0, num_rows - 1):
            return x
        rows = kernels.Rows(last - first + 1, shift + first)
        return Diagonals(x.table[:, first : last + 1], rows)

    for_keys, for_values = (x and shortened(x) for x in vectors)
    return for_keys, for_values


def attend_with_probs(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """As `attend`, in plain steps; also return the probabilities `(B, H, Q, K)` after dropout,
    zeros for a query that may see no key."""
    check_call(q, k, v, position, pos_q, pos_k)
    if mask is not None:
        mask = _additive_for(mask, q, k.shape[2])
    q = _scaled(q)
    scores = q @ k.transpose(-1, -2)  # (B, H, Q, K)
    for added in (total_bias(position, q, pos_q, pos_k), mask):
        if added is not None:
            scores = _plus(scores, added)
    probs = dropout(_softmax(scores, masked=mask is not None), dropout_p, True).to(v.dtype)
    if is_recording() and (recorded := _recorded.get()) is not None:
        recorded.append(probs.detach())
    heads = probs @ v  # (B, H, Q, E)
    if position.overrides("value_bias"):
        check_numbers(position, q)
    value_bias = total([position("value_bias", probs, pos_q, pos_k)])
    return heads if value_bias is None else _plus(heads, value_bias), probs


def _softmax(scores: Tensor, *, masked: bool) -> Tensor:
    """Return the softmax, zeros where all scores of a query are -inf, if they are `masked`."""
    if not masked or not scores.shape[-1]:
        return scores.softmax(-1)
    blind = scores.detach().amax(-1, keepdim=True) == float("-inf")
    return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


def _plus(x: Tensor, added: Tensor) -> Tensor:
    """Return the sum, in place of `x` where possible: under vmap, `added` alone may be a batch."""
    return x + added if kernels.is_traced() else x.add_(added)


def causal_mask(
    num_queries: int, num_keys: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return `(Q, K)` to add to scores: `-inf` right of the query; the last query sees all keys."""
    mask = torch.full((num_queries, num_keys), float("-inf"), dtype=dtype, device=device)
    return mask.triu_(1 + num_keys - num_queries)


def _with_triangle(mask: Tensor | None, q: Tensor, num_keys: int) -> Tensor:
    triangle = causal_mask(q.shape[2], num_keys, q.dtype, q.device)
    return triangle if mask is None else mask + triangle


class _Attention(torch.autograd.Function):
    """See `attend_rows`."""

    @staticmethod
    def forward(
        ctx: Any,
        num_heads: int,
        dropout_p: float,
        rows: list[kernels.Rows | None],
        how: tuple[Any, ...],
        wanted: bool,
        bias: Tensor | None,
        keys: Tensor | None,
        values: Tensor | None,
        *inputs: Tensor,
    ) -> Tensor:
        heads, spans = split_heads(inputs, num_heads), how[1]
        B, H, Q, E = heads[0].shape
        attention = kernels.Attention(heads, (keys, values), rows, bias, *how)
        drawn = ctx.drawn = draw_seed(dropout_p)
        shape = (B, Q) if inputs[0].ndim == 4 else inputs[0].shape[:-1]
        keeps = wanted and attention.most_keys < RECOMPUTED_FROM
        saved = heads[0].new_empty(attention.num_pairs) if keeps else None

        out = heads[0].new_empty(*shape, H * E)
        attention.forward(split_heads((out,), H, 1)[0], drawn, saved)
        if spans is not None:
            out[int(spans[0].size.sum()) :] = 0
        ctx.num_heads, ctx.rows, ctx.how = H, rows, how
        ctx.bias_shape = None if bias is None else bias.shape
        ctx.save_for_backward(saved, bias, keys, values, *inputs)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, bias, keys, values, *inputs = ctx.saved_tensors
        H, spans = ctx.num_heads, ctx.how[1]
        if kernels.needs_steps(grad):
            run = partial(_in_steps, H, ctx.drawn, ctx.rows, *ctx.how)
            return *(None,) * 5, *kernels.differentiate(run, (bias, keys, values, *inputs), [grad])
        made = (keys, values), ctx.rows, bias, *ctx.how
        attention = kernels.Attention(split_heads(inputs, H), *made)
        grad = split_heads((grad.contiguous(),), H, 1)[0]
        grads = [torch.empty_like(x) for x in inputs]
        grads = [x if x.stride(-1) == 1 else x.contiguous() for x in grads]
        shape = ctx.bias_shape if ctx.needs_input_grad[5] else None
        added = attention.backward(grad, ctx.drawn, saved, split_heads(grads, H), shape)
        if spans is not None:
            for x, span in zip(grads, (spans[0], *spans[1:] * 2), strict=False):
                x[int(span.size.sum()) :] = 0
        return *(None,) * 5, *added, *grads


def _in_steps(
    num_heads: int,
    drawn: tuple[int, int, float],
    rows: Sequence[kernels.Rows | None],
    mask: Tensor | None,
    spans: tuple[kernels.Spans, kernels.Spans] | None,
    causal: bool,
    turns: tuple[kernels.Turn, kernels.Turn] | None,
    origin: int,
    bias: Tensor | None,
    *inputs: Tensor | None,
) -> Tensor:
    """As `_Attention.forward` of the same arguments, in steps of PyTorch, one sentence after the
    other."""
    keys, values, *given = inputs
    heads = split_heads([x for x in given if x is not None], num_heads)
    if spans is None:
        sentences = list(zip(*(torch.split(x, 1) for x in heads), strict=True))
    else:
        sides = [zip(x.first.tolist(), x.size.tolist(), strict=True) for x in (*spans, spans[1])]
        sentences = [
            tuple(x[:, :, first : first + n] for x, (first, n) in zip(heads, at, strict=True))
            for at in zip(*sides, strict=True)
        ]
    seed, threshold, scale = drawn
    num_pairs = [q.shape[1] * q.shape[2] * k.shape[2] for q, k, _ in sentences]
    kept = torch.split(numbers(sum(num_pairs), seed), num_pairs)
    outputs = []
    for b, sentence in enumerate(sentences):
        q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in sentence)
        (_, H, n, _), m = q.shape, k.shape[2]

        def own(x: Tensor, b: int = b) -> Tensor:
            return x[b : b + 1] if len(x) > 1 else x

        if turns is not None:
            by_side = [
                kernels.Turn(own(cos)[:, : x.shape[2]], own(sin)[:, : x.shape[2]], halves)
                for x, (cos, sin, halves) in zip((q, k), turns, strict=True)
            ]
            q, k = rotate(q, by_side[0]), rotate(k, by_side[1])
        q = _scaled(q)
        distances = torch.arange(m, device=q.device) - torch.arange(n, device=q.device)[:, None]
        by_table = [x and (distances - x.shift).clamp(0, x.num_rows - 1)[None] for x in rows]
        scores = q @ k.mT  # (1, H, n, m)
        if bias is not None and bias.ndim == 2:
            scores = scores + bias[:, distances + origin]
        for added in (None if bias is None or bias.ndim == 2 else bias, mask):
            if added is not None:
                scores = scores + own(added[(None,) * (4 - added.ndim)])[..., :n, :m]
        if keys is not None and by_table[0] is not None:
            scores = scores + pairs.query_bias(q, keys.to(q.dtype), by_table[0])
        if causal:
            scores = scores.masked_fill(distances > m - n, float("-inf"))
        probs = _softmax(scores, masked=True)
        if scale != 1:
            probs = probs * (kept[b].view(1, H, n, m) >= threshold) * scale
        out = probs @ v  # (1, H, n, E)
        if values is not None and by_table[1] is not None:
            out = out + pairs.value_bias(probs, values.to(q.dtype), by_table[1])
        outputs.append(out.transpose(1, 2).flatten(2).to(heads[0].dtype))  # (1, n, H · E)
    if spans is None:
        return torch.cat(outputs)
    out = torch.cat(outputs, dim=1)[0]
    return F.pad(out, (0, 0, 0, heads[0].shape[2] - len(out)))


def split_heads(rows: Sequence[Tensor], num_heads: int, num_parts: int = 3) -> list[Tensor]:
    """Return heads `(B, H, T, E)`, or `(1, H, N, E)`, of `num_parts` projections that are side by
    side in `rows`: all in one, or the first in one, and the others in one or each in its own."""
    if rows[0].ndim == 4:
        return list(rows)
    heads: list[Tensor] = []
    for n, x in enumerate(rows):
        count = num_parts - n if n + 1 == len(rows) else 1
        x = x.unsqueeze(0) if x.ndim == 2 else x
        parts = x.view(*x.shape[:2], count, num_heads, x.shape[2] // (count * num_heads))
        heads += [part.transpose(1, 2) for part in parts.unbind(2)]
    return heads


def _scaled(q: Tensor) -> Tensor:
    scaled: Tensor = q * q.shape[-1] ** -0.5
    return scaled


def prefers_fused(position: Representation, q: Tensor, num_keys: int, dropout_p: float) -> bool:
    """Return whether PyTorch's fused kernel serves and is faster; on other devices than a CPU it
    always is.

    On a CPU, with dropout or a bias that is trained, PyTorch computes in separate steps, which keep
    more memory than ours, and a fixed bias slows it down. For a single query, as in decoding, it
    saves calls.
    """
    if position.overrides("value_bias"):
        return False
    if q.device.type != "cpu":
        return True
    if dropout_p or _is_biased(position):
        return False
    if q.dtype == torch.float64 and torch.is_grad_enabled():  # it has no second derivative
        return False
    # Where it is compiled, there is one graph for all lengths.
    if torch.compiler.is_compiling() or q.shape[2] == 1:
        return True
    return num_keys >= FUSED_FROM.get(q.dtype, 0)


def attend_few(
    cache: Kept,
    heads: Sequence[Tensor],
    mask: Tensor | None,
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
) -> Tensor | None:
    """Return the attention `(B, Q, H, E)` of the few queries of a step of decoding, computed row by
    row; None where that does not serve.

    Args:
        cache: takes the keys and values of `heads`, and attends to all that it keeps.
        heads: queries, new keys and new values `(B, H, Q|K, E)`.
        mask, position, pos_q, pos_k: as of `attend`.
    """
    q, k, v = heads
    if is_recording() or q.shape[2] > FEW or pos_k.shape[1] > kernels.MAX_KEYS:
        return None
    shared = mask is None or mask.shape[1:3] == (1, 1)
    causal = q.shape[2] > 1 and mask is None
    if not shared or causal or q.shape[3] % kernels.LANES or not kernels.serves(q):
        return None
    bias = total_bias(position, _scaled(q), pos_q, pos_k) if _is_biased(position) else None
    if any(x is not None and x.requires_grad for x in (*heads, mask, bias)):
        return None
    mixes = position.overrides("value_bias")
    if mixes:
        check_numbers(position, q)
    out, probs = cache.attend(q, k, v, mask=mask, bias=bias, keeps=mixes)
    added = None if probs is None else total([position("value_bias", probs, pos_q, pos_k)])
    return out if added is None else out + added.transpose(1, 2)


def _is_biased(position: Representation) -> bool:
    return position.overrides("bias") or position.overrides("query_bias")


def _attend_in_blocks(part: tuple[Any, ...], causal: bool) -> Tensor:
    """As `_attend_part`, at most `BLOCK` scores at a time: of some sentences, or of some queries of
    one and the keys that they see. From `RECOMPUTED_FROM` keys on, no probabilities are kept.

    Heads are split, not sliced: the gradient of a split is one concatenation, that of slices is a
    sum over as many tensors of the full size.
    """
    q, k, v, mask, position, pos_q, pos_k, dropout_p = part
    (B, H, Q, _), K = q.shape, k.shape[2]
    mask = mask if mask is None else mask.expand(B, H, Q, K)
    num_sentences = max(1, BLOCK // (H * Q * K))
    num_queries = max(1, BLOCK // (num_sentences * H * K))
    run: Any = _attend_part
    if K >= RECOMPUTED_FROM and torch.is_grad_enabled():
        run = partial(checkpoint, run, use_reentrant=False, preserve_rng_state=dropout_p > 0)
    sentences = []
    heads = zip(*(torch.split(x, num_sentences) for x in (q, k, v)), strict=True)
    for n, (q_n, k_n, v_n) in enumerate(heads):
        at = slice(n * num_sentences, (n + 1) * num_sentences)
        pos_qn, pos_kn = (pos if len(pos) == 1 else pos[at] for pos in (pos_q, pos_k))
        outputs = []
        for m, few in enumerate(torch.split(q_n, num_queries, dim=2)):
            rows = slice(m * num_queries, (m + 1) * num_queries)
            seen = slice(K - max(0, Q - rows.stop) if causal else K)
            added = mask if mask is None else mask[at, :, rows, seen]
            block = few, k_n[:, :, seen], v_n[:, :, seen], added
            places = pos_qn[:, rows], pos_kn[:, seen]
            outputs.append(run((*block, position, *places, dropout_p), causal).transpose(1, 2))
        sentences.append(torch.cat(outputs, dim=1))
    return torch.cat(sentences).transpose(1, 2)  # (B, Q, H, E) in memory, which is wanted next
