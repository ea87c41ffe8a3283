"""The backend `packed`: PyTorch's kernels for sentences of several lengths on a GPU, which need no
mask.

FlashAttention is the faster one for long sentences, the memory-efficient kernel for short ones; the
latter also takes float32. With dropout, PyTorch's memory-efficient kernel draws numbers for the
gradients of packed sentences that are not those of its forward pass, so it is never used then.
"""

from __future__ import annotations

import torch
from torch import Tensor

from shapeshift import kernels
from shapeshift.attention.call import Call, split_heads
from shapeshift.attention.packing import Packing
from shapeshift.positions import Representation
from shapeshift.positions.pairs import autocast_inputs
from shapeshift.positions.turns import Turn, in_steps, rotate

aten = torch.ops.aten

SHORT = 128
"""Tokens of the longest sentence up to which the memory-efficient kernel is the faster one."""

WIDEST_FLASH = 192
"""Channels of a head; for more, FlashAttention has no gradients on some GPUs."""


def takes(position: Representation, width: int, dtype: torch.dtype, dropout_p: float) -> bool:
    """Return whether PyTorch's kernels accept heads of `width` channels in this dtype, and a
    position that adds nothing to scores and values, and rotates by `turn` if it does."""
    if any(map(position.acts, ("bias", "query_bias", "value_bias", "score"))) or width % 8:
        return False
    if position.acts("rotate") and not position.derives("rotate"):
        return False
    return _has_flash(dtype, width) or (dtype == torch.float32 and not dropout_p)


def _has_flash(dtype: torch.dtype, width: int) -> bool:
    return dtype in (torch.float16, torch.bfloat16) and width <= WIDEST_FLASH


def refuses(call: Call) -> str | None:
    if call.packing is None:
        return "it takes packed sentences only, as training makes them"
    if not call.has_varlen:
        return "it needs an NVIDIA GPU from Ampere on, with PyTorch's flash attention enabled"
    if call.biased or call.mixes:
        return "it computes nothing that a position adds to scores or to the output"
    if call.rotates and not call.position.derives("rotate"):
        return "rotate is overridden or hooked, and it reads turn alone"
    if not takes(call.position, call.E, call.dtype, call.dropout_p):
        with_dropout = " with dropout" * bool(call.dropout_p)
        return f"its kernels take no heads of {call.E} channels in {call.dtype}{with_dropout}"
    return None


def run(call: Call) -> Tensor:
    assert call.packing is not None
    side_q, side_k = call.packing
    heads = split_heads(call.inputs, call.H)  # (1, H, N, E)
    q, k, v = (x.squeeze(0).transpose(0, 1) for x in heads)  # (N, H, E)
    if call.rotates:
        turns = call.position.turns(heads[0], heads[1], call.pos_q, call.pos_new)
        q, k = _rotated(q, turns[0], side_q), _rotated(k, turns[1], side_k)
    q, k, v = autocast_inputs(q, k, v)
    where = side_q.bounds, side_k.bounds, side_q.longest, side_k.longest
    if _has_flash(call.dtype, call.E) and (call.dropout_p or max(where[2:]) > SHORT):
        return _flash(q, k, v, where, call.dropout_p, call.causal)
    return _efficient(q, k, v, where, call.causal)


def _rotated(x: Tensor, turn: Turn, side: Packing) -> Tensor:
    """Rotate `x (N, H, E)` by the turn of each token's place."""
    if kernels.serves_on_gpu(x) and not (turn.cos.requires_grad or turn.sin.requires_grad):
        from shapeshift.kernels import gpu

        heads = x.transpose(0, 1).unsqueeze(0)  # (1, H, N, E)
        rotated = gpu.rotate(heads, turn, in_steps, places=side.real)
        return rotated.squeeze(0).transpose(0, 1)
    places = side.real % turn.cos.shape[:2].numel()  # those of one sentence, if all share them
    cos, sin = (y.flatten(0, 1).index_select(0, places).unsqueeze(1) for y in turn[:2])
    # As N sentences of one token, so that the heads of a token stay side by side.
    return rotate(x.unsqueeze(2), turn._replace(cos=cos, sin=sin)).squeeze(2)


Where = tuple[Tensor, Tensor, int, int]
"""`bounds` and `longest` of queries and keys, in the order of PyTorch's operators."""


def _flash(q: Tensor, k: Tensor, v: Tensor, where: Where, dropout_p: float, causal: bool) -> Tensor:
    """Return the attention `(N, H, E)` of heads `(N, H, E)`."""
    options = dropout_p, causal, False
    out: Tensor = aten._flash_attention_forward.default(q, k, v, *where, *options)[0]
    return out


def _efficient(q: Tensor, k: Tensor, v: Tensor, where: Where, causal: bool) -> Tensor:
    """As `_flash`, without dropout, in any precision but float64."""
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    heads = (x.unsqueeze(0) for x in (q, k, v))
    options = 0.0, int(causal), wanted  # 1 masks keys behind the query, counted from the first ones
    out: Tensor = aten._efficient_attention_forward.default(*heads, None, *where, *options)[0]
    return out.squeeze(0)
