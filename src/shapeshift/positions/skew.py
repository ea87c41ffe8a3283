"""Relative positions as in the Music Transformer (Huang et al. 2019)."""

from __future__ import annotations

from torch import Tensor

from .shaw import Shaw


class Skew(Shaw):
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

    def __init__(
        self,
        *,
        num_heads: int,
        head_dim: int,
        max_distance: int = 64,
        per_head: bool = True,
        causal: bool = False,
    ):
        super().__init__(
            num_heads=num_heads,
            head_dim=head_dim,
            max_distance=max_distance,
            add_to="keys",
            per_head=per_head,
            causal=causal,
        )

    def initialize(self, table: Tensor) -> None:
        table.normal_(std=table.shape[-1] ** -0.5)  # |r| is near 1 whatever R is
