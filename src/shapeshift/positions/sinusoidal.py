"""Sinusoidal positions (Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError

from .base import Encoding
from .checks import as_positions, check_positive, exact_dtype

Channels = Literal["interleaved", "halves", "tensor2tensor"]


class Sinusoidal(Encoding):
    """PE(i, 2m) = sin(i / base^(2m/D)), PE(i, 2m+1) = cos(i / base^(2m/D)).

    The values are computed from the positions in float64 and then cast, so that they are exact at
    any position. No table limits the length. Apple's MPS has no float64 and computes in float32.

    Adds fixed sines and cosines of a token's position. It is simple and fast, and every engine
    supports it; choose it as the baseline. Quality usually drops beyond the longest training text.

    Args:
        dim: D, even.
        channels: the order of the D channels. `interleaved`: sin and cos alternate, as in the
            paper's formula. `halves`: the same values, all sines first. `tensor2tensor`: sines
            first, and the wavelengths reach 2π·base in D/2 − 1 steps, so m / (D/2 − 1) replaces
            2m / D, as in Tensor2Tensor and fairseq.
        base: 10000 in the paper.
        add_to: the projections whose inputs get the vector in an attention, letters of `qkv`.

    Raises:
        ShapeshiftError: if D is odd or smaller than 4.
    """

    def __init__(
        self,
        *,
        dim: int,
        channels: Channels = "interleaved",
        base: float = 10000.0,
        add_to: str = "qk",
    ):
        super().__init__(add_to)
        if dim % 2 or dim < 4:
            raise ShapeshiftError(
                f"sinusoidal positions need an even width of 4 or more, got dim={dim}; choose an"
                " even dim (in a configuration, model.dim)"
            )
        check_positive(base=base)
        self.dim, self.channels, self.base = dim, channels, base

    def encode(self, pos: Tensor, like: Tensor) -> Tensor:
        half = self.dim // 2
        step = 1 / (half - 1) if self.channels == "tensor2tensor" else 1 / half
        dtype = exact_dtype(pos.device)
        exponent = torch.arange(half, dtype=dtype, device=pos.device) * step
        speeds = self.base**-exponent
        angle = as_positions(pos).to(dtype).unsqueeze(-1) * speeds  # (B|1, T, D/2)
        if self.channels == "interleaved":
            table = torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)  # (B|1, T, D)
        else:
            table = torch.cat((angle.sin(), angle.cos()), dim=-1)  # (B|1, T, D)
        return table.to(like.dtype)
