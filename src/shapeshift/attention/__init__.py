"""Scaled dot-product attention with whatever a position representation adds, on every device."""

from .backends import attend, attend_with_probs, causal_mask, prefers_few, recording

__all__ = ["attend", "attend_with_probs", "causal_mask", "prefers_few", "recording"]
