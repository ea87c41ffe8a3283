"""The backend `reference`: the definition of attention, in plain steps of PyTorch. Every other
backend is compared with it.

With q, k, v the heads, rotated, and i, j a query and a key:

    e_ij = q_i k_j^T / sqrt(E) + bias_ij + query_bias_ij + mask_ij
    p_ij = softmax_j(score(e)_ij), then dropout
    z_i  = sum_j p_ij v_j + value_bias(p)_i

Edge cases, everywhere:

- A query that may see no key, because all of its scores are `-inf`, gets probabilities of zero, an
  output of zero plus `value_bias`, and no gradient comes from it.
- `causal`: query i sees the keys up to i + K - Q, so that the last query sees all.
- Scores are in the dtype of the products, under autocast in its dtype; the softmax sums in float32
  at least.
- Without keys (K = 0) the output is zero.
- Masks that do not fit, heads of several dtypes or devices, and positions that would broadcast are
  refused before, by `attention.checked`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention.call import Call, scaled
from shapeshift.attention.dropout import dropout
from shapeshift.attention.recording import record
from shapeshift.positions.base import check_numbers, total, total_bias


def refuses(call: Call) -> str | None:
    return None


def run(call: Call) -> Tensor:
    return call.finish(with_probabilities(call)[0])


def with_probabilities(call: Call) -> tuple[Tensor, Tensor]:
    """Return the output `(B, H, Q, E)`, and the probabilities `(B, H, Q, K)` after dropout."""
    q, k, v, mask = call.heads()
    position, at = call.position, (call.pos_q, call.pos_k)
    # A contiguous batch of B · H matrices; otherwise the product copies k slowly. In 32 bits, the
    # rows of a matrix may be apart, as in a cache.
    q, k, v = (
        x.contiguous() if x.itemsize == 2 else x.flatten(0, 1).view(x.shape) for x in (q, k, v)
    )
    q = scaled(q)

    def rescore(scores: Tensor) -> Tensor:
        check_numbers(position, q)
        rescored: Tensor = position("score", scores, q, k, call.state, *at)
        return rescored

    def mix(probs: Tensor) -> Tensor | None:
        if call.mixes:
            check_numbers(position, q)
        return total([position("value_bias", probs, *at)])

    out, probs = in_steps(
        *(q, k, v),
        (total_bias(position, q, *at), mask),
        causal=call.causal,
        drop=lambda probs: dropout(probs, call.dropout_p, True),
        mix=mix,
        rescore=rescore if call.rescores else None,
    )
    record(probs)
    return out, probs


def in_steps(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    biases: Sequence[Tensor | None],
    *,
    causal: bool,
    drop: Callable[[Tensor], Tensor] = lambda probs: probs,
    mix: Callable[[Tensor], Tensor | None] = lambda probs: None,
    rescore: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the output and the probabilities. Takes scaled queries, terms to add to the scores,
    dropout, and functions that return the term to add to the output for given probabilities, and
    what becomes of the scores before the softmax."""
    # Not `mT`, which the older exporter to ONNX lacks.
    scores = q @ k.transpose(-1, -2)  # (B, H, Q, K)
    if causal:
        triangle = causal_mask(q.shape[2], k.shape[2], scores.dtype, scores.device)
        biases = *biases, triangle
    for bias in biases:
        scores = scores if bias is None else _plus(scores, bias)
    scores = scores if rescore is None else rescore(scores)
    # Without a bias no query has only scores of -inf.
    has_bias = rescore is not None or any(x is not None for x in biases)
    probs = softmax(scores) if has_bias else scores.softmax(-1)
    probs = drop(probs).to(v.dtype)
    out, mixed = probs @ v, mix(probs)  # (B, H, Q, E)
    return out if mixed is None else _plus(out, mixed), probs


def softmax(scores: Tensor) -> Tensor:
    """Return the softmax, zeros where all scores of a query are -inf."""
    if not scores.shape[-1]:
        return scores
    blind = scores.detach().amax(-1, keepdim=True) == float("-inf")
    return scores.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


def _plus(x: Tensor, added: Tensor) -> Tensor:
    """Return x + added, in place if possible; under vmap, only `added` may be a batch."""
    return x + added if kernels.is_traced() else x.add_(added)


def causal_mask(
    num_queries: int, num_keys: int, dtype: torch.dtype, device: torch.device
) -> Tensor:
    """Return `(Q, K)` to add to scores: `-inf` right of the query; the last query sees all keys."""
    mask = torch.full((num_queries, num_keys), float("-inf"), dtype=dtype, device=device)
    return mask.triu_(1 + num_keys - num_queries)
