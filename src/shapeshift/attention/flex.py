"""FlexAttention: one fused kernel in which a function adds to each score, so that a bias
`(B, H, Q, K)` never exists in memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from shapeshift import kernels
from shapeshift.positions import Representation
from shapeshift.positions.base import ScoreMod
from shapeshift.positions.pairs import autocast_inputs

BLOCK_SIZE = 128
"""Queries and keys of a block, FlexAttention's own unit: a block without a pair is skipped."""

FLEX_FROM = 1024
"""Queries and keys from which it is the better choice for a bias that is not learned, which takes
little memory for fewer, while FlexAttention takes a host some milliseconds."""

MOST_SCORES = 1 << 30
"""Scores above which a learned bias takes too much memory: FlexAttention adds up its gradient in
several times as long."""


def prefers_flex(position: Representation, q: Tensor, num_keys: int, dropout_p: float) -> bool:
    """Return whether FlexAttention can serve and is the better choice.

    It has kernels for GPUs, without dropout, for up to 32 bits, and it adds up the gradient of a
    bias in no fixed order. For few scores, PyTorch's other fused kernel serves.
    """
    if q.device.type != "cuda" or not position.overrides("score_mod"):
        return False
    if any(x.requires_grad for x in position.parameters()):
        is_large = q.shape[:3].numel() * num_keys > MOST_SCORES
    else:
        is_large = min(q.shape[2], num_keys) >= FLEX_FROM
    return (
        is_large
        and not position.overrides("value_bias")
        and not dropout_p
        and q.shape[3] >= 16  # its kernels multiply tiles
        and q.dtype != torch.float64
        and not torch.are_deterministic_algorithms_enabled()
        and kernels.HAS_TRITON
    )


def attend_flex(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, score_mod: ScoreMod, *, causal: bool
) -> Tensor:
    """Return the attention output `(B, H, Q, E)`; a query that may see no key gets zeros.

    Args:
        q, k, v: heads `(B, H, Q|K, E)`; the queries are not scaled.
        mask: see `attend`.
        score_mod: see `Representation.score_mod`.
        causal: see `attend`.
    """
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
    """Return which blocks have a pair that is not forbidden, None where all have.

    Computed from blocks alone, without a tensor of all pairs. Of `mask`, only padding counts here,
    `(B|1, 1, 1, K)`; any other forbids by what it adds to the scores.
    """
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
    """Return how many blocks of each row there are, and the numbers of all, these first."""
    counts = blocks.sum(-1, dtype=torch.int32)
    order = blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return counts, order.to(torch.int32)


@cache
def _compiled() -> Any:
    return torch.compile(flex_attention, dynamic=True)
