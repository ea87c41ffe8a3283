"""Functional interpolation for relative positions, FIRE (Li et al. 2024)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .base import Representation, is_as_built
from .checks import as_positions, check_positive, whole_number


class FIRE(Representation):
    """A trained function of the distance divided by the position of the query, so that its input
    stays between 0 and 1 in texts of any length (Li et al. 2024, section 4).

        e_ij = q_i k_j^T / sqrt(E) + f_h(psi(i - j) / psi(max(L, i))),  psi(x) = log(c x + 1)

    f is an MLP with one hidden layer of ReLUs, 1 -> `hidden` -> H. c > 0 and the threshold L > 0
    are trained; up to position L, only the distance matters. The module learns log c and log L.

    The paper has causal attention only. To support keys on the right of the query, the input here
    is sign(i - j) psi(|i - j|) / psi(max(L, i, j)), between −1 and 1. For j <= i this is the same.

    Adds a trained function of the distance, divided by the position of the query, to the scores.
    Choose it for language models that read longer texts than in training.

    Args:
        num_heads: H.
        hidden: width of f's hidden layer; 32 in the paper.
        threshold: initial L, in positions; 512 in the released code, for texts of 2,048.

    Raises:
        ShapeshiftError: if there is no hidden unit, or the threshold is not positive.
    """

    places = ("self",)

    def __init__(self, *, num_heads: int, hidden: int = 32, threshold: float = 512.0):
        super().__init__()
        check_positive(threshold=threshold)
        self.num_heads, self.threshold = num_heads, threshold
        self.hidden = whole_number("hidden", hidden, 1)
        # Of one number, not scalars, which FSDP does not shard; c as in the released code.
        self.log_c = nn.Parameter(torch.tensor([math.log(0.1)]))
        self.log_threshold = nn.Parameter(torch.tensor([math.log(threshold)]))
        self.inner = nn.Linear(1, hidden)
        self.outer = nn.Linear(hidden, num_heads)

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        # Distances above 256 have no exact bfloat16, so this is computed in float32 at least.
        precise = torch.promote_types(self.log_c.dtype, torch.float32)
        c, threshold = (each.to(precise).exp() for each in (self.log_c, self.log_threshold))
        i = as_positions(pos_q).unsqueeze(-1)  # (B|1, Q, 1)
        j = as_positions(pos_k).unsqueeze(-2)  # (B|1, 1, K)
        distances = (i - j).to(precise)  # (B|1, Q, K)
        furthest = torch.maximum(torch.maximum(i, j).to(precise), threshold)
        x = distances.sign() * torch.log1p(c * distances.abs()) / torch.log1p(c * furthest)
        if not is_as_built(self.inner, self.outer):
            values = x.to(self.log_c.dtype).unsqueeze(-1)  # (B|1, Q, K, 1)
            by_pair: Tensor = self.outer(self.inner(values).relu())  # (B|1, Q, K, H)
            return by_pair.permute(0, 3, 1, 2).to(dtype)
        weights = (self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias)
        inner, inner_bias, outer, outer_bias = (each.to(precise) for each in weights)
        hidden = (inner * x.flatten(1).unsqueeze(1) + inner_bias.unsqueeze(-1)).relu()
        layers = outer.expand(x.shape[0], -1, -1)  # (B|1, H, hidden)
        out = torch.baddbmm(outer_bias.unsqueeze(-1), layers, hidden)  # (B|1, H, Q·K)
        return out.view(x.shape[0], self.num_heads, *x.shape[1:]).to(dtype)  # (B|1, H, Q, K)
