"""Checks of heads, positions and masks."""

from __future__ import annotations

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.kernels.attention import broadcasts
from shapeshift.kernels.library import wrong_size
from shapeshift.positions import Representation, pairs
from shapeshift.positions.base import check_heads, check_sizes
from shapeshift.positions.checks import describe


def check_call(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
    state: Tensor | None,
) -> None:
    """Raise a `ShapeshiftError` if heads or positions would broadcast, or be read beyond their
    end, or if a state is missing, has another size or is not read."""
    fits = q.ndim == k.ndim == v.ndim == 4 and k.shape[:3] == v.shape[:3]
    widens = not position.derives("rotate")  # and may return another width than E
    if fits and not widens:
        fits = k.shape[3] == v.shape[3]
    if not fits or q.shape[:2] != k.shape[:2] or q.shape[3] != k.shape[3]:
        raise ShapeshiftError(
            "queries must be (B, H, Q, E), keys and values (B, H, K, E), got"
            f" {', '.join(map(describe, (q, k, v)))}; repeat the keys and values of grouped-query"
            " heads with repeat_interleave"
        )
    device = q.device.type
    casts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    one_dtype = casts or q.dtype == k.dtype == v.dtype
    if not one_dtype or not q.device == k.device == v.device:
        raise ShapeshiftError(
            "queries, keys and values must have one dtype and device, got"
            f" {', '.join(f'{describe(x)} on {x.device}' for x in (q, k, v))}; convert them with"
            " .to(q)"
        )
    check_heads(q, k, pos_q, pos_k, position.num_axes)
    check_sizes(position, num_heads=q.shape[1], head_dim=v.shape[3])
    kinds = [kind for kind in position.kinds() if kind.acts("state")]
    name = type(kinds[0] if kinds else position).__name__
    B, _, K, _ = k.shape
    if not position.acts("state"):
        if state is not None:
            raise ShapeshiftError(f"{name} reads no state, got {describe(state)}; leave state out")
    elif state is None or state.ndim != 3 or state.shape[:2] != (B, K):
        raise ShapeshiftError(
            f"{name} needs the state of the keys, ({B}, {K}, F), got {describe(state)}; give"
            " state=position('state', x, pos_k) with the layer's input x"
        )


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a mask in `dtype` to add to scores, so that the scores are not cast; see `attend`."""
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, float("-inf"))
    if not mask.is_floating_point():
        raise ShapeshiftError(
            "a mask must be boolean, true where attention is allowed, or a float that is added to"
            f" the scores, got {describe(mask)}; give mask.bool() if its ones are what is allowed"
        )
    mask = mask if mask.ndim > 1 else mask.view(1, -1)
    fits = torch.finfo(mask.dtype).max <= torch.finfo(dtype).max
    if fits and dtype != torch.float16:
        return mask.to(dtype)
    # A forbidding number such as the lowest of float32 would become -inf, and a row of it NaN. With
    # half of the range, it does not overflow when a bias is added either, which in float16 is near.
    limit = torch.finfo(dtype).max / 2
    return torch.where(mask.isinf(), mask, mask.clamp(-limit, limit)).to(dtype)


def additive_for(mask: Tensor, q: Tensor, num_keys: int) -> Tensor:
    """Return `additive` for queries `(B, H, Q, E)`.

    Raises:
        ShapeshiftError: if the mask cannot be broadcast to `(B, H, Q, K)`, or is elsewhere.
    """
    wanted = *q.shape[:3], num_keys
    if mask.device != q.device:
        raise ShapeshiftError(
            f"a mask must be on the device of the heads, {q.device}, got {mask.device}; move it"
            " with .to(q.device)"
        )
    if not broadcasts(mask.shape, wanted):
        raise wrong_size("a mask", mask.shape, f"(B, H, Q, K) = {wanted}, or 1")
    return additive(mask, pairs.autocast_dtype(q))
