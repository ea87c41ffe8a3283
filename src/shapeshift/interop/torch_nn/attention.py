"""torch.nn's attention with a position representation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend, attend_with_probs
from shapeshift.attention.call import split_heads
from shapeshift.attention.masks import additive
from shapeshift.positions import Representation
from shapeshift.positions.checks import check_positions
from shapeshift.positions.pairs import autocast_dtype

from .checks import (
    build,
    check_counting,
    check_dense,
    check_extra_keys,
    check_inputs,
    check_mask,
    check_seeing_right,
    check_widths,
)


class MultiheadAttention(nn.MultiheadAttention):
    """`torch.nn.MultiheadAttention` plus `position`.

    For a query whose keys are all masked, the probabilities are zeros, the output is the bias of
    the output projection, and no gradient flows back; in torch.nn, the output may be NaN. Errors
    are `ShapeshiftError`s. Nested tensors and `torch.jit.script` are not supported.

    Args:
        embed_dim: D.
        num_heads: H; D must be a multiple.
        dropout: of the attention probabilities.
        bias: whether the projections have one.
        add_bias_kv: whether to append a learned key and value; only without a position.
        add_zero_attn: whether to append a key and value of zeros; only without a position.
        kdim, vdim: width of key and value, D by default. A position that is added to the inputs of
            the projections, such as `Sinusoidal`, needs a key and value of width D.
        batch_first: whether tensors are `(B, T, D)` rather than `(T, B, D)`.
        position: acts in the attention, see `shapeshift.positions.Representation`; or the name of
            a scheme or a kind, see `shapeshift.positions.get`; None is none. For sines and cosines
            in each attention, which "ape" is not, give `Sinusoidal(dim=D, add_to="qk")`.
        device, dtype: of the projections and of the position's weights, which are moved and cast
            with them.

    Raises:
        ShapeshiftError: if `position` was built for another D, H or E, names a scheme that acts at
            the embedding, or does not work with `add_bias_kv`, `add_zero_attn`, `kdim` or `vdim`.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        position: Representation | str | None = None,
    ):
        arguments: dict[str, Any] = {"device": device, "dtype": dtype, "batch_first": batch_first}
        arguments |= {"add_bias_kv": add_bias_kv, "add_zero_attn": add_zero_attn}
        super().__init__(embed_dim, num_heads, dropout, bias, kdim=kdim, vdim=vdim, **arguments)
        sizes = {"dim": embed_dim, "num_heads": num_heads, "head_dim": self.head_dim}
        built = build(position, **sizes)
        check_widths(built, embed_dim, self.kdim, self.vdim)
        check_extra_keys(built, self._num_extra_keys())
        self.position = built.to(device=device, dtype=dtype)

    def _reset_parameters(self) -> None:
        """Reinitialise the projections as torch does; the position keeps its weights."""
        self._qkv_same_embed_dim = self._has_one_width()
        super()._reset_parameters()
        self._qkv_same_embed_dim = False  # keeps torch's stacks from their fused fast path

    def _has_one_width(self) -> bool:
        """Return whether one parameter holds the weights of the three projections, as in torch."""
        return bool(self.kdim == self.vdim == self.embed_dim)

    def _weights(self) -> Sequence[Tensor]:
        """Return the weights of the projections of queries, keys and values."""
        if self._has_one_width():
            return self.in_proj_weight.chunk(3)
        return self.q_proj_weight, self.k_proj_weight, self.v_proj_weight

    def _num_extra_keys(self) -> int:
        return (self.bias_k is not None) + bool(self.add_zero_attn)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
        *,
        pos_q: Tensor | None = None,
        pos_k: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """As `torch.nn.MultiheadAttention.forward`; masks have its meaning, true = *not* allowed.

        Args:
            query: `(Q, B, D)`, or `(B, Q, D)` if `batch_first`, or `(Q, D)`; likewise key and
                value, with K, and `kdim` or `vdim` for D.
            key_padding_mask: `(B, K)` or `(K,)`, boolean (true = padding), or a float to add.
            need_weights: whether to return the probabilities.
            attn_mask: `(Q, K)` or `(B · H, Q, K)`, boolean or a float to add.
            average_attn_weights: over the heads.
            is_causal: a hint that `attn_mask` is the causal mask, as in torch; it is not needed.
            pos_q, pos_k: positions `(B|1, Q|K)`, batch first whatever `batch_first` is. Give both,
                or one where key and query are one tensor, for both. Without them, both count from
                0: queries that are the last of the keys' tokens, as with a cache, need positions.

        Returns:
            The output, shaped as `query`, and the probabilities `(B, Q, K)` (`(B, H, Q, K)` if not
            averaged; no B if there was none) or None. Their last columns are those of the learned
            key and of the key of zeros, if there are any.

        Raises:
            ShapeshiftError: if query, key and value do not fit each other or are nested tensors;
                positions are no integers, a mask is neither boolean nor float, or one of them has
                another shape; one side's positions come without the other's, and key is another
                tensor than query; `is_causal` comes without the mask, a query sees keys at higher
                positions, for which the position has no meaning, or Q ≠ K without `pos_q` and the
                position has none between two sequences.
        """
        if is_causal and attn_mask is None:
            raise ShapeshiftError("is_causal is a hint about attn_mask: give the causal mask, too")
        is_self = key is query
        if is_self:
            pos_q, pos_k = (pos_k if pos_q is None else pos_q), (pos_q if pos_k is None else pos_k)
        elif (pos_q is None) != (pos_k is None):
            raise ShapeshiftError(
                "give pos_q and pos_k, or neither, where key is another tensor than query;"
                " torch.arange(T)[None] counts from 0"
            )
        check_dense(query, key, value)
        batched = query.ndim == 3
        if not batched:
            query, key, value = query[None], key[None], value[None]
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        check_inputs(query, key, value, self.embed_dim, self.kdim, self.vdim)
        (B, Q, _), K = query.shape, key.shape[1]
        check_mask("attn_mask", attn_mask, (Q, K), (B * self.num_heads, Q, K))
        check_mask("key_padding_mask", key_padding_mask, (B, K) if batched else (K,))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.view(B, 1, 1, K)
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.view(B, self.num_heads, Q, K)
        if pos_q is None:
            check_counting(self.position, Q, K)
            pos_q = _counted(query)
        if pos_k is None:  # one tensor in self-attention: what depends on it is computed once
            pos_k = pos_q if is_self else _counted(key)
        num_axes = self.position.num_axes
        pos_q = check_positions("pos_q", pos_q, B, Q, num_axes)
        pos_k = check_positions("pos_k", pos_k, B, K, num_axes)
        inputs = self.position("inputs", query, key, value, pos_q, pos_k)
        biases = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        projected = map(F.linear, inputs, self._weights(), biases)
        q, k, v = split_heads(list(projected), self.num_heads)  # (B, H, Q|K, E)
        q, k = self.position("rotate", q, k, pos_q, pos_k)
        masks = [
            _additive(x, autocast_dtype(q)) for x in (attn_mask, key_padding_mask) if x is not None
        ]
        added = sum(masks[1:], masks[0]) if masks else None  # broadcasts to (B, H, Q, K)
        padding = key_padding_mask if is_self else None
        unmasked = is_self and attn_mask is None and Q > 1
        check_seeing_right(self.position, pos_q, pos_k, added, padding, unmasked=unmasked)
        if extra := self._num_extra_keys():
            check_extra_keys(self.position, extra)
            k, v = self._extended(k, self.bias_k), self._extended(v, self.bias_v)
            pos_k = F.pad(pos_k, (0, extra))  # no position reads it
            added = None if added is None else F.pad(added, (0, extra))
        state = self.position("state", key, pos_k)
        rest = self.position, pos_q, pos_k, self.dropout if self.training else 0.0
        probs = None
        if need_weights:
            heads, probs = attend_with_probs(q, k, v, added, *rest, state=state)
        else:
            heads = attend(q, k, v, added, *rest, state=state)
        out: Tensor = self.out_proj(heads.transpose(1, 2).flatten(2))  # (B, Q, D)
        if probs is not None and average_attn_weights:
            probs = probs.mean(1)  # (B, Q, K)
        if not batched:
            return out[0], None if probs is None else probs[0]
        return out if self.batch_first else out.transpose(0, 1), probs

    def _extended(self, x: Tensor, learned: Tensor | None) -> Tensor:
        """Return heads `x (B, H, K, E)`, extended by the learned key or value `(1, 1, D)` and by
        zeros."""
        B, H, _, E = x.shape
        heads = [x]
        if learned is not None:
            heads.append(learned.to(x.dtype).view(1, H, 1, E).expand(B, -1, -1, -1))
        if self.add_zero_attn:
            heads.append(x.new_zeros(B, H, 1, E))
        return torch.cat(heads, dim=2)  # (B, H, K + 1 | 2, E)


def _counted(x: Tensor) -> Tensor:
    return torch.arange(x.shape[1], device=x.device).unsqueeze(0)  # (1, T)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return additive(~mask if mask.dtype is torch.bool else mask, dtype)
