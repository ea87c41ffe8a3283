"""Scaled dot-product attention with whatever a position representation adds, on every device."""

from .backends import (
    ANY_SHAPE,
    attend,
    attend_few,
    attend_with_probs,
    causal_mask,
    recording,
)

__all__ = [
    "ANY_SHAPE",
    "attend",
    "attend_few",
    "attend_with_probs",
    "causal_mask",
    "recording",
]
