"""Relative positions as in Transformer-XL (Dai et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Representation
from .sinusoidal import Sinusoidal


class TransformerXL(Representation):
    """Compares queries with keys and with sines and cosines of the distance; two trained vectors
    stand for the query's own position (Dai et al. 2019, section 3.3).

        e_ij = ((q_i + u) k_j^T + (q_i + v) (W r_{i-j})^T) / sqrt(E)

    r_n has the D sines and cosines of distance n. W is a projection; u and v have E channels in
    each head. The sine of (i - j) θ is a sum of products of sines and cosines of iθ and jθ, so that
    no table limits the length. Angles are computed in float64.

    The paper has causal attention only. Keys on the right have negative distances here, as in
    XLNet. In the paper, all layers share u and v; here each layer has its own, or all share u, v
    and W.

    Compares each query with the distance itself, as `skew` does, without a limit to the distance.
    Choose it to continue or to compare with Transformer-XL and XLNet. It takes memory for all pairs
    of tokens.

    Args:
        dim: D.
        num_heads: H.
        head_dim: E.

    Raises:
        ShapeshiftError: if D is odd or smaller than 4.
    """

    places = ("self",)
    shift_invariant = True

    def __init__(self, *, dim: int, num_heads: int, head_dim: int):
        super().__init__()
        self.dim, self.num_heads, self.head_dim = dim, num_heads, head_dim
        self.sinusoids = Sinusoidal(dim=dim, channels="halves")
        self.weight = nn.Parameter(
            torch.empty(num_heads * head_dim, dim)
        )  # W of all heads, one below the other
        self.u = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        self.v = nn.Parameter(torch.empty(num_heads, 1, head_dim))
        nn.init.xavier_uniform_(self.weight)
        for vector in (self.u, self.v):
            nn.init.normal_(vector, std=0.02)  # as in the released code

    def score(
        self,
        scores: Tensor,
        q: Tensor,
        k: Tensor,
        state: Tensor | None,
        pos_q: Tensor,
        pos_k: Tensor,
    ) -> Tensor:
        scale: float = self.head_dim**-0.5  # that of q
        by_head = self.weight.view(self.num_heads, self.head_dim, self.dim)
        of_sines, of_cosines = ((q + self.v * scale) @ by_head).chunk(2, -1)  # (B, H, Q, D / 2)
        at_q, at_k = (
            self.sinusoids.encode(pos, q).unsqueeze(1).chunk(2, -1) for pos in (pos_q, pos_k)
        )
        # a sin(i - j) + b cos(i - j) = (a sin i + b cos i) cos j + (b sin i - a cos i) sin j
        sines, cosines = at_q
        left = torch.cat(
            (of_sines * sines + of_cosines * cosines, of_cosines * sines - of_sines * cosines), -1
        )
        right = torch.cat((at_k[1], at_k[0]), -1)  # (B|1, 1, K, D)
        content: Tensor = self.u * scale @ k.transpose(-1, -2)  # (B, H, 1, K)
        by_distance: Tensor = left @ right.transpose(-1, -2)  # (B, H, Q, K)
        return scores + content + by_distance
