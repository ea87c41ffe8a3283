"""Polar coordinate positional embeddings, PoPE (Gopalakrishnan et al. 2025)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Representation, check_heads, check_sizes
from .checks import as_positions, check_positive
from .rotary import frequencies


class PoPE(Representation):
    """Each channel of queries and keys becomes a complex number: the content gives its magnitude,
    the position its angle (Gopalakrishnan et al. 2025, section 3).

        e_ij = sum_c softplus(q_ic) softplus(k_jc) cos((j - i) θ_c + δ_c) / sqrt(E)
        θ_c = base^(-c / E),  c = 0 … E - 1

    δ_c is trained for each head and channel, limited to -2π … 0, and starts with 0, which the paper
    recommends for texts longer than those of training. Angles are computed in float64 and numbers
    in at least float32. No table limits the length.

    Queries and keys have 2E channels after `rotate`, and so do cached keys; values keep E. In
    cross-attention, positions are those of the target and of the source, as with `rotary`; the
    paper has self-attention only.

    Separates what a token is from where it stands: with `rotary`, content changes the angles, too.
    Choose it for decoder-only models that read longer texts than they were trained on. Scores cost
    twice as much, and few fused kernels take such heads.

    Args:
        num_heads: H.
        head_dim: E.
        base: frequencies θ fall from 1 towards 1 / base; 10000 in the paper.

    Raises:
        ShapeshiftError: if `base` is not a number above 0; in `rotate`, for heads of another number
            or width, or without one position for each token.
    """

    places = ("self", "cross")
    shift_invariant = True

    def __init__(self, *, num_heads: int, head_dim: int, base: float = 10000.0):
        super().__init__()
        check_positive(base=base)
        self.num_heads, self.head_dim, self.base = num_heads, head_dim, base
        self.phase = nn.Parameter(torch.zeros(num_heads, 1, head_dim))  # δ

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        check_heads(q, k, pos_q, pos_k)
        check_sizes(self, num_heads=q.shape[1], head_dim=q.shape[3])
        # Attention divides by sqrt(2E), and the kind by sqrt(E).
        phase = self.phase.clamp(-2 * math.pi, 0.0)
        return self._polar(q, pos_q, scale=math.sqrt(2)), self._polar(k, pos_k, phase)

    def _polar(
        self, x: Tensor, pos: Tensor, phase: Tensor | None = None, scale: float = 1.0
    ) -> Tensor:
        """Return the real and imaginary parts `(B, H, T, 2E)` of heads `x (B, H, T, E)`."""
        theta = frequencies(2 * self.head_dim, self.base, x.device)
        angles = (as_positions(pos).to(theta.dtype).unsqueeze(-1) * theta).unsqueeze(1)
        angles = angles if phase is None else angles + phase  # (B|1, H|1, T, E)
        size = F.softplus(x.to(torch.promote_types(x.dtype, torch.float32))) * scale
        parts = (size * part.to(size.dtype) for part in (angles.cos(), angles.sin()))
        return torch.cat([*parts], dim=-1).to(x.dtype)
