"""The backend `flex`, FlexAttention: one fused kernel in which a function adds to each score, so
that a bias `(B, H, Q, K)` never exists in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from shapeshift.attention.call import Call
from shapeshift.positions import Representation
from shapeshift.positions.checks import as_positions
from shapeshift.positions.pairs import autocast_inputs

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""(score, sentence, head, query, key) -> score, see `torch.nn.attention.flex_attention`."""

BLOCK_SIZE = 128
"""Queries and keys of a block, FlexAttention's own unit: a block without a pair is skipped."""

FLEX_FROM = 1024
"""Queries and keys from which it is the better choice for a bias that is not learned, which takes
little memory for fewer, while FlexAttention takes a host some milliseconds."""

MOST_SCORES = 1 << 30
"""Scores above which a learned bias takes too much memory: FlexAttention adds up its gradient in
several times as long."""


def refuses(call: Call) -> str | None:
    position = call.position
    if not call.has_flex:
        return "it needs a GPU, with Triton"
    if not position.acts("bias") or position.acts("query_bias") or call.mixes:
        return "it adds a bias by distance to the scores, and nothing else"
    if not position.derives("bias"):
        return "bias is overridden or hooked, and it reads distance_bias alone"
    if call.traced and position.limits is None:
        return "in a compiled graph the kind needs limits, beyond which distances are clipped"
    if call.dropout_p:
        return "it has no dropout of attention; set the dropout to 0"
    if call.E < 16 or call.dtype == torch.float64:
        return f"its kernels take no heads of {call.E} channels in {call.dtype}"
    if torch.are_deterministic_algorithms_enabled():
        return "it is not deterministic, which torch.use_deterministic_algorithms asks for"
    if call.mask is not None and call.mask.requires_grad:
        return "the mask needs a gradient"
    # For few scores, PyTorch's other fused kernel is the better choice.
    if call.trains_position:
        if call.B * call.H * call.Q * call.K <= MOST_SCORES:
            return "a learned bias is faster as a tensor while it fits into memory, as here"
    elif min(call.Q, call.K) < FLEX_FROM:
        return f"with fewer than {FLEX_FROM} queries and keys a bias is faster as a tensor"
    return None


def run(call: Call) -> Tensor:
    q, k, v, mask = call.heads()
    added = score_mod(call.position, q, call.pos_q, call.pos_k)
    return call.finish(attend_flex(q, k, v, mask, added, causal=call.causal))


def score_mod(position: Representation, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> ScoreMod:
    """Return the `score_mod` that adds `distance_bias`, looked up by distance."""
    at_q, at_k = (as_positions(pos).expand(len(q), -1) for pos in (pos_q, pos_k))
    if position.limits is None:
        ends = at_k.min() - at_q.max(), at_k.max() - at_q.min()
        first, last = torch.stack(ends).tolist()  # waits for the GPU
    else:
        first, last = position.limits
    distances = torch.arange(first, last + 1, device=q.device)
    numbers = position.bias_at(distances, q.dtype).expand(q.shape[1], -1)  # (H, R)
    # Tensors, so that a compiled kernel accepts any value.
    low, high = (torch.full((), limit, device=q.device) for limit in (first, last))

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + numbers[h, (at_k[b, j] - at_q[b, i]).clamp(low, high) - low]

    return add


def attend_flex(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, score_mod: ScoreMod, *, causal: bool
) -> Tensor:
    """Return the attention output `(B, H, Q, E)` of heads `(B, H, Q|K, E)`, whose queries are not
    scaled, with the mask of `attend`; a query that may see no key gets zeros."""
    scale = q.shape[-1] ** -0.5
    q, k, v = autocast_inputs(q, k, v)
    (B, H, Q, _), K = q.shape, k.shape[2]
    total = score_mod
    if mask is not None:
        added = mask.expand(B, H, Q, K)

        def total(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score_mod(score, b, h, i, j) + added[b, h, i, j]

    compiled = q.device.type == "cuda" and not torch.compiler.is_compiling()
    run: Any = _compiled() if compiled else flex_attention
    out = run(q, k, v, score_mod=total, block_mask=_block_mask(q, k, mask, causal), scale=scale)
    assert isinstance(out, Tensor)
    return out


def _block_mask(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> BlockMask | None:
    """Return the blocks with at least one allowed pair, or None if all blocks have one, without a
    tensor of all pairs. Only a padding `mask (B|1, 1, 1, K)` counts here; other masks act through
    the scores."""
    (B, _, Q, _), K = q.shape, k.shape[2]
    by_key = None
    if mask is not None and mask.ndim == 4 and mask.shape[1:] == (1, 1, K):
        by_key = (mask[:, 0, 0] > float("-inf")).expand(B, K)
    if by_key is None and not causal:
        return None
    lag = torch.full((), K - Q, device=q.device)  # the last query sees all keys

    def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = j <= i + lag if causal else j >= 0
        return seen if by_key is None else seen & by_key[b, j]

    first_query = torch.arange(0, Q, BLOCK_SIZE, device=q.device)
    first_key = torch.arange(0, K, BLOCK_SIZE, device=q.device)
    last_query = (first_query + BLOCK_SIZE - 1).clamp(max=Q - 1)
    last_key = first_key + BLOCK_SIZE - 1
    # Blocks that reach over an end are never whole, for `allowed` has to be asked there.
    whole = (first_query + BLOCK_SIZE <= Q)[:, None] & (last_key < K)  # (Q blocks, K blocks)
    some = torch.ones_like(whole)
    if causal:
        some = first_key <= last_query[:, None] + lag
        whole = whole & (last_key <= first_query[:, None] + lag)
    some, whole = (x.expand(B, 1, *x.shape) for x in (some, whole))
    if by_key is not None:
        blocks = F.pad(by_key, (0, -K % BLOCK_SIZE)).view(B, 1, 1, -1, BLOCK_SIZE)
        some, whole = some & blocks.any(-1), whole & blocks.all(-1)
    return BlockMask.from_kv_blocks(
        *_ordered(some & ~whole),
        *_ordered(whole),
        BLOCK_SIZE=BLOCK_SIZE,
        mask_mod=allowed,
        seq_lengths=(Q, K),
    )


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of selected blocks in each row, and the block numbers, selected ones
    first."""
    counts = blocks.sum(-1, dtype=torch.int32)
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return counts, order.to(torch.int32)


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)
