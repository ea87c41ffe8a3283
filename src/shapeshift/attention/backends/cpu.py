"""The backend `cpu`: a kernel in C for whole sentences, without tensors of scores
(`kernels/attention.c`)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from shapeshift import kernels
from shapeshift.attention.call import Call, scaled, split_heads
from shapeshift.attention.dropout import draw_seed, numbers
from shapeshift.attention.masks import additive
from shapeshift.attention.packing import Spans
from shapeshift.kernels.attention import SentenceAttention
from shapeshift.positions import pairs
from shapeshift.positions.base import total, total_bias
from shapeshift.positions.pairs import Table
from shapeshift.positions.relative import distances
from shapeshift.positions.turns import Turn, rotate

from .reference import in_steps

RECOMPUTED_FROM = 512
"""Keys from which probabilities are computed again in the backward pass, in place of being kept."""

_PAIRS = 1 << 22  # scores that exist at a time in steps of PyTorch

SCORING = "bias", "query_bias"
"""The hooks that add to scores."""

Vectors = tuple[Table | None, Table | None]
"""Of keys and of values."""


def refuses(call: Call) -> str | None:
    if call.device != "cpu":
        return "it needs a CPU"
    if call.traced:
        return "torch.compile, a trace or torch.func has to see each step"
    if not call.has_kernels:
        return f"there is no compiled kernel for {call.dtype}, or tensors are empty or wrapped"
    if call.mask is not None and call.mask.requires_grad:
        return "the mask needs a gradient"
    if call.causal and call.Q > call.K:
        return "some queries see no key"
    plain = not (call.biased or call.mixes or call.dropout_p or call.wants_gradients)
    if call.Q == 1 and plain:
        return "for a single query sdpa is faster"
    if call.mixes and ("value_bias" in call.opaque or call.lag is None):
        return "value_bias is overridden or hooked, or positions are not consecutive"
    many = call.K >= RECOMPUTED_FROM and not call.is_block
    if many and not {*call.opaque} & {*SCORING} and _needs_pairs(call):
        return "a bias with a number for each pair takes too much memory for so many keys"
    return None


def run(call: Call) -> Tensor:
    position, packing = call.position, call.packing
    by_pair, by_query, turns = _needs_pairs(call), position.acts("query_bias"), _turns(call)
    # The kernel takes projections as they are, unless a hook has to be called with heads.
    hooked = call.rotates and turns is None
    if hooked or call.cache is not None or (by_pair and by_query):
        *inputs, mask = call.heads()
        packing, turns, spans = None, None, None
    else:
        inputs, mask = list(call.inputs), None if packing else call.mask
        spans = (packing[0].spans, packing[1].spans) if packing else None
    bias: Tensor | Table | None = None
    vectors: Vectors = (None, None)
    if call.mixes or (by_query and not by_pair):
        keys, values = (_by_index(x, call) for x in position.distance_vectors())
        vectors = None if by_pair else keys, values
    if by_pair and by_query:
        bias = total_bias(position, scaled(inputs[0]), call.pos_q, call.pos_k)
    elif by_pair:
        bias = total([position("bias", call.pos_q, call.pos_k, dtype=inputs[0].dtype)])
    elif position.acts("bias"):
        dtype, steps = inputs[0].dtype, torch.arange(1 - call.Q, call.K, device="cpu")
        bias = Table(position.bias_at(steps - _lag(call), dtype).to(dtype), 1 - call.Q)
    options: dict[str, Any] = {"bias": bias, "causal": call.causal, "turns": turns, "spans": spans}
    out = attend_rows(inputs, vectors, mask, call.dropout_p, num_heads=call.H, **options)
    if inputs[0].ndim == 4:
        return call.finish(out)
    return out.view(*out.shape[:-1], call.H, call.E)


def _needs_pairs(call: Call) -> bool:
    """Return whether the bias needs a number for each pair of query and key."""
    position = call.position
    hooks = [hook for hook in SCORING if position.acts(hook)]
    if not hooks:
        return False
    return len(hooks) > 1 or hooks[0] in call.opaque or call.lag is None


def _turns(call: Call) -> tuple[Turn, Turn] | None:
    """Return the rotation that the kernel applies to heads, or None if it cannot."""
    if not call.rotates or not call.position.derives("rotate"):
        return None
    q, k, _ = split_heads(call.inputs, call.H)
    turns = call.position.turns(q, k, call.pos_q, call.pos_new)
    for turn in turns:
        if turn.cos.requires_grad or turn.sin.requires_grad:
            return None
        if turn.scale != 1 and 2 * turn.cos.shape[-1] < call.E:  # a factor of all channels
            return None
    return turns


def _lag(call: Call) -> int:
    assert call.lag is not None  # else `_needs_pairs`
    return call.lag


def _by_index(table: Table | None, call: Call) -> Table | None:
    """Return a table by the distance of two positions as one by that of their indices."""
    return table and table._replace(low=table.low + _lag(call))


def attend_rows(
    inputs: Sequence[Tensor],
    vectors: Vectors,
    mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *,
    bias: Tensor | Table | None = None,
    causal: bool = False,
    num_heads: int = 0,
    spans: tuple[Spans, Spans] | None = None,
    turns: tuple[Turn, Turn] | None = None,
) -> Tensor:
    """Return the attention `(…, H · E)`, or of heads `(B, H, Q, E)`, computed by a kernel without
    tensors of scores.

    Args:
        inputs: as of `Call`; projections are packed if there are `spans`.
        vectors: by the distance j − i of indices, added to keys and to values.
        num_heads: H of projections.
        spans: which rows are a sentence, on the sides of the queries and of the keys. The result is
            zero for other rows.
        turns: how queries and keys rotate before.
        bias: added to the scaled scores, as `mask` is, which needs no gradient; or a table of
            numbers by distance.
        mask, dropout_p, causal: as of `attend`.
    """
    inputs, origin = pairs.autocast_inputs(*inputs), 0
    mask = mask if mask is None else additive(mask, inputs[0].dtype)
    if isinstance(bias, Table):
        origin, bias = -bias.low, bias.vectors
    if any(vectors):
        vectors = _of_pairs(vectors, inputs, spans, causal)
    added = bias, *(x and x.vectors for x in vectors)
    wanted = torch.is_grad_enabled() and any(
        x.requires_grad for x in (*inputs, *added) if x is not None
    )
    options = mask, spans, causal, turns, origin
    call = num_heads, dropout_p, [x.low if x else 0 for x in vectors], options, wanted
    out: Tensor = _Attention.apply(*call, *added, *inputs)  # type: ignore[no-untyped-call]
    if inputs[0].ndim == 4:
        return out.view(inputs[0].transpose(1, 2).shape).transpose(1, 2)
    return out


def _of_pairs(
    vectors: Vectors, inputs: Sequence[Tensor], spans: tuple[Spans, Spans] | None, causal: bool
) -> Vectors:
    """Return the vectors of distances at which some query sees a key."""
    if spans is None:
        Q, K = inputs[0].shape[-2], inputs[-1].shape[-2]
        ahead = K - Q
    else:
        queries, keys = (span.size for span in spans)
        Q, K, ahead = (int(x.max()) for x in (queries, keys, keys - queries))
    ends = 1 - Q, ahead if causal else K - 1  # of j - i

    def shortened(x: Table) -> Table:
        rows = range(x.vectors.shape[1])
        first, last = (min(max(end - x.low, 0), rows[-1]) for end in ends)
        if (first, last) == (0, rows[-1]):
            return x
        return Table(x.vectors[:, first : last + 1], x.low + first)

    for_keys, for_values = (x and shortened(x) for x in vectors)
    return for_keys, for_values


class _Attention(torch.autograd.Function):
    """See `attend_rows`."""

    @staticmethod
    def forward(
        ctx: Any,
        num_heads: int,
        dropout_p: float,
        lows: list[int],
        options: tuple[Any, ...],
        wanted: bool,
        bias: Tensor | None,
        keys: Tensor | None,
        values: Tensor | None,
        *inputs: Tensor,
    ) -> Tensor:
        heads, spans = split_heads(inputs, num_heads), options[1]
        B, H, Q, E = heads[0].shape
        attention = SentenceAttention(heads, (keys, values), lows, bias, *options)
        drawn = ctx.drawn = draw_seed(dropout_p)
        shape = (B, Q) if inputs[0].ndim == 4 else inputs[0].shape[:-1]
        keeps = wanted and attention.most_keys < RECOMPUTED_FROM
        saved = heads[0].new_empty(attention.num_pairs) if keeps else None

        out = heads[0].new_empty(*shape, H * E)
        try:
            attention.forward(split_heads((out,), H, 1)[0], drawn, saved)
            if spans is not None:
                out[int(spans[0].size.sum()) :] = 0
        except MemoryError:
            saved, tensors = None, (bias, keys, values, *inputs)
            with torch.autocast("cpu", enabled=False):
                out = _in_steps(num_heads, drawn, lows, *options, *tensors)
        ctx.num_heads, ctx.lows, ctx.options = H, lows, options
        ctx.bias_shape = None if bias is None else bias.shape
        ctx.save_for_backward(saved, bias, keys, values, *inputs)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, bias, keys, values, *inputs = ctx.saved_tensors
        H, spans = ctx.num_heads, ctx.options[1]
        if not kernels.needs_steps(grad):
            made = (keys, values), ctx.lows, bias, *ctx.options
            attention = SentenceAttention(split_heads(inputs, H), *made)
            by_head = split_heads((grad.contiguous(),), H, 1)[0]
            grads = [torch.empty_like(x) for x in inputs]
            grads = [x if x.stride(-1) == 1 else x.contiguous() for x in grads]
            shape = ctx.bias_shape if ctx.needs_input_grad[5] else None
            with suppress(MemoryError):
                added = attention.backward(by_head, ctx.drawn, saved, split_heads(grads, H), shape)
                if spans is not None:
                    for x, span in zip(grads, (spans[0], *spans[1:] * 2), strict=False):
                        x[int(span.size.sum()) :] = 0
                return *(None,) * 5, *added, *grads
        run = partial(_in_steps, H, ctx.drawn, ctx.lows, *ctx.options)
        return *(None,) * 5, *kernels.differentiate(run, (bias, keys, values, *inputs), [grad])


def _in_steps(
    num_heads: int,
    drawn: tuple[int, int, float],
    lows: Sequence[int],
    mask: Tensor | None,
    spans: tuple[Spans, Spans] | None,
    causal: bool,
    turns: tuple[Turn, Turn] | None,
    origin: int,
    bias: Tensor | None,
    *inputs: Tensor | None,
) -> Tensor:
    """As `_Attention.forward` of the same arguments, in steps of PyTorch, a sentence and some
    queries at a time: for gradients of gradients, and where the kernel has too little memory."""
    vectors, given = inputs[:2], [x for x in inputs[2:] if x is not None]
    keys, values = (None if x is None else Table(x, n) for x, n in zip(vectors, lows, strict=True))
    heads = split_heads(given, num_heads)
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
    drawn_numbers = torch.split(numbers(sum(num_pairs), seed), num_pairs) if scale != 1 else None
    by_distance, by_pair = (bias, None) if bias is not None and bias.ndim == 2 else (None, bias)
    outputs = []
    for b, sentence in enumerate(sentences):
        whole, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in sentence)
        (_, H, n, _), m = whole.shape, k.shape[2]

        def own(x: Tensor, b: int = b) -> Tensor:
            return x[b : b + 1] if len(x) > 1 else x

        if turns is not None:
            whole, k = (
                rotate(x, Turn(own(cos)[:, : x.shape[2]], own(sin)[:, : x.shape[2]], halves))
                for x, (cos, sin, halves, *_) in zip((whole, k), turns, strict=True)
            )
        count = max(1, _PAIRS // (H * max(m, 1)))
        for step, q in enumerate(torch.split(scaled(whole), count, 2)):
            at = slice(step * count, step * count + q.shape[2])
            seen = slice(m - max(0, n - at.stop) if causal else m)
            i, j = (torch.arange(x, device=q.device)[None] for x in (n, m))
            i, j = i[:, at], j[:, seen]
            biases = [
                own(x[(None,) * (4 - x.ndim)])[..., :n, :m].expand(-1, -1, n, m)[..., at, seen]
                for x in (by_pair, mask)
                if x is not None
            ]
            if by_distance is not None:
                biases.append(by_distance[:, distances(i, j)[0] + origin])
            if keys is not None:
                biases.append(pairs.query_bias(q, keys.vectors.to(q.dtype), keys.rows(i, j)))
            how: dict[str, Any] = {}
            if drawn_numbers is not None:
                draws = drawn_numbers[b].view(1, H, n, m)[:, :, at, seen]
                how["drop"] = ((draws >= threshold) * scale).mul
            if values is not None:
                table = values.vectors.to(v.dtype)
                how["mix"] = partial(pairs.value_bias, table=table, rows=values.rows(i, j))
            out, _ = in_steps(q, k[:, :, seen], v[:, :, seen], biases, causal=causal, **how)
            outputs.append(out.transpose(1, 2).flatten(2).to(heads[0].dtype))  # (1, n, H · E)
    if spans is None:
        return torch.cat(outputs, dim=1).view(len(heads[0]), heads[0].shape[2], -1)
    out = torch.cat(outputs, dim=1)[0]
    return F.pad(out, (0, 0, 0, heads[0].shape[2] - len(out)))
