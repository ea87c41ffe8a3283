"""Relative positions as in the Music Transformer (Huang et al. 2019)."""

from __future__ import annotations

from torch import Tensor

from .shaw import Shaw


class Skew(Shaw):
    """Vectors r for the clipped distance between two tokens, on the key side only (Huang et al.
    2019, sections 3.3 and 3.4).

        e_ij = (q_i k_j^T + S_ij) / sqrt(E),  S_ij = q_i r_ij^T,  r_ij = E_r[clip(j - i, k)]
        clip(x, k) = max(-k, min(k, x))

    This is Shaw et al. (2018) without a^V and with a table for each head. The n × n × E tensor r_ij
    is never built: queries are multiplied with the table once, and the products are gathered.

    Differs from the paper in the gathering: the paper skews the (Q, R) products by padding and
    reshaping, which needs positions without gaps; here the products are gathered by position. The
    result is the same. The paper's model has only a decoder; an encoder's table also has rows for
    keys on the right.

    Args:
        num_heads: H.
        head_dim: E.
        max_distance: k, the clipping distance; 0 leaves one row, without position information.
            The paper chooses it by the length of its sequences, so that few pairs are clipped.
        per_head: use a table for each head, as in the paper, or one for all heads of a layer.
        causal: attention is causal, so the rows for j > i are left out.

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
        table.normal_(std=table.shape[-1] ** -0.5)  # |r| is near 1 for any R
