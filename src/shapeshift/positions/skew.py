"""Relative positions as in the Music Transformer (Huang et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from .base import Representation
from .relative import Clip, key_bias, key_scores


class Skew(Representation):
    """Vectors r for the clipped distance between two tokens, on the key side only (Huang et al.
    2019, sections 3.3 and 3.4).

        e_ij = (q_i k_j^T + S_ij) / sqrt(E),  S_ij = q_i r_ij^T,  r_ij = E_r[clip(j - i, k)]
        clip(x, k) = max(-k, min(k, x))

    This is Shaw et al. (2018) without a^V and with a table for each head. Neither needs the
    n × n × E tensor r_ij: queries meet the table once, and the products go to their places.

    Differs from the paper in how they get there: the paper skews the (Q, R) products by padding
    and reshaping, which needs positions without gaps; here they are gathered by the positions that
    are given. The result is the same. The paper's model is a decoder alone; an encoder's table has
    rows for keys on the right, too.

    Args:
        num_heads: H.
        head_dim: E.
        max_distance: k, the clipping distance; 0 leaves one row, which says nothing of position.
            The paper sets it by the length of its sequences: far enough to clip few pairs.
        per_head: a table for each head, as the paper; else one for all heads of a layer.
        causal: keys never stand right of the query, so the rows for j > i are left out.

    Raises:
        ShapeshiftError: if k is negative.
    """

    places = ("self",)
    shift_invariant = splits = True

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        *,
        max_distance: int = 64,
        per_head: bool = True,
        causal: bool = False,
    ):
        super().__init__()
        if max_distance < 0:
            raise ShapeshiftError(f"max_distance must not be negative, got {max_distance}")
        self.num_heads, self.head_dim = num_heads, head_dim
        self.clip = Clip(max_distance, causal)
        self.causal_only = causal
        num_tables = num_heads if per_head else 1
        self.keys = nn.Parameter(torch.empty(num_tables, self.clip.num_rows, head_dim))
        nn.init.normal_(self.keys, std=head_dim**-0.5)  # |r| is near 1 whatever R is

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return key_bias(q, self.keys, self.clip, pos_q, pos_k)

    def scores(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return key_scores(q, k, self.keys, self.clip, pos_q, pos_k)

    def extra_repr(self) -> str:
        num_tables, num_rows, _ = self.keys.shape
        return f"max_distance={self.clip.max_distance}, tables={num_tables}×{num_rows}"
