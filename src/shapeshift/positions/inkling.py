"""Relative logits as in the language model Inkling (Thinking Machines 2026)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import pairs
from .base import Representation
from .checks import check_last, whole_number


class Inkling(Representation):
    """Each token mixes a few trained functions of the distance into a bias of its own (the model
    Inkling, as released in transformers 5.14).

        e_ij = q_i k_j^T / sqrt(E) + r_i p_{i-j}^T,  r_i = x_i W
        p_d = 0 for d >= extent

    W projects the layer's input to `rank` numbers for each head; p has `rank` trained numbers for
    each distance, for all heads. Both start with standard deviation 0.02, as in the released model.
    Attention is causal there, so keys to the right get no bias.

    The model's other parts are not part of this kind: short convolutions of keys and values, norms
    of queries and keys, and the factor by which scores grow with the length of a text. Its
    sliding-window layers have an extent of 512.

    Learns from the text which distances matter to a token. Choose it to continue or to compare with
    Inkling. It takes memory for all pairs of tokens.

    Args:
        dim: D.
        num_heads: H.
        rank: functions of the distance; 16 in the released model.
        extent: distances that have a bias; 1024 in the released model.

    Raises:
        ShapeshiftError: if there is no function or no distance; in `score`, if the queries are not
            the last keys.
    """

    places = ("self",)
    causal_only = True
    shift_invariant = head_free_score = True

    def __init__(self, *, dim: int, num_heads: int, rank: int = 16, extent: int = 1024):
        super().__init__()
        self.dim, self.num_heads = dim, num_heads
        self.rank, self.extent = whole_number("rank", rank, 1), whole_number("extent", extent, 1)
        self.project = nn.Linear(dim, num_heads * rank, bias=False)  # W
        self.profiles = nn.Parameter(torch.empty(rank, extent))  # p
        for weight in (self.project.weight, self.profiles):
            nn.init.normal_(weight, std=0.02)

    def state(self, x: Tensor, pos: Tensor) -> Tensor:
        projected: Tensor = self.project(x)  # (B, T, H · rank)
        return projected

    def score(
        self,
        scores: Tensor,
        q: Tensor,
        k: Tensor,
        state: Tensor | None,
        pos_q: Tensor,
        pos_k: Tensor,
    ) -> Tensor:
        assert state is not None
        check_last(self, pos_q, pos_k)
        mixed = state[:, state.shape[1] - q.shape[2] :]
        mixed = mixed.reshape(*mixed.shape[:2], self.num_heads, self.rank).transpose(1, 2)
        # By j - i: no bias up to -extent, then that of each distance, and none from 1 on.
        vectors = F.pad(self.profiles.flip(1).T, (0, 0, 1, 1)).unsqueeze(0)
        rows = pairs.Table(vectors, -self.extent).rows(pos_q, pos_k)
        return scores + pairs.query_bias(mixed, vectors, rows)
