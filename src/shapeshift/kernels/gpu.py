"""The loss and rotations in Triton, for a GPU. They read and write tensors once; plain PyTorch
needs separate passes for casts and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import needs_steps
from .library import wrong_size


def cross_entropy(
    logits: Tensor, target: Tensor, confidence: float, replace: bool
) -> tuple[Tensor, Tensor]:
    """See `shapeshift.model.loss._softmax`; `logits (N, V)` are contiguous, and so is `target`. An
    id that is in no vocabulary has a log probability of NaN."""
    num_rows, width = logits.shape
    found = torch.empty(2, num_rows, device=logits.device)
    with torch.cuda.device_of(logits):
        _cross_entropy[(num_rows,)](
            logits, target, *found, confidence, width, BLOCK=4096, REPLACES=replace, num_warps=8
        )
    return found[0], found[1]


def rotate(
    x: Tensor, turn: Any, in_steps: Callable[[Tensor, Any], Tensor], places: Tensor | None = None
) -> Tensor:
    """Rotate r channels of `x (B, H, T, E)` in float32, and multiply the others.

    Args:
        turn: of each token, a `Turn` with its scale in cosines and sines `(B|1, T, r/2)`.
        in_steps: does the same in steps of PyTorch, for the gradient of a gradient.
        places: of tokens in the flattened `(B|1, T)` of `turn`, modulo their number; `x` is then
            `(1, H, N, E)`.

    Raises:
        ShapeshiftError: if the sizes do not fit each other.
    """
    cos, sin = turn[:2]
    size, (B, _, T, E) = cos.shape, x.shape
    fits = size == sin.shape and len(size) == 3 and 2 * size[2] <= E
    if not fits or (places is None and (size[0] not in (1, B) or size[1] != T)):
        raise wrong_size("cosines and sines of turns", size, f"(B or 1, T, pairs) = {B, T, E // 2}")
    rotated: Tensor = _Rotation.apply(x, cos, sin, places, turn, in_steps)
    return rotated


class _Rotation(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        places: Tensor | None,
        turn: Any,
        in_steps: Callable[[Tensor, Any], Tensor],
    ) -> Tensor:
        cos, sin = cos.float().contiguous(), sin.float().contiguous()
        ctx.save_for_backward(cos, sin, places)
        ctx.turn, ctx.in_steps = turn._replace(cos=None, sin=None), in_steps
        return _turned(x, cos, sin, places, ctx.turn, 1.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin, places = ctx.saved_tensors
        if not needs_steps(grad):
            return _turned(grad, cos, sin, places, ctx.turn, -1.0), *(None,) * 5
        if places is not None:
            places = places % cos.shape[:2].numel()
            cos, sin = (y.flatten(0, 1).index_select(0, places)[None] for y in (cos, sin))
        return ctx.in_steps(grad, ctx.turn._replace(cos=cos, sin=-sin)), *(None,) * 5


def _turned(
    x: Tensor, cos: Tensor, sin: Tensor, places: Tensor | None, turn: Any, sign: float
) -> Tensor:
    B, H, T, E = x.shape
    x = x if x.stride(-1) == 1 else x.contiguous()
    out = x.new_empty(B, T, H, E).transpose(1, 2)
    width = triton.next_power_of_2(cos.shape[-1])
    tokens = max(1, 512 // width)
    with torch.cuda.device_of(x):
        _rotate[(triton.cdiv(B * T, tokens),)](
            x, cos, sin, places, out, *x.stride()[:3], *out.stride()[:3],
            H, T, B * T, cos.shape[:2].numel(), sign, turn.scale,
            E=E, PAIRS=cos.shape[-1], WIDTH=width, REST=triton.next_power_of_2(E), TOKENS=tokens,
            HALVES=turn.halves, PLACED=places is not None,
        )  # fmt: skip
    return out


@triton.jit
def _cross_entropy(
    logits, target, log_sums, log_probs, confidence, width,
    BLOCK: tl.constexpr, REPLACES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    logits += row.to(tl.int64) * width
    right = tl.load(target + row)
    # Before the sums, at which all threads wait: later it may have been replaced.
    is_id = (right >= 0) & (right < width)
    picked = tl.load(logits + right, mask=is_id, other=float("nan")).to(tl.float32)
    lane = tl.arange(0, BLOCK)
    peaks = tl.full((BLOCK,), -1e38, tl.float32)
    totals = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, width, BLOCK):
        at = start + lane
        found = tl.load(logits + at, mask=at < width, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(peaks, found)
        totals = totals * tl.exp(peaks - higher) + tl.exp(found - higher)
        peaks = higher
    peak = tl.max(peaks, 0)
    total = tl.sum(totals * tl.exp(peaks - peak), 0)
    tl.store(log_sums + row, peak + tl.log(total))
    tl.store(log_probs + row, picked - peak - tl.log(total))
    if REPLACES:
        for start in range(0, width, BLOCK):
            at = start + lane
            found = tl.load(logits + at, mask=at < width, other=0.0).to(tl.float32)
            found = tl.exp(found - peak) / total
            found = tl.where(at == right, found - confidence, found)
            tl.store(logits + at, found.to(logits.dtype.element_ty), mask=at < width)


@triton.jit(do_not_specialize=["length", "num", "num_turns"])
def _rotate(
    x, cos, sin, places, out, x_b, x_h, x_t, out_b, out_h, out_t,
    H, length, num, num_turns, sign, factor,
    E: tl.constexpr, PAIRS: tl.constexpr, WIDTH: tl.constexpr, REST: tl.constexpr,
    TOKENS: tl.constexpr, HALVES: tl.constexpr, PLACED: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    there = (token < num)[:, None]
    b, t = (token // length).to(tl.int64), (token % length).to(tl.int64)
    x += (b * x_b + t * x_t)[:, None]
    out += (b * out_b + t * out_t)[:, None]
    turn = token
    if PLACED:
        turn = tl.load(places + token, mask=token < num, other=0)
    pair = tl.arange(0, WIDTH)[None, :]
    inside = there & (pair < PAIRS)
    angle = (turn % num_turns).to(tl.int64)[:, None] * PAIRS + pair
    c = tl.load(cos + angle, mask=inside, other=0.0)
    s = tl.load(sin + angle, mask=inside, other=0.0) * sign
    both = tl.arange(0, 2 * WIDTH)[None, :]
    whole = there & (both < 2 * PAIRS)
    rest = 2 * PAIRS + tl.arange(0, REST)[None, :]
    kind = out.dtype.element_ty
    for _ in range(H):
        if HALVES:
            one = tl.load(x + pair, mask=inside, other=0.0).to(tl.float32)
            other = tl.load(x + pair + PAIRS, mask=inside, other=0.0).to(tl.float32)
            tl.store(out + pair, (one * c - other * s).to(kind), mask=inside)
            tl.store(out + pair + PAIRS, (one * s + other * c).to(kind), mask=inside)
        else:
            found = tl.load(x + both, mask=whole, other=0.0).to(tl.float32)
            one, other = tl.split(found.reshape(TOKENS, WIDTH, 2))
            turned = tl.join(one * c - other * s, one * s + other * c)
            tl.store(out + both, turned.reshape(TOKENS, 2 * WIDTH).to(kind), mask=whole)
        if E > 2 * PAIRS:
            others = tl.load(x + rest, mask=there & (rest < E), other=0.0).to(tl.float32) * factor
            tl.store(out + rest, others.to(kind), mask=there & (rest < E))
        x += x_h
        out += out_h
