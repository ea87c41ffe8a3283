"""Extrapolatable positions, xPos (Sun et al. 2022)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from shapeshift.errors import ShapeshiftError

from .base import Representation
from .checks import as_positions, can_read, check_head_dim, check_positive, whole_number
from .rotary import Pairs, check_rotation, frequencies, rotate


class XPos(Representation):
    """Rotary positions whose pairs of channels also fade with the distance, the fast ones sooner
    (Sun et al. 2022, section 3.1 and algorithm 1).

        q_i -> ζ^(i / scale_base) R(i) q_i,  k_j -> ζ^(-j / scale_base) R(j) k_j
        ζ_m = (2m / E + gamma) / (1 + gamma) < 1 for pair m = 0 … E/2 - 1
        so that  e_ij = sum_m ζ_m^((i - j) / scale_base) · (what pair m gives in `Rotary`) / sqrt(E)

    For a key on the right of its query, j > i, this would grow without limit: it is made for the
    decoder's self-attention alone.

    Keys grow with their position as queries shrink, and only their product is tame. A factor that
    depended on the length seen so far (the released code centres each call on the middle of its
    tokens) would cancel within one call, but no more between a query and the keys in a cache. What
    is left is a constant: positions count from `centre`, which moves the range that fits into the
    dtype and changes no score. Beyond that range, some 14,000 positions on either side in float32
    and bfloat16 with the paper's numbers, there is an error and never an overflow. (On a GPU and in
    a compiled or exported model the device checks, and the error is PyTorch's.)

    Args:
        head_dim: E.
        base: speeds θ fall from 1 towards 1 / base; 10000 in the paper.
        pairs: which channels turn together: `interleaved` 2m and 2m + 1 (the paper), `halves` m and
            m + E/2.
        gamma: γ, 0.4 in the paper; the larger, the less the fast pairs fade.
        scale_base: positions over which a pair fades by ζ; 512 in the paper.
        centre: the position whose queries and keys keep their size.

    Raises:
        ShapeshiftError: for a number out of its range, or a centre out of reach of position 0; in
            `rotate`, for heads of another width, or a position too far from the centre.
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
        centre: int = 0,
    ):
        super().__init__()
        check_rotation(head_dim, base)
        check_positive(gamma=gamma, scale_base=scale_base)
        self.head_dim, self.base, self.pairs = head_dim, base, pairs
        self.gamma, self.scale_base = gamma, scale_base
        self.centre = whole_number("centre", centre, 0)
        if self.centre > self._reach(torch.float32):
            raise ShapeshiftError(
                f"xpos reaches {self._reach(torch.float32)} positions on either side of its"
                f" centre, which leaves out position 0, got centre={centre}; use a smaller centre"
            )

    def max_position(self) -> int:
        return self.centre + self._reach(torch.float32)

    def _reach(self, dtype: torch.dtype) -> int:
        # Scores above the diagonal are masked, but computed: two positions at opposite ends of the
        # range give a factor of 2^(2 · bits), and a fifth of the exponents is left for q k^T.
        bits = 0.4 * math.log2(torch.finfo(dtype).max)
        return int(bits * self.scale_base / math.log2(1 + 1 / self.gamma))

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        check_head_dim("XPos", self.head_dim, q, k)
        theta = frequencies(self.head_dim, self.base, q.device)
        m = torch.arange(self.head_dim // 2, dtype=theta.dtype, device=q.device)
        zeta = (2 * m / self.head_dim + self.gamma) / (1 + self.gamma)  # (E/2,)
        pos_q, pos_k = as_positions(pos_q), as_positions(pos_k)
        self._check_range(pos_q, q.dtype)
        if pos_k is not pos_q:
            self._check_range(pos_k, k.dtype)
        turned = []
        for x, pos, sign in ((q, pos_q, 1), (k, pos_k, -1)):
            steps = (pos - self.centre).to(theta.dtype).unsqueeze(-1)  # (B|1, T, 1)
            scale = zeta ** (steps * (sign / self.scale_base))  # (B|1, T, E/2)
            angles = pos.to(theta.dtype).unsqueeze(-1) * theta  # (B|1, T, E/2)
            turned.append(rotate(x, angles.cos() * scale, angles.sin() * scale, self.pairs))
        return turned[0], turned[1]

    def _check_range(self, pos: Tensor, dtype: torch.dtype) -> None:
        limit = self._reach(dtype)
        reach = f"xpos in {dtype} reaches {limit} positions on either side of centre={self.centre}"
        remedy = (
            "move centre to the middle of the positions in use (which changes no score), or use"
            " kind 'rotary'"
        )
        distances = (pos - self.centre).abs()
        if not can_read(pos):
            torch._assert_async((distances <= limit).all(), f"{reach}; {remedy}")
        elif pos.numel() and (furthest := int(distances.max())) > limit:
            raise ShapeshiftError(f"{reach}, got one {furthest} away; {remedy}")

    def extra_repr(self) -> str:
        scale = f"gamma={self.gamma}, scale_base={self.scale_base:g}, centre={self.centre}"
        return f"head_dim={self.head_dim}, base={self.base:g}, {scale}"
