"""Encoder and decoder layers and the embedding below them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention.dropout import add_dropped, dropout
from shapeshift.attention.packing import Packing
from shapeshift.positions import Absolute, Representation
from shapeshift.positions.checks import describe

from .attention import Attention
from .cache import FixedKeyValues, KeyValues, SourceKeyValues
from .linear import apply_linear, can_fuse

NORM_EPS = 1e-6


class Embedding(nn.Module):
    """dropout(position.embed(sqrt(D) · token)): the scale and the dropout are there whatever the
    position representation is (the released SHAPE code lost both for its relative baseline).

    Args:
        tokens: the token table `(V, D)`; its weight may be that of another side or the output.
        position_ids: numbers the tokens.
        position: acts at the embedding.
        dropout: of the sum.
    """

    def __init__(
        self, tokens: nn.Embedding, position_ids: Absolute, position: Representation, dropout: float
    ):
        super().__init__()
        self.tokens = tokens
        self.position_ids = position_ids
        self.position = position
        self.dropout = dropout
        self.scale = tokens.embedding_dim**0.5

    def forward(
        self,
        ids: Tensor,
        *,
        start: int = 0,
        offset: int | Tensor | None = None,
        pos: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the embeddings `(B, T, D)` of `ids (B, T)` and their positions `(B|1, T)`: `pos`,
        or as `position_ids` numbers them.

        Raises:
            ShapeshiftError: `ids` are not whole numbers in two dimensions.
        """
        if ids.ndim != 2 or ids.dtype not in (torch.int64, torch.int32):
            raise ShapeshiftError(
                "token ids must be an integer tensor (B, T), one row for each sentence, got"
                f" {describe(ids)}"
            )
        if pos is None:
            pos = self.position_ids(
                *ids.shape, start=start, offset=offset, device=ids.device, tokens=ids
            )
        x = self.position("embed", self.tokens(ids) * self.scale, pos)
        return dropout(x, self.dropout, self.training), pos


class FeedForward(nn.Module):
    """max(0, x W1 + b1) W2 + b2 (Vaswani et al. 2017, equation 2), or with GELU or SiLU."""

    def __init__(self, dim: int, ff_dim: int, activation: str, dropout: float):
        super().__init__()
        self.inner = nn.Linear(dim, ff_dim)
        self.outer = nn.Linear(ff_dim, dim)
        activations = {"relu": nn.ReLU(), "gelu": nn.GELU(), "silu": nn.SiLU()}
        self.activation: nn.Module = activations[activation]
        self.dropout = dropout
        for linear in (self.inner, self.outer):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        # One row a token: the gradient of what is done to a view in place is copied twice.
        hidden = apply_linear(self.inner, x.flatten(0, -2))
        # In place, unless a hook or another module sees what is overwritten.
        relu = can_fuse(self.inner, self.activation) and type(self.activation) is nn.ReLU
        hidden = hidden if relu else self.activation(hidden)
        out = apply_linear(self.outer, dropout(hidden, self.dropout, self.training, relu))
        return out.view(x.shape)


class Residual(nn.Module):
    """x + dropout(f(norm(x))) (pre-norm) or norm(x + dropout(f(x))) (post-norm, the paper's)."""

    def __init__(self, dim: int, dropout: float, pre_norm: bool):
        super().__init__()
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.dropout = dropout
        self.pre_norm = pre_norm

    def forward(self, x: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return add_dropped(x, branch(self.norm(x)), self.dropout, self.training)
        total: Tensor = self.norm(add_dropped(x, branch(x), self.dropout, self.training))
        return total


@dataclass
class Memory:
    """What the decoder sees of the source: `hidden (B, S, D)`, its positions, a mask to add."""

    hidden: Tensor
    pos: Tensor
    mask: Tensor


# An exported encoder returns it, and a decoder takes it. A saved program names it and has one as an
# example.
torch.export.register_dataclass(Memory, serialized_type_name="shapeshift.model.Memory")
torch.serialization.add_safe_globals([Memory])


LayerCache = tuple[KeyValues | FixedKeyValues, SourceKeyValues]
"""Keys and values of both attentions of a decoder layer."""


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer, each in a residual."""

    def __init__(self, attention: Attention, feed_forward: FeedForward, residual: list[Residual]):
        super().__init__()
        self.attention = attention
        self.feed_forward = feed_forward
        self.around_attention, self.around_feed_forward = residual

    def forward(
        self, x: Tensor, pos: Tensor, mask: Tensor | None, packing: Packing | None = None
    ) -> Tensor:
        """`x (B, S, D)`, `pos (B|1, S)`, `mask` to add to the scores -> `(B, S, D)`; packed,
        `(N, D)` -> `(N, D)`."""
        both = packing and (packing, packing)
        x = self.around_attention(x, lambda h: self.attention(h, h, pos, pos, mask, packing=both))
        out: Tensor = self.around_feed_forward(x, self.feed_forward)
        return out


class DecoderLayer(nn.Module):
    """Self-attention, attention to the source, and a feed-forward layer, each in a residual."""

    def __init__(
        self,
        attention: Attention,
        cross_attention: Attention,
        feed_forward: FeedForward,
        residual: list[Residual],
    ):
        super().__init__()
        self.attention = attention
        self.cross_attention = cross_attention
        self.feed_forward = feed_forward
        self.around_attention, self.around_cross_attention, self.around_feed_forward = residual

    def forward(
        self,
        x: Tensor,
        pos_q: Tensor,
        pos_k: Tensor,
        memory: Memory,
        cache: LayerCache | None = None,
        packing: tuple[Packing, Packing] | None = None,
    ) -> Tensor:
        """Return `(N, Q, D)` for `x (N, Q, D)`; with the packing of the source and of the target,
        `(N, D)` for the N real tokens `x (N, D)`.

        While decoding, N may be a multiple of the memory's B: the beams of a sentence stand side by
        side and look at one copy of its source.
        """
        own, cross = cache or (None, None)
        both = packing and (packing[1], packing[1])

        def look(h: Tensor) -> Tensor:
            attend, seen = self.cross_attention, (memory.pos, memory.mask)
            out: Tensor
            if cross is None:
                sides = packing and (packing[1], packing[0])
                out = attend(h, memory.hidden, pos_q, *seen, packing=sides)
                return out
            num_sentences = memory.hidden.shape[0]
            beam = h.shape[0] // num_sentences
            queries = h.reshape(num_sentences, -1, h.shape[-1])  # (B, beam · Q, D)
            pos = pos_q if pos_q.shape[0] > 1 else pos_q.expand(beam, -1)
            pos = pos.reshape(-1, beam * pos_q.shape[1])  # (B|1, beam · Q)
            fresh = memory.hidden if cross.length == 0 else memory.hidden[:, :0]
            out = attend(queries, fresh, pos, *seen, cross)
            return out.reshape(h.shape)

        x = self.around_attention(
            x, lambda h: self.attention(h, h, pos_q, pos_k, None, own, causal=True, packing=both)
        )
        x = self.around_cross_attention(x, look)
        out: Tensor = self.around_feed_forward(x, self.feed_forward)
        return out
