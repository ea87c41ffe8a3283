"""Attention with linear biases (Press et al. 2022)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .base import Representation
from .checks import exact_dtype


class ALiBi(Representation):
    """A penalty that grows linearly with the distance, with a fixed slope for each head (Press et
    al. 2022, section 3).

        e_ij = q_i k_j^T / sqrt(E) - m_h |i - j|,  m_h = 2^(-8h / H),  h = 1 … H

    Nothing is learned. If H is not a power of two, let c be the largest power of two below H. The
    first c heads have the slopes for c heads, and the others have every other slope for 2c heads,
    steepest first, as in the released code: 2^(-8h / c) with h = 1/2, 3/2, ….

    Under a causal mask, |i - j| = i - j, as in the paper, which has no encoder. In an encoder the
    penalty is the same on both sides.

    ALiBi works in self-attention only: in cross-attention, the penalty would assume that position i
    of the target corresponds to position i of the source.

    Subtracts a fixed multiple of the distance from the scores. Choose it for language models that
    read much longer texts than in training.

    Args:
        num_heads: H.
    """

    places = ("self",)

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.num_heads = num_heads

    def slopes(self, device: torch.device | None = None) -> Tensor:
        """Return m `(H,)` in float64 if the device supports it."""
        dtype = exact_dtype(device)
        power = 2 ** int(math.log2(self.num_heads))
        whole = torch.arange(1, power + 1, dtype=dtype, device=device)
        halves = torch.arange(self.num_heads - power, dtype=dtype, device=device) + 0.5
        return torch.exp2(torch.cat((whole, halves)) * (-8 / power))

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        slopes = self.slopes(distances.device).to(dtype)
        return -slopes.view(-1, *[1] * distances.ndim) * distances.abs()
