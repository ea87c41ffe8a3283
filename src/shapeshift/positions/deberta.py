"""Disentangled attention as in DeBERTa (He et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from . import pairs
from .base import Representation
from .checks import whole_number


class DeBERTa(Representation):
    """Compares words with words, words with distances, and distances with words (He et al. 2021,
    section 3.1, equations 2 to 4).

        e_ij = (q_i k_j^T + q_i (P_δ(i,j) W^K)^T + k_j (P_δ(j,i) W^Q)^T) / sqrt(3E)
        δ(i, j) = min(max(i - j + k, 0), 2k - 1),  k = max_distance

    P has a trained vector of D channels for each clipped distance; W^K and W^Q project it to the
    heads.

    Differs from the released code, in which δ(i, j) stands in the last term, too. In the paper, all
    layers share P and have their own W^K and W^Q; here each layer has its own P as well, or all
    share everything. Vectors in P start with variance 1. Parts that read the queries (`shaw`,
    `skew`) get them divided by sqrt(3).

    Compares words and distances separately, with separate projections. It was proposed for the
    pre-training of encoders: choose it there. It takes memory for all pairs of tokens.

    Args:
        dim: D.
        num_heads: H.
        head_dim: E.
        max_distance: k; 512 in the paper.

    Raises:
        ShapeshiftError: if there is no distance.
    """

    places = ("self",)
    shift_invariant = position_free_heads = True

    def __init__(self, *, dim: int, num_heads: int, head_dim: int, max_distance: int = 512):
        super().__init__()
        self.dim, self.num_heads, self.head_dim = dim, num_heads, head_dim
        self.max_distance = whole_number("max_distance", max_distance, 1)
        self.vectors = nn.Parameter(torch.randn(2 * max_distance, dim))  # P
        self.key = nn.Parameter(torch.empty(dim, num_heads * head_dim))  # W^K of all heads
        self.query = nn.Parameter(torch.empty(dim, num_heads * head_dim))  # W^Q
        for weight in (self.key, self.query):
            nn.init.xavier_uniform_(weight)

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        return q * 3**-0.5, k  # attention divides by sqrt(E), which makes sqrt(3E)

    def score(
        self,
        scores: Tensor,
        q: Tensor,
        k: Tensor,
        state: Tensor | None,
        pos_q: Tensor,
        pos_k: Tensor,
    ) -> Tensor:
        scale: float = (3 * self.head_dim) ** -0.5
        # Rows by j - i: δ(i, j) falls with it, δ(j, i) rises.
        keys = pairs.Table(self._project(self.key).flip(1), 1 - self.max_distance)
        queries = pairs.Table(self._project(self.query) * scale, -self.max_distance)
        to_position = pairs.query_bias(q, keys.vectors, keys.rows(pos_q, pos_k))
        rows = queries.rows(pos_q, pos_k).transpose(1, 2)  # (B|1, K, Q)
        return scores + to_position + pairs.query_bias(k, queries.vectors, rows).transpose(2, 3)

    def _project(self, weight: Tensor) -> Tensor:
        """Return the vectors of all distances in each head, `(H, 2k, E)`."""
        by_head = (self.vectors @ weight).view(-1, self.num_heads, self.head_dim)
        return by_head.transpose(0, 1)
