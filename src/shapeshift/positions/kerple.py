"""Kernelized relative position biases (Chi et al. 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Representation


class KERPLE(Representation):
    """A penalty that grows with the logarithm of the distance, with two learned numbers per head
    (Chi et al. 2022, section 4, the logarithmic variant).

        e_ij = q_i k_j^T / sqrt(E) - r1_h log(1 + r2_h |i - j|),  r1, r2 > 0

    The module learns log r1 and log r2, so that both stay positive; the released code learns r1 and
    r2 and clamps them to at least 0.01. The initial values are as in the released code: r1 uniform
    in [0.01, 2], r2 uniform in [0.01, 1].

    Subtracts a trained, logarithmic function of the distance from the scores. Choose it for
    language models that read much longer texts than in training.

    Args:
        num_heads: H.
    """

    places = ("self",)

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.log_r1 = nn.Parameter(torch.empty(num_heads).uniform_(0.01, 2.0).log())
        self.log_r2 = nn.Parameter(torch.empty(num_heads).uniform_(0.01, 1.0).log())

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        shape = (self.num_heads, *[1] * distances.ndim)
        r1, r2 = (x.to(dtype).exp().view(shape) for x in (self.log_r1, self.log_r2))
        return -r1 * torch.log1p(r2 * distances.abs())
