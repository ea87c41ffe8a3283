"""Rotary positions with several axes, for images and video (Heo et al. 2024)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError

from .base import Representation
from .checks import as_positions, check_positive, whole_number
from .rotary import Pairs, frequencies
from .turns import Turn


class Axial(Representation):
    """Axial RoPE: each axis of a position, such as the row and the column of a patch of an image,
    rotates its own share of the pairs of channels (Heo et al. 2024, section 3.1).

        pair m of axis a rotates by pos_a · θ_m,  θ_m = base^(-2Am / E),  m = 0 … E/2A - 1

    Scores depend on the differences of two positions along each axis. Positions are `(B|1, T, A)`,
    integers or fractions. The pairs of axis 0 come first, then those of axis 1, and so on.

    DINOv3 has base 100 and the position 2π (2i + 1 - N) / N for row or column i of N. Pixtral has
    base 10000 and `alternating` order. Both have `halves`.

    Rotates queries and keys by several numbers, one for each axis. Choose it for images and video.

    Args:
        head_dim: E, a multiple of 2A.
        num_axes: A, at least 2.
        base: 100 in the paper.
        pairs: which channels rotate together, see `Rotary`.
        order: of frequencies. `same`, all axes have those above; or `alternating`, the axes take
            turns in those of one axis, so that pair m of axis a has base^(-2(Am + a) / E).

    Raises:
        ShapeshiftError: for a number out of range; in `rotate`, for heads of another width or
            without one position of A numbers for each token.
    """

    places = ("self", "cross")
    shift_invariant = True
    num_axes = 2

    def __init__(
        self,
        *,
        head_dim: int,
        num_axes: int = 2,
        base: float = 100.0,
        pairs: Pairs = "halves",
        order: Literal["same", "alternating"] = "same",
    ):
        super().__init__()
        check_positive(base=base)
        self.num_axes = whole_number("num_axes", num_axes, 2)
        if head_dim % (2 * num_axes):
            raise ShapeshiftError(
                f"each of num_axes={num_axes} axes turns as many pairs of channels, so head_dim"
                f" must be a multiple of {2 * num_axes}, got {head_dim}"
            )
        self.head_dim, self.base, self.pairs, self.order = head_dim, base, pairs, order

    def turn(self, pos: Tensor, dtype: torch.dtype) -> Turn:
        num_axes, width = self.num_axes, self.head_dim
        if self.order == "same":
            theta = frequencies(width // num_axes, self.base, pos.device)  # (E/2A,)
        else:
            theta = frequencies(width, self.base, pos.device).view(-1, num_axes).t()  # (A, E/2A)
        at = as_positions(pos, num_axes).to(theta.dtype)
        angles = (at.unsqueeze(-1) * theta).flatten(-2)  # (B|1, T, E/2)
        return Turn(angles.cos(), angles.sin(), self.pairs == "halves")
