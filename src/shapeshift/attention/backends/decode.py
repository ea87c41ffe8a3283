"""The backend `decode`: the few queries of a decoding step on a CPU. It reads keys and values
directly from the cache, row by row (`kernels/decoding.c`)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from shapeshift import kernels
from shapeshift.attention.call import Call, scaled
from shapeshift.positions.base import check_numbers, total, total_bias

MOST_QUERIES = 16
"""Queries of a row for which it is the faster one: to a source, one for each beam."""


def refuses(call: Call) -> str | None:
    if call.cache is None:
        return "it is for decoding with a cache"
    if not hasattr(call.cache, "attend"):
        return "the cache is one with a fixed size, as on a GPU"
    if call.device != "cpu":
        return "it needs a CPU"
    if call.dropout_p or call.wants_gradients:
        return "it has no dropout and no gradients; use eval() and torch.no_grad()"
    if call.Q > MOST_QUERIES or call.K > kernels.MAX_KEYS:
        return f"there are more than {MOST_QUERIES} queries or {kernels.MAX_KEYS} keys"
    if call.causal:
        return "there are several queries, which see different keys"
    if call.mask is not None and call.mask.shape[1:3] != (1, 1):
        return "the mask is more than one number for each key"
    if call.E % kernels.LANES or not call.has_kernels:
        return f"there is no compiled kernel for heads of {call.E} channels in {call.dtype}"
    return None


def run(call: Call) -> Tensor:
    position, pos_q, pos_k = call.position, call.pos_q, call.pos_k
    q, k, v = call.rotated()
    bias = total_bias(position, scaled(q), pos_q, pos_k) if call.biased else None
    if call.mixes:
        check_numbers(position, q)
    cache: Any = call.cache
    out: Tensor  # (B, Q, H, E)
    out, probs = cache.attend(q, k, v, mask=call.mask, bias=bias, keeps=call.mixes)
    mixed = None if probs is None else total([position("value_bias", probs, pos_q, pos_k)])
    return out if mixed is None else out + mixed.transpose(1, 2)
