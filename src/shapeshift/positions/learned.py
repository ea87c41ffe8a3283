"""Learned absolute positions (Gehring et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError

from .base import Encoding
from .checks import as_positions, bounds, whole_number


class Learned(Encoding):
    """One trained vector for each position.

    The table cannot grow: positions beyond it were never trained. On a GPU and in a compiled or
    exported model, only the length is checked, because reading positions would be slow; for other
    positions outside the table, PyTorch's look-up raises the error.

    Adds a trained vector for each position, as BERT and GPT-2 do. Choose it to compare with such a
    model. It has no positions beyond its table.

    Args:
        dim: D.
        num_positions: rows of the table; positions 0 … num_positions − 1.
        add_to: the projections whose inputs get the vector in an attention, letters of `qkv`.

    Raises:
        ShapeshiftError: in `encode`, if a position is outside the table.
    """

    def __init__(self, *, dim: int, num_positions: int = 1024, add_to: str = "qk"):
        super().__init__(add_to)
        self.dim, self.num_positions = dim, whole_number("num_positions", num_positions, 1)
        self.weight = nn.Parameter(torch.empty(num_positions, dim))
        nn.init.normal_(self.weight, std=dim**-0.5)  # like the token embeddings

    def max_position(self) -> int:
        return self.weight.shape[0] - 1

    def encode(self, pos: Tensor, like: Tensor) -> Tensor:
        pos, limit = as_positions(pos), self.max_position()
        first, last = bounds(pos)
        if first < 0 or last > limit:
            remedy = (
                f"train with num_positions={last + 1} or more" if first >= 0 else "count from 0"
            )
            raise ShapeshiftError(
                f"a sequence of {pos.shape[-1]} tokens has positions {first} to {last}, but the"
                f" learned table ends at {limit}; {remedy}, or use a kind without a limit such as"
                " 'sinusoidal'"
            )
        # The gradient of a vector is a sum over sentences: in bfloat16 it would be too coarse.
        precise = torch.promote_types(self.weight.dtype, torch.float32)
        return F.embedding(pos, self.weight.to(precise)).to(like.dtype)  # (B|1, T, D)
