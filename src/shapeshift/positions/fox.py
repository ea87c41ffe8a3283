"""Forgetting attention, FoX (Lin et al. 2025)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Representation


class FoX(Representation):
    """A forget gate for each token and head, computed from the layer's input, that lowers the scores
    of all earlier tokens (Lin et al. 2025, section 3, forgetting attention).

        f_t = sigmoid(w_f^T x_t + b_f)
        e_ij = q_i k_j^T / sqrt(E) + d_ij,  d_ij = sum_{l = j+1..i} log f_l

    If all gates of a head are one constant, this is ALiBi. The sums are computed in float32 at
    least. Attention is causal, as in the paper; gates of keys that a mask forbids count.

    The weights w_f are initialised as in the released code, with b_f = 0. Only the gate of the
    paper's architecture is here, not the output gate, the norms and the shifts of its "Pro" block.

    Learns from the text itself how far back each head looks. Choose it for decoder-only language
    models; positions are never read, so that any length works.

    Args:
        dim: D.
        num_heads: H.
    """

    places = ("self",)
    causal_only = True
    shift_invariant = head_free_score = True

    def __init__(self, *, dim: int, num_heads: int):
        super().__init__()
        self.dim, self.num_heads = dim, num_heads
        self.gate = nn.Linear(dim, num_heads)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.zeros_(self.gate.bias)

    def state(self, x: Tensor, pos: Tensor) -> Tensor:
        gate = self.gate(x)
        return F.logsigmoid(gate.to(torch.promote_types(gate.dtype, torch.float32)))  # (B, T, H)

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
        sums = state.transpose(1, 2).cumsum(-1)  # (B, H, K)
        at_q = sums[..., sums.shape[-1] - q.shape[2] :]  # (B, H, Q)
        return scores + (at_q.unsqueeze(-1) - sums.unsqueeze(-2)).to(scores.dtype)
