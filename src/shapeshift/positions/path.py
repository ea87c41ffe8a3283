"""PaTH attention (Yang et al. 2025)."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError
from shapeshift.kernels import is_traced

from .base import Representation
from .checks import can_read, check_last, whole_number


class PaTH(Representation):
    """Between a key and a query, each token transforms the key by a Householder-like matrix that
    depends on the token (Yang et al. 2025, "PaTH Attention", section 2).

        e_ij = q_i^T H_i H_{i-1} … H_{j+1} k_j / sqrt(E),  H_t = I - β_t w_t w_t^T
        β_t = 2 sigmoid(x_t u^T + b),  w_t = normalised silu(convolution of x W_1 W_2 up to t)

    H_t differs between heads. W_1 projects the layer's input to `rank` channels, W_2 to those of
    the heads; the convolution has a weight for each channel and each of the last `conv_size`
    tokens. Weights start as in PyTorch's `Linear` and `Conv1d`, as in the released layer.

    The convolution reads a token only if some query sees both it and the token t, so that it reads
    neither padding nor another text of a packed row; a token that no query sees leaves keys as they
    are. Scores of -inf, or near the lowest number, count as not seen. A sliding window, which hides
    tokens of the same text, is an error where masks can be read, on a CPU. Products are computed
    in at least float32, for all tokens at once as in the paper's section 3, without its blocks.

    The paper's forget gate (PaTH-FoX) is not part of this kind.

    Tracks what changes along a text, such as the values of variables. Choose it for decoder-only
    models whose tasks need that. It takes memory for all pairs of tokens, and time for all triples.

    Args:
        dim: D.
        num_heads: H.
        head_dim: E.
        rank: channels between W_1 and W_2; 32 in the paper.
        conv_size: tokens of the convolution; 3 in the paper. With 0 there is neither a convolution
            nor silu.

    Raises:
        ShapeshiftError: if `rank` is below 1 or `conv_size` below 0; in `score`, if the queries are
            not the last keys, or one sees fewer tokens of its text than the query before.
    """

    places = ("self",)
    causal_only = True
    shift_invariant = position_free_score = True

    def __init__(
        self, *, dim: int, num_heads: int, head_dim: int, rank: int = 32, conv_size: int = 3
    ):
        super().__init__()
        self.dim, self.num_heads, self.head_dim = dim, num_heads, head_dim
        self.rank = whole_number("rank", rank, 1)
        self.conv_size = whole_number("conv_size", conv_size, 0)
        self.down = nn.Linear(dim, rank, bias=False)  # W_1
        self.up = nn.Linear(rank, num_heads * head_dim, bias=False)  # W_2
        self.beta = nn.Linear(dim, num_heads)  # u and b
        # Of the token itself, of the one before, and so on.
        self.conv = nn.Parameter(torch.empty(conv_size, num_heads * head_dim))
        bound = max(conv_size, 1) ** -0.5
        nn.init.uniform_(self.conv, -bound, bound)

    def state(self, x: Tensor, pos: Tensor) -> Tensor:
        return torch.cat((self.down(x), self.beta(x)), dim=-1)  # (B, T, rank + H)

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
        num_queries, num_keys = scores.shape[2:]
        dtype = torch.promote_types(scores.dtype, torch.float32)
        low, beta = torch.split(state, [self.rank, self.num_heads], dim=-1)
        seen = (scores > torch.finfo(scores.dtype).min / 4).any(1)  # (B, Q, K)
        if self.conv_size > 1 and can_read(seen) and not is_traced():
            before, after = seen[:, :-1], seen[:, 1:]
            if ((before & ~after).any(-1) & (before & after).any(-1)).any():
                raise ShapeshiftError(
                    "PaTH takes from the mask which tokens are one text, and here a query sees"
                    " fewer of them than the query before, as in a sliding window; leave the window"
                    " out, or use conv_size=1"
                )
        raw: Tensor = self.up(low)
        device = scores.device.type
        casts = torch.amp.is_autocast_available(device)  # not on the meta device
        with torch.autocast(device, enabled=False) if casts else nullcontext():
            w = self._vectors(raw.to(dtype), seen).transpose(1, 2)  # (B, H, K, E)
            scaled = 2 * beta.to(dtype).sigmoid().mT.unsqueeze(-1) * w
            q, k = q.to(dtype), k.to(dtype)
            # With T = (I + tril(β w w^T, -1))^-1, the product is I - w^T T (β w) for all tokens,
            # and from j + 1 to i if q_i meets w up to i, and k_j from j + 1 on.
            steps = (scaled @ w.mT).tril(-1)  # (B, H, K, K)
            of_queries = (q @ w.mT).tril(num_keys - num_queries)  # (B, H, Q, K)
            of_keys = (scaled @ k.mT).tril(-1)  # (B, H, K, K)
            solved: Tensor = torch.linalg.solve_triangular(
                steps, of_queries, upper=False, left=False, unitriangular=True
            )
            removed: Tensor = solved @ of_keys
        return scores - removed.to(scores.dtype)

    def _vectors(self, raw: Tensor, seen: Tensor) -> Tensor:
        """Return w `(B, K, H, E)` of `raw (B, K, H · E)`; zero for tokens that no query sees."""
        num_keys = raw.shape[1]

        def together(n: int) -> Tensor:  # whether a query sees a token and the n-th before it
            return (seen & F.pad(seen, (n, 0))[..., :num_keys]).any(1).unsqueeze(-1)  # (B, K, 1)

        if self.conv_size:
            taps = (
                F.pad(raw, (0, 0, n, 0))[:, :num_keys] * together(n) * weight
                for n, weight in enumerate(self.conv.to(raw.dtype))
            )
            raw = F.silu(sum(taps, torch.zeros_like(raw)))
        w = (raw * together(0)).view(*raw.shape[:2], self.num_heads, self.head_dim)
        return w * torch.rsqrt(w.square().sum(-1, keepdim=True) + 1e-6)
