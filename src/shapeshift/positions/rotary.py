"""Rotary positions (Su et al. 2021) and their scaling to longer texts."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError

from .base import Representation
from .checks import as_positions, check_positive, exact_dtype, whole_number
from .turns import Turn

Pairs = Literal["interleaved", "halves"]


class Rotary(Representation):
    """RoPE: rotates pairs of channels of queries and keys by angles proportional to the position
    (Su et al. 2021, section 3.4.2).

        q_i -> R(i) q_i,  k_j -> R(j) k_j,  so that  q_i^T R(i)^T R(j) k_j = q_i^T R(j - i) k_j
        R(i) rotates pair m by i·θ_m,  θ_m = base^(-2m / r),  m = 0 … r/2 - 1

    r channels rotate, all E in the paper. Angles are computed in float64 and the rotation in at
    least float32, so that it is exact at any position. No table limits the length.

    `scaling` lets a trained model read texts `factor` = s times as long:

        linear  θ -> θ / s (position interpolation, Chen et al. 2023)
        ntk     base -> base · s^(r / (r - 2)) (Peng et al. 2023, section 3.1)
        yarn    θ -> (1 - γ) θ / s + γ θ,  γ = (n - 1) / (32 - 1) within 0 and 1,
                n = original_length · θ / 2π, how often a pair rotates in the old length
                (Peng et al. 2023, section 3.2), and scores divided by a temperature t
                (section 3.4), sqrt(1/t) = 0.1 ln(s) + 1

    Differs from the released YaRN code, in which γ is a ramp over the pair's index m, not over n,
    with bounds rounded to whole pairs, and the temperature does not apply to channels that do not
    rotate.

    In cross-attention, queries rotate by their position in the target and keys by their position in
    the source: the score depends on the difference of the two, and a translation roughly follows
    the order of its source. The paper has self-attention only.

    Rotates queries and keys by their positions, so that scores depend on distances. It has no
    parameters, and most language models use it; choose it first for them. `scaling` extends a
    trained model to longer texts.

    Args:
        head_dim: E.
        base: frequencies θ fall from 1 towards 1 / base; 10000 in the paper.
        pairs: which channels rotate together: `interleaved` 2m and 2m + 1 (the paper), `halves` m
            and m + r/2 (GPT-NeoX, Llama).
        fraction: r / E; r is rounded down to an even number, but not below 2.
        scaling: method that extends a trained model to longer texts.
        factor: s, above 1; 1 without scaling.
        original_length: length of training texts, in subwords; `yarn` needs it.

    Raises:
        ShapeshiftError: for a number out of range, or settings that contradict each other; in
            `rotate`, for heads of another width or without one position for each token.
    """

    places = ("self", "cross")
    shift_invariant = True

    def __init__(
        self,
        *,
        head_dim: int,
        base: float = 10000.0,
        pairs: Pairs = "interleaved",
        fraction: float = 1.0,
        scaling: Literal["none", "linear", "ntk", "yarn"] = "none",
        factor: float = 1.0,
        original_length: int | None = None,
    ):
        super().__init__()
        check_rotation(head_dim, base)
        if not 0 < fraction <= 1:
            raise ShapeshiftError(f"fraction must lie above 0 and not above 1, got {fraction}")
        if factor != 1 if scaling == "none" else factor <= 1:
            raise ShapeshiftError(
                f"factor={factor} has no meaning with scaling={scaling!r}; give a factor above 1"
                " and scaling linear, ntk or yarn, or neither"
            )
        if (scaling == "yarn") != (original_length is not None):
            raise ShapeshiftError(
                "scaling='yarn' needs original_length, the length of texts in training, and no"
                f" other scaling takes it; got {scaling!r} and original_length={original_length}"
            )
        if original_length is not None:
            whole_number("original_length", original_length, 1)
        self.head_dim = head_dim
        self.width = max(2, int(head_dim * fraction) // 2 * 2)  # r
        if scaling == "ntk" and self.width == 2:
            raise ShapeshiftError(
                "scaling='ntk' moves the slower pairs, but only one pair of channels turns;"
                " raise fraction, or use scaling linear or yarn"
            )
        self.base, self.pairs, self.scaling, self.factor = base, pairs, scaling, factor
        self.original_length = original_length
        self.temperature = (0.1 * math.log(factor) + 1) ** -2 if scaling == "yarn" else 1.0  # t

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Return θ `(r/2,)`, in radians per position, float64."""
        base, width = self.base, self.width
        if self.scaling == "ntk":
            base *= self.factor ** (width / (width - 2))
        theta = frequencies(width, base, device)
        if self.scaling == "linear":
            return theta / self.factor
        if self.scaling == "yarn" and self.original_length is not None:
            turns = theta * (self.original_length / (2 * math.pi))
            kept = ((turns - 1) / (32 - 1)).clamp(0, 1)  # γ
            return (1 - kept) * theta / self.factor + kept * theta
        return theta

    def turn(self, pos: Tensor, dtype: torch.dtype) -> Turn:
        theta = self.frequencies(pos.device)
        angles = as_positions(pos).to(theta.dtype).unsqueeze(-1) * theta  # (B|1, T, r/2)
        # Queries and keys have the same scale, so that scores are multiplied by 1 / t.
        scale = self.temperature**-0.5
        return Turn(angles.cos(), angles.sin(), self.pairs == "halves", scale)


def frequencies(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """Return θ_m = base^(-2m / width), `(width / 2,)`, in float64 if the device supports it."""
    m = torch.arange(width // 2, dtype=exact_dtype(device), device=device)
    return base ** (m * (-2 / width))


def check_rotation(head_dim: int, base: float) -> None:
    """Raise a `ShapeshiftError` if E channels cannot rotate in pairs at these frequencies."""
    if whole_number("head_dim", head_dim, 1) % 2:
        raise ShapeshiftError(
            f"rotary positions turn pairs of channels, got head_dim={head_dim}; choose an even"
            " head_dim (in a configuration, model.dim / model.num_heads)"
        )
    check_positive(base=base)
