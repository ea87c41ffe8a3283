"""What the items of the NHK paper share: the two readings of ORIGINAL."""

from __future__ import annotations

ORIGINALS = ("original-qkv", "original-embedding")
"""The two readings of ORIGINAL, which section 3.2 describes as "applying a PE to Q, K, and V" with
"the same structure as that in the original transformer model": positions added to Q, K and V of
self-attention, or to the embeddings. Only in the second does the residual stream, and so
cross-attention, have positions. Each claim about ORIGINAL is judged for both."""

READINGS = (
    "ORIGINAL-QKV and ORIGINAL-EMBEDDING: the two readings of the paper's ORIGINAL: positions added"
    " to Q, K and V of self-attention, or to the embeddings as in Vaswani et al. 2017"
)
"""A note for tables with both."""
