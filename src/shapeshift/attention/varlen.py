"""Attention of packed sentences on a GPU, by PyTorch's kernels for variable lengths, which need no
mask.

FlashAttention is the faster one for long sentences, the memory-efficient kernel for short ones; the
latter also takes float32. With dropout, PyTorch's memory-efficient kernel draws numbers for the
gradients of packed sentences that are not those of its forward pass, so it is never used then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.kernels import Turn
from shapeshift.positions import Representation
from shapeshift.positions.base import known_turns
from shapeshift.positions.pairs import autocast_dtype, autocast_inputs
from shapeshift.positions.rotary import rotate

from . import backends

aten = torch.ops.aten

SHORT = 128
"""Tokens of the longest sentence up to which the memory-efficient kernel is the faster one."""

WIDEST_FLASH = 192
"""Channels of a head; for more, FlashAttention has no gradients on some GPUs."""


class Sentences(NamedTuple):
    """The real tokens of a padded batch, one after the other."""

    real: Tensor
    """Places of the tokens in the flattened `(B, T)` ids, `(N,)`."""
    bounds: Tensor
    """The first token of each sentence, and N at the end, `(B + 1,)` int32."""
    longest: int
    """No sentence has more tokens; from 1 to N."""


def serves(device: torch.device) -> bool:
    """Return whether a device has the kernels: NVIDIA's from Ampere on. They have no second
    derivative, so `sdpa_kernel(SDPBackend.MATH)` switches them off, as it does PyTorch's others."""
    if device.type != "cuda" or torch.compiler.is_compiling():
        return device.type == "cuda"  # compiled layers are packed where it has been asked before
    enabled: Any = torch.backends.cuda.flash_sdp_enabled
    return _serves(device) and bool(enabled())


@cache
def _serves(device: torch.device) -> bool:
    if torch.version.hip or not torch.backends.cuda.is_flash_attention_available():
        return False
    return torch.cuda.get_device_capability(device) >= (8, 0)


def takes(position: Representation, width: int, dtype: torch.dtype, dropout_p: float) -> bool:
    """Return whether the kernels take heads of `width` channels, in a precision, with a position
    that adds nothing to scores and values."""
    if any(map(position.overrides, ("bias", "query_bias", "value_bias"))) or width % 8:
        return False
    return _has_flash(dtype, width) or (dtype == torch.float32 and not dropout_p)


def _has_flash(dtype: torch.dtype, width: int) -> bool:
    return dtype in (torch.float16, torch.bfloat16) and width <= WIDEST_FLASH


def attend_packed(
    heads: Sequence[Tensor],
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
    side_q: Sentences,
    side_k: Sentences,
    dropout_p: float = 0.0,
    *,
    causal: bool = False,
) -> Tensor | None:
    """Return the attention `(N, H · E)` of packed tokens to those of their sentences; None where
    the kernels do not serve for heads and position, on a device for which they do.

    They serve if the position adds nothing to scores and values, and rotates pairs of channels if
    it rotates at all.

    Args:
        heads: queries, not scaled, keys and values `(1, H, N, E)`, before they rotate; N is that of
            their side.
        position: its `turns` is called.
        pos_q, pos_k: positions `(B|1, T)` of the padded batch.
        side_q, side_k: the B sentences on the side of the queries and of the keys.
        dropout_p: of the probabilities; 0 in evaluation.
        causal: whether each query sees only the keys up to its own; both sides are then one.
    """
    if backends.is_recording():
        return None
    dtype, width = autocast_dtype(heads[0]), heads[0].shape[-1]
    if not takes(position, width, dtype, dropout_p):
        return None
    q, k, v = (x.squeeze(0).transpose(0, 1) for x in heads)  # (N, H, E)
    if position.overrides("rotate"):
        turns = known_turns(position, heads[0], heads[1], pos_q, pos_k)
        if turns is None:
            return None
        q, k = _rotated(q, turns[0], side_q), _rotated(k, turns[1], side_k)
    q, k, v = autocast_inputs(q, k, v)
    where = side_q.bounds, side_k.bounds, side_q.longest, side_k.longest
    if _has_flash(dtype, width) and (dropout_p or max(where[2:]) > SHORT):
        return _flash(q, k, v, where, dropout_p, causal).flatten(1)
    return _efficient(q, k, v, where, causal).flatten(1)


def _rotated(x: Tensor, turn: Turn, side: Sentences) -> Tensor:
    """Rotate `x (N, H, E)` by the turn of each token's place."""
    if kernels.serves_on_gpu(x) and not (turn.cos.requires_grad or turn.sin.requires_grad):
        from shapeshift.kernels import gpu

        heads = x.transpose(0, 1).unsqueeze(0)  # (1, H, N, E)
        return gpu.rotate(heads, turn, places=side.real).squeeze(0).transpose(0, 1)
    places = side.real % turn.cos.shape[:2].numel()  # those of one sentence, if all share them
    cos, sin = (y.flatten(0, 1).index_select(0, places).unsqueeze(1) for y in turn[:2])
    # As N sentences of one token, so that the heads of a token stay side by side.
    return rotate(x.unsqueeze(2), Turn(cos, sin, turn.halves)).squeeze(2)


Where = tuple[Tensor, Tensor, int, int]
"""`bounds` and `longest` of queries and keys, in the order of PyTorch's operators."""


def _flash(q: Tensor, k: Tensor, v: Tensor, where: Where, dropout_p: float, causal: bool) -> Tensor:
    """Return the attention `(N, H, E)` of heads `(N, H, E)`."""
    how = dropout_p, causal, False
    out: Tensor = aten._flash_attention_forward.default(q, k, v, *where, *how)[0]
    return out


def _efficient(q: Tensor, k: Tensor, v: Tensor, where: Where, causal: bool) -> Tensor:
    """As `_flash`, without dropout, in any precision but float64."""
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    heads = (x.unsqueeze(0) for x in (q, k, v))
    how = 0.0, int(causal), wanted  # 1 masks keys behind the query, counted from the first ones
    out: Tensor = aten._efficient_attention_forward.default(*heads, None, *where, *how)[0]
    return out.squeeze(0)
