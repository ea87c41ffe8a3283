"""Extrapolatable positions, xPos (Sun et al. 2022)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError

from .base import Representation
from .checks import as_positions, bounds, check_positive
from .rotary import Pairs, check_rotation, frequencies
from .turns import Turn


class XPos(Representation):
    """Rotary positions whose pairs of channels also decay with the distance, high frequencies
    faster (Sun et al. 2022, section 3.1 and algorithm 1).

        q_i -> ζ^(i / scale_base) R(i) q_i,  k_j -> ζ^(-j / scale_base) R(j) k_j
        ζ_m = (2m / E + gamma) / (1 + gamma) < 1 for pair m = 0 … E/2 - 1
        so that  e_ij = sum_m ζ_m^((i - j) / scale_base) · (term of pair m in `Rotary`) / sqrt(E)

    For a key on the right of its query, j > i, the factor would grow without limit: xPos works in
    the decoder's self-attention only.

    Keys grow with their position while queries shrink; only their product stays bounded. The
    released code centres each call on the middle of its tokens. Such a factor cancels within one
    call, but not between a query and the keys in a cache. So the range of the dtype limits the
    positions, to about 14,000 in float32 and bfloat16 with the paper's settings; a position beyond
    that is an error. (On a GPU and in a compiled or exported model, only the length is checked,
    because reading positions would be slow.)

    Rotary positions whose scores also decay with distance. Choose it for decoders that read longer
    texts than in training.

    Args:
        head_dim: E.
        base: frequencies θ fall from 1 towards 1 / base; 10000 in the paper.
        pairs: which channels rotate together: `interleaved` 2m and 2m + 1 (the paper), `halves` m
            and m + E/2.
        gamma: γ, 0.4 in the paper; the larger γ, the less the high frequencies decay.
        scale_base: positions over which a pair decays by ζ; 512 in the paper.

    Raises:
        ShapeshiftError: for a number out of range; in `rotate`, for heads of another width, without
            one position for each token, or for a position beyond the limit.
    """

    places = ("self",)
    causal_only = True
    shift_invariant = True

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10000.0,
        pairs: Pairs = "interleaved",
        gamma: float = 0.4,
        scale_base: float = 512.0,
    ):
        super().__init__()
        head_dim = check_rotation(head_dim, base)
        check_positive(gamma=gamma, scale_base=scale_base)
        self.head_dim, self.base, self.pairs = head_dim, base, pairs
        self.gamma, self.scale_base = gamma, scale_base

    def max_position(self) -> int:
        return self._reach(torch.float32)

    def _reach(self, dtype: torch.dtype) -> int:
        # Scores above the diagonal are masked, but computed: the first query and the last key give
        # a factor of 2^bits, which leaves more than half of the exponents for q k^T.
        bits = 0.4 * math.log2(torch.finfo(dtype).max)
        return int(bits * self.scale_base / math.log2(1 + 1 / self.gamma))

    def turn(self, pos: Tensor, dtype: torch.dtype) -> Turn:
        limit, furthest = self._reach(dtype), max(map(abs, bounds(as_positions(pos))))
        if furthest > limit:
            raise ShapeshiftError(
                f"xpos in {dtype} reaches position {limit}, got {furthest}; use kind 'rotary'"
            )
        theta = frequencies(self.head_dim, self.base, pos.device)
        m = torch.arange(self.head_dim // 2, dtype=theta.dtype, device=pos.device)
        zeta = (2 * m / self.head_dim + self.gamma) / (1 + self.gamma)  # (E/2,)
        steps = as_positions(pos).to(theta.dtype).unsqueeze(-1)  # (B|1, T, 1)
        angles, decay = steps * theta, zeta ** (steps / self.scale_base)  # (B|1, T, E/2)
        return Turn(angles.cos(), angles.sin(), self.pairs == "halves", decay=decay)
