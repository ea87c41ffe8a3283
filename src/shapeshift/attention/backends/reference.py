"""The backend `reference`: the definition of attention, in plain steps of PyTorch. Every other
backend is compared with it.

With q, k, v the heads, rotated, and i, j a query and a key:

    e_ij = q_i k_j^T / sqrt(E) + bias_ij + query_bias_ij + mask_ij
    p_ij = softmax_j(e_ij), then dropout
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
    # A contiguous batch of B · H matrices; otherwise the product copies k slowly. In 32 bits, the
    # rows of a matrix may be apart, as in a cache.
    q, k, v = (
        x.contiguous() if x.itemsize == 2 else x.flatten(0, 1).view(x.shape) for x in (q, k, v)
    )
    position, pos_q, pos_k = call.position, call.pos_q, call.pos_k
    q = scaled(q)
    scores = q @ k.mT  # (B, H, Q, K)
    for bias in (total_bias(position, q, pos_q, pos_k), mask):
        scores = scores if bias is None else _plus(scores, bias)
    if call.causal:
        scores = _plus(scores, causal_mask(call.Q, k.shape[2], scores.dtype, scores.device))
    probs = softmax(scores, masked=mask is not None or call.causal)
    probs = dropout(probs, call.dropout_p, True).to(v.dtype)
    record(probs)
    out = probs @ v  # (B, H, Q, E)
    if call.mixes:
        check_numbers(position, q)
        mixed = total([position("value_bias", probs, pos_q, pos_k)])
        out = out if mixed is None else _plus(out, mixed)
    return out, probs


def softmax(scores: Tensor, *, masked: bool) -> Tensor:
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
