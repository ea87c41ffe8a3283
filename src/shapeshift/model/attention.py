"""Multi-head attention that asks a position representation through its hooks."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift.positions import Representation

from .cache import KeyValues
from .dropout import dropout

FUSED_FROM = {torch.bfloat16: 512, torch.float32: 64, torch.float64: 64}
"""The number of keys from which PyTorch's fused kernel beats matmul + softmax on a CPU, measured
with `benchmarks/attention.py`: in bf16, explicit attention is several times faster at short
lengths."""


def prefers_fused(device: str, dtype: torch.dtype, num_keys: int, dropout: float) -> bool:
    """Return whether the fused kernel is the faster one; on every device but a CPU it is.

    With dropout PyTorch has none for CPUs and computes in steps, as we do, but keeps more.
    """
    return device != "cpu" or (dropout == 0 and num_keys >= FUSED_FROM.get(dtype, 0))


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(E)) V with H heads (Vaswani et al. 2017, section 3.2.2), and position
    wherever `position` puts it.

    Args:
        dim: D.
        num_heads: H; D must be a multiple.
        dropout: of the attention probabilities.
        position: see `shapeshift.positions.Representation`.
    """

    def __init__(self, dim: int, num_heads: int, dropout: float, position: Representation):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = dim // num_heads
        self.dropout = dropout
        self.position = position
        # One weight for the three projections: in self-attention they are one product.
        self.in_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_bias = nn.Parameter(torch.zeros(3 * dim))
        self.out = nn.Linear(dim, dim)
        for weight in (*self.in_weight.chunk(3), self.out.weight):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.out.bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        pos_q: Tensor,
        pos_k: Tensor,
        mask: Tensor | None,
        cache: KeyValues | None = None,
    ) -> Tensor:
        """Let `x (B, Q, D)` attend to `memory (B, K, D)`; in self-attention both are one tensor.

        Args:
            x, memory: inputs of the query, and of the key and value projections.
            pos_q, pos_k: positions of queries and of all keys, those in the cache first.
            mask: added to the scores, broadcastable to `(B, 1, Q, K)`; `-inf` forbids.
            cache: keys and values to continue; `memory` then holds the new ones alone, and may be
                empty (K = 0) when all are there.

        Returns:
            `(B, Q, D)`.
        """
        # In self-attention the queries are the new keys, and position need not be encoded twice.
        pos_new = pos_q if memory is x else pos_k[:, pos_k.shape[1] - memory.shape[1] :]
        q, k, v = self._project(*self.position.inputs(x, memory, memory, pos_q, pos_new))
        q, k = self.position.heads(q, k, pos_q, pos_new)
        if cache is not None:
            k, v = cache.append(k, v)
        heads = self._attend(q, k, v, pos_q, pos_k, mask)  # (B, H, Q, E)
        joined: Tensor = self.out(heads.transpose(1, 2).flatten(2))  # (B, Q, D)
        return joined

    def _project(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if q is k and k is v:
            made = F.linear(q, self.in_weight, self.in_bias).chunk(3, dim=-1)
        elif k is v:
            dim = q.shape[-1]
            query = F.linear(q, self.in_weight[:dim], self.in_bias[:dim])
            rest = F.linear(k, self.in_weight[dim:], self.in_bias[dim:])
            made = (query, *rest.chunk(2, dim=-1))
        else:
            weights, biases = self.in_weight.chunk(3), self.in_bias.chunk(3)
            made = tuple(map(F.linear, (q, k, v), weights, biases))
        q, k, v = (
            part.view(*part.shape[:2], self.num_heads, self.head_dim).transpose(1, 2)
            for part in made
        )  # (B, H, Q|K, E)
        return q, k, v

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor, mask: Tensor | None
    ) -> Tensor:
        bias = self.position.bias(q, pos_q, pos_k)
        dropped = self.dropout if self.training else 0.0
        if not self.position.mixes and prefers_fused(q.device.type, q.dtype, k.shape[2], dropped):
            added = mask if bias is None else bias if mask is None else bias + mask
            added = None if added is None else added.to(q.dtype)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=added, dropout_p=dropped)
        scores = (q * self.head_dim**-0.5) @ k.transpose(-1, -2)  # (B, H, Q, K)
        if bias is not None:
            scores = scores + bias
        if mask is not None:
            scores = scores + mask.to(scores.dtype)
        probs = dropout(scores.softmax(-1), self.dropout, self.training)
        heads = probs.to(v.dtype) @ v  # (B, H, Q, E)
        mixed = self.position.mix(probs, pos_q, pos_k)
        return heads if mixed is None else heads + mixed
