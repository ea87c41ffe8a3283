"""Kernelized relative position biases (Chi et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Representation, ScoreMod
from .relative import by_distance, distance_between


class KERPLE(Representation):
    """A penalty that grows with the logarithm of the distance, with two learned numbers per head
    (Chi et al. 2022, section 4, the logarithmic variant).

        e_ij = q_i k_j^T / sqrt(E) - r1_h log(1 + r2_h |i - j|),  r1, r2 > 0

    The module learns log r1 and log r2, so that both stay positive; the released code learns r1 and
    r2 and clamps them to at least 0.01. The initial values are as in the released code: r1 uniform
    in [0.01, 2], r2 uniform in [0.01, 1].

    Args:
        num_heads: H.
    """

    places = ("self",)
    shift_invariant = splits = True

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.log_r1 = nn.Parameter(torch.empty(num_heads).uniform_(0.01, 2.0).log())
        self.log_r2 = nn.Parameter(torch.empty(num_heads).uniform_(0.01, 1.0).log())

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        return by_distance(self._values, pos_q, pos_k, dtype)  # (B|1, H, Q, K)

    def bias_by_distance(self, distances: Tensor, *, dtype: torch.dtype) -> Tensor:
        return self._values(distances, dtype)

    def _values(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        # Distances above 256 have no exact bfloat16, so this is computed in float32 at least.
        shape = (self.num_heads, *[1] * distances.ndim)
        r1, r2 = (each.view(shape) for each in self._rates())
        return -r1 * torch.log1p(r2 * distances.abs())

    def _rates(self) -> list[Tensor]:
        precise = torch.promote_types(self.log_r1.dtype, torch.float32)
        return [each.to(precise).exp() for each in (self.log_r1, self.log_r2)]

    def score_mod(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> ScoreMod:
        (r1, r2), distance = self._rates(), distance_between(pos_q, pos_k, q.shape[0])
        return lambda score, b, h, i, j: (
            score - r1[h] * torch.log1p(r2[h] * distance(b, i, j).abs())
        )
