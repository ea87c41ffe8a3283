"""Scaled dot-product attention with whatever a position representation adds, on every device."""

from .backends import (
    attend,
    attend_rows,
    attend_with_probs,
    causal_mask,
    prefers_few,
    prefers_rows,
    recording,
    split_heads,
)

__all__ = [
    "attend",
    "attend_rows",
    "attend_with_probs",
    "causal_mask",
    "prefers_few",
    "prefers_rows",
    "recording",
    "split_heads",
]
