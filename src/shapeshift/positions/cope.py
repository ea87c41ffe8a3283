"""Contextual position encoding, CoPE (Golovneva et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .base import Representation
from .checks import whole_number


class CoPE(Representation):
    """Counts back from the query only the keys that a gate counts, such as the starts of words, so
    that positions depend on the text (Golovneva et al. 2024, section 4).

        g_ij = sigmoid(s_ij),  p_ij = min(sum_{l = j..i} g_il, num_positions - 1)
        e_ij = s_ij + q_i e[p_ij]^T,  s_ij = q_i k_j^T / sqrt(E)

    e has a trained vector for each whole number from 0 on, for all heads; between two of them,
    q_i e[p]^T is interpolated. As in the paper's code (appendix B), it is not divided by sqrt(E).
    The sums are computed in float32 at least. Attention is causal, as in the paper, and keys that a
    mask forbids are not counted. With a part that adds a bias, s_ij includes it.

    Differs from the paper's code in the initial values of e, which are drawn with standard
    deviation 0.02 and not zero.

    Learns what to count: words, sentences, or occurrences of a token. Choose it for decoders that
    have to count or to copy. It takes memory for all pairs of tokens.

    Args:
        head_dim: E.
        num_positions: rows of e; larger positions count as the last one.

    Raises:
        ShapeshiftError: if there is no row.
    """

    places = ("self",)
    causal_only = True
    shift_invariant = position_free_score = True

    def __init__(self, *, head_dim: int, num_positions: int = 64):
        super().__init__()
        self.head_dim = head_dim
        self.num_positions = whole_number("num_positions", num_positions, 1)
        self.weight = nn.Parameter(torch.empty(num_positions, head_dim))
        nn.init.normal_(self.weight, std=0.02)

    def score(
        self,
        scores: Tensor,
        q: Tensor,
        k: Tensor,
        state: Tensor | None,
        pos_q: Tensor,
        pos_k: Tensor,
    ) -> Tensor:
        wide = torch.promote_types(scores.dtype, torch.float32)
        gates = scores.to(wide).sigmoid()  # 0 where a mask forbids
        pos = gates.flip(-1).cumsum(-1).flip(-1).clamp(max=len(self.weight) - 1)  # (B, H, Q, K)
        lower = pos.detach().floor().long().clamp(min=0)  # NaN is no number of a row
        upper = (lower + 1).clamp(max=len(self.weight) - 1)
        by_row = (q * q.shape[-1] ** 0.5 @ self.weight.mT).to(wide)  # (B, H, Q, num_positions)
        logits = torch.lerp(by_row.gather(-1, lower), by_row.gather(-1, upper), pos - lower)
        return scores + logits.to(scores.dtype)
