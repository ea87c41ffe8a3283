"""The backend `blocked`: splits a long attention on a CPU into parts, each computed by `cpu` or
`reference`: some sentences, or some queries of one sentence with the keys that they see. From
`RECOMPUTED_FROM` keys on, no probabilities are kept for the gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from shapeshift.attention.call import Call

from . import cpu, reference

BLOCK = 1 << 22
"""Scores that are computed at a time: few enough for the cache of a CPU."""


def refuses(call: Call) -> str | None:
    if call.device != "cpu":
        return "it needs a CPU"
    if call.traced:
        return "a graph that is compiled or traced is not computed in parts"
    if call.causal and call.Q > call.K:
        return "some queries see no key"
    if call.opaque:
        return (
            f"{call.opaque[0]} is overridden or hooked, and may need all queries and keys at once"
        )
    if call.rescores and not call.causal:
        return "score may need all queries at once, unless attention is causal"
    if call.B * call.H * call.Q * call.K <= BLOCK:
        return "all scores fit into the cache of a CPU at once"
    return None


def run(call: Call) -> Tensor:
    q, k, v, mask = call.heads()
    (B, H, Q, _), K = q.shape, k.shape[2]
    pos_q, pos_k, state, p = call.pos_q, call.pos_k, call.state, call.dropout_p
    mask = mask if mask is None else mask.expand(B, H, Q, K)
    num_sentences = max(1, BLOCK // (H * Q * K))
    num_queries = max(1, BLOCK // (num_sentences * H * K))
    compute: Any = partial(_compute, position=call.position, dropout_p=p, causal=call.causal)
    if K >= cpu.RECOMPUTED_FROM and torch.is_grad_enabled():
        compute = partial(checkpoint, compute, use_reentrant=False, preserve_rng_state=p > 0)
    sentences = []
    # Split, not sliced: the gradient of a split is one concatenation, that of slices is a sum over
    # as many tensors of the full size.
    heads = zip(*(torch.split(x, num_sentences) for x in (q, k, v)), strict=True)
    for n, (q_n, k_n, v_n) in enumerate(heads):
        at = slice(n * num_sentences, (n + 1) * num_sentences)
        pos_qn, pos_kn = (pos if len(pos) == 1 else pos[at] for pos in (pos_q, pos_k))
        outputs = []
        for m, some in enumerate(torch.split(q_n, num_queries, dim=2)):
            rows = slice(m * num_queries, (m + 1) * num_queries)
            seen = slice(K - max(0, Q - rows.stop) if call.causal else K)
            added = mask if mask is None else mask[at, :, rows, seen]
            kept = state if state is None else state[at, seen]
            block = some, k_n[:, :, seen], v_n[:, :, seen], added, kept
            outputs.append(compute(*block, pos_qn[:, rows], pos_kn[:, seen]))
        sentences.append(torch.cat(outputs, dim=1))
    return call.finish(torch.cat(sentences).transpose(1, 2))


def _compute(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    state: Tensor | None,
    pos_q: Tensor,
    pos_k: Tensor,
    **rest: Any,
) -> Tensor:
    rest |= {"pos_q": pos_q, "pos_k": pos_k, "mask": mask, "state": state}
    block = Call((q, k, v), rotated=True, is_block=True, **rest)
    steps = block.rescores or block.widens or cpu.refuses(block)
    return reference.run(block) if steps else cpu.run(block)
