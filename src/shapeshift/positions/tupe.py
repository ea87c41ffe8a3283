"""Untied absolute positions, TUPE-A (Ke et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError

from .base import Representation
from .learned import Learned


class TUPE(Representation):
    """Compares positions with positions and words with words, with separate projections (Ke et al.
    2021, section 3.1).

        e_ij = (x_i W^Q) (x_j W^K)^T / sqrt(2E) + (p_i U^Q) (p_j U^K)^T / sqrt(2E)

    W and U differ in each head; U and the vectors p are the same in all layers. Together with a
    part of kind `t5` at the same place, whose bias is not scaled, this becomes the paper's TUPE-R.
    Parts that read the queries (`shaw`, `skew`) get them divided by sqrt(2).

    In cross-attention, p_i is the vector of the target position and p_j the vector of the source
    position, both from one table; U^Q and U^K learn which source positions correspond to which
    target positions. The paper has self-attention only.

    Differs from the paper: translation has no `[CLS]`, so that no position is reset (section 3.2).
    The released code also applies a LayerNorm to p and adds biases to the projections, which are
    not in the equation. Here the vectors start with variance 1 instead, as after the LayerNorm.

    Compares positions and words separately, with separate projections. It was proposed for pre-
    training of encoders such as BERT: choose it there.

    Args:
        dim: D.
        num_heads: H.
        num_positions: rows of p; positions 0 … num_positions − 1.

    Raises:
        ShapeshiftError: if D is not a multiple of H; in `bias`, if a position is outside the table.
    """

    places = ("self", "cross")
    share_layers = True  # as in the paper
    position_free_heads = True

    def __init__(self, *, dim: int, num_heads: int, num_positions: int = 1024):
        super().__init__()
        if dim % num_heads:
            raise ShapeshiftError(f"dim must be a multiple of num_heads, got {dim} and {num_heads}")
        self.dim, self.num_heads, self.num_positions = dim, num_heads, num_positions
        self.vectors = Learned(dim=dim, num_positions=num_positions)
        with torch.no_grad():
            self.vectors.weight.mul_(dim**0.5)  # of variance 1
        self.query = nn.Parameter(torch.empty(dim, dim))  # U^Q of all heads, side by side
        self.key = nn.Parameter(torch.empty(dim, dim))  # U^K
        for weight in (self.query, self.key):
            nn.init.xavier_uniform_(weight)

    def max_position(self) -> int:
        return self.vectors.max_position()

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        return q * 0.5**0.5, k  # attention divides by sqrt(E), which makes sqrt(2E)

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        scale: float = (2 * self.dim // self.num_heads) ** -0.5
        at_q = self._project(pos_q, self.query) * scale
        at_k = self._project(pos_k, self.key)
        return (at_q @ at_k.transpose(-1, -2)).to(dtype)  # (B|1, H, Q, K)

    def _project(self, pos: Tensor, weight: Tensor) -> Tensor:
        projected: Tensor = self.vectors("encode", pos, weight) @ weight  # (B|1, T, D)
        head_dim = projected.shape[-1] // self.num_heads
        by_head = projected.view(*pos.shape, self.num_heads, head_dim)
        return by_head.transpose(1, 2)  # (B|1, H, T, E)
