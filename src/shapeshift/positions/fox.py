"""Forgetting attention, FoX (Lin et al. 2025)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .base import Representation


class FoX(Representation):
    """A forget gate for each token and head, computed from the layer's input, lowers the scores of
    all earlier tokens (Lin et al. 2025, section 3).

        f_t = sigmoid(x_t w_f^T + b_f),  e_ij = q_i k_j^T / sqrt(E) + sum_{l = j + 1..i} log f_l

    With constant gates this is ALiBi. The sums are computed in float32 at least. Attention is
    causal, as in the paper; the gates of tokens that a mask forbids act, too. As in the released
    code, w_f starts with standard deviation 0.02, and b_f with zero. The paper's output gate, norms
    and token shift are not part of this kind.

    Learns from the text how far back each head looks, and needs no positions. Choose it for
    decoder-only language models. It takes memory for all pairs of tokens.

    Args:
        dim: D.
        num_heads: H.
    """

    places = ("self",)
    causal_only = True
    shift_invariant = head_free_score = position_free_score = True

    def __init__(self, *, dim: int, num_heads: int):
        super().__init__()
        self.dim, self.num_heads = dim, num_heads
        self.gate = nn.Linear(dim, num_heads)
        nn.init.normal_(self.gate.weight, std=0.02)
        nn.init.zeros_(self.gate.bias)

    def state(self, x: Tensor, pos: Tensor) -> Tensor:
        gate: Tensor = self.gate(x)  # (B, T, H)
        return F.logsigmoid(gate.to(torch.promote_types(gate.dtype, torch.float32)))

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
        # Above 0 for later keys alone, which a mask with finite numbers would not hide then.
        bias = (at_q.unsqueeze(-1) - sums.unsqueeze(-2)).clamp(max=0)  # (B, H, Q, K)
        return scores + bias.to(scores.dtype)
