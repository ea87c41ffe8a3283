"""Attention and every kind of the registry from the papers' formulas, in float64: exactly, or with
random rounding errors.

The errors are those of Monte Carlo arithmetic (Parker 1997): each intermediate result is multiplied
by 1 + ξ, where ξ is random and as large as the unit roundoff u of the dtype under test. How far
such results lie from the exact ones is how far a correct computation in that dtype may lie.

Kinds that are not in the registry are computed by their own hooks, or where hooks are derived from
a description, by a method `…by_definition`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift.positions import (
    FIRE,
    KERPLE,
    T5,
    TUPE,
    ALiBi,
    Axial,
    Encoding,
    Learned,
    PoPE,
    Representation,
    Rotary,
    Shaw,
    Sinusoidal,
    XPos,
)

UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
"""u, the largest relative error when a number is rounded."""

COARSE = 0.3
"""Largest error of a score with which results are compared: probabilities are wrong by as much."""

FORBIDS = 1e4
"""Numbers of a mask beyond this one forbid a key, and are added without a rounding error."""


class Arithmetic:
    """Rounds like a dtype with unit roundoff `u`, or not at all.

    Args:
        u: unit roundoff of the dtype under test.
        seed: of the random errors; None computes exactly.

    Attributes:
        is_coarse: whether a score may be wrong by more than `COARSE` in this dtype.
        has_kink: whether a hidden unit of FIRE is so near zero that its ReLU may switch.
    """

    def __init__(self, u: float, seed: int | None = None):
        self.u, self.is_exact = u, seed is None
        self.is_coarse = self.has_kink = False
        if seed is not None:
            self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, x: Tensor) -> Tensor:
        if self.is_exact:
            return x
        rounded: Tensor = _Rounded.apply(x, self)  # type: ignore[no-untyped-call]
        return rounded

    def errors(self, like: Tensor) -> Tensor:
        """Return numbers of mean 0 and standard deviation u."""
        size = self.u * 3**0.5
        return torch.empty_like(like.detach()).uniform_(-size, size, generator=self.generator)


class _Rounded(torch.autograd.Function):
    """x (1 + ξ); its gradient has an error of its own, so that where terms cancel, errors stay."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, compute: Arithmetic) -> Tensor:
        ctx.compute = compute
        return x * (1 + compute.errors(x))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return ctx.compute(grad), None


class _Softmax(torch.autograd.Function):
    """The softmax, with rounding errors in p_ij and in its gradient p_ij (dP_ij − D_i). Both dP and
    D are sums over channels whose terms may cancel: their errors depend on the terms, of which
    `terms` returns the sums of squares."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, compute: Arithmetic, terms: Callable[[], Any]) -> Tensor:
        probs = compute(scores.softmax(-1))
        ctx.save_for_backward(probs)
        ctx.compute, ctx.terms = compute, terms
        return probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (probs,), compute = ctx.saved_tensors, ctx.compute
        weighted = compute((probs * grad).sum(-1, keepdim=True))  # D
        pairs, rows = ctx.terms()
        if pairs is not None:
            grad = grad + pairs.sqrt() * compute.errors(pairs)
            weighted = weighted + rows.sqrt() * compute.errors(rows)
        return probs * (compute(grad) - weighted), None, None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    position: Representation,
    pos_q: Tensor,
    pos_k: Tensor,
    *,
    causal: bool,
    compute: Arithmetic,
    kept: Tensor | None = None,
    times: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return what `shapeshift.attention.attend` defines, and the probabilities; all in float64.

    Args:
        kept: what dropout multiplies the probabilities by, `(B, H, Q, K)`.
        times: what the biases on the scores are multiplied by.
    """
    (B, H, Q, E), K = q.shape, k.shape[2]
    pos_q, pos_k = pos_q.long(), pos_k.long()
    scaled = compute(compute(q) * E**-0.5)
    keys = compute(k)
    scores = compute(scaled @ keys.mT)
    size = scaled.detach().abs() @ keys.detach().abs().mT
    for kind in position.kinds():
        for bias in score_terms(kind, scaled, pos_q, pos_k, compute):
            bias = bias * times
            scores = compute(scores + compute(bias))
            size = size + bias.detach().abs()
    allowed = torch.ones(B, H, Q, K, dtype=torch.bool)
    if mask is not None and mask.dtype == torch.bool:
        allowed = allowed & mask
    elif mask is not None:
        near = mask.abs() < FORBIDS
        scores = scores + torch.where(near, compute(mask), mask)
        size = size + torch.where(near, mask.detach().abs(), 0.0)
        allowed = allowed & (mask != float("-inf"))
    if causal:
        allowed = allowed & torch.ones(Q, K, dtype=torch.bool).tril(K - Q)
    blind = ~allowed.any(-1, keepdim=True)
    scores = scores.masked_fill(~allowed, float("-inf")).masked_fill(blind, 0.0)
    if compute.is_exact:
        compute.is_coarse |= is_coarse(scores.detach(), size * compute.u)
        probs = scores.softmax(-1)
    else:
        outputs: list[Tensor] = []  # without their graphs, which `terms` is part of
        gradients: list[Tensor] = []

        def terms() -> tuple[Tensor | None, Tensor | None]:
            if not gradients:
                return None, None
            squared = gradients[-1].square()
            rows = (squared * outputs[0].square()).sum(-1, keepdim=True)
            return squared @ v.detach().square().mT, rows

        probs = _Softmax.apply(scores, compute, terms)  # type: ignore[no-untyped-call]
    probs = probs.masked_fill(blind, 0.0)
    if kept is not None:
        probs = compute(probs * kept)
    heads = compute(probs @ compute(v))
    if not compute.is_exact and heads.requires_grad:
        outputs.append(heads.detach())
        heads.register_hook(lambda grad: gradients.append(grad.detach()))
    for kind in position.kinds():
        for bias in value_terms(kind, probs, pos_q, pos_k):
            heads = compute(heads + compute(bias))
    return heads, probs


def multi_head(
    x: list[Tensor],
    mask: Tensor | None,
    module: Any,
    weight: Tensor,
    bias: Tensor | None,
    out: nn.Linear,
    pos_q: Tensor,
    pos_k: Tensor,
    compute: Arithmetic,
) -> tuple[Tensor, Tensor]:
    """Return what a module for multi-head attention defines (Vaswani et al. 2017, section 3.2.2),
    and the probabilities.

    Args:
        x: inputs of queries, keys and values, `(B, T, D)`.
        module: has `num_heads` and `position`.
        weight, bias: of the three projections.
        out: the last projection.
    """
    position, biases = module.position, (None,) * 3 if bias is None else bias.chunk(3)
    q, k, v = (
        compute(F.linear(compute(y), compute(w), b))
        .unflatten(-1, (module.num_heads, -1))
        .transpose(1, 2)
        for y, w, b in zip(
            inputs(position, x, pos_q, pos_k, compute), weight.chunk(3), biases, strict=True
        )
    )
    q, k = rotate(position, q, k, pos_q, pos_k, compute)
    heads, probs = attend(q, k, v, mask, position, pos_q, pos_k, causal=False, compute=compute)
    heads = compute(heads.transpose(1, 2).flatten(2))
    return compute(F.linear(heads, compute(out.weight), out.bias)), probs


def is_coarse(scores: Tensor, error: Tensor) -> bool:
    """Return whether a key that may matter has a score with a large error."""
    if not scores.numel():
        return False
    lowest = (scores - 3 * error).nan_to_num(nan=float("-inf")).amax(-1, keepdim=True)
    matters = scores + 3 * error >= lowest - 12
    return bool((matters & (error > COARSE) & scores.isfinite()).any())


def score_terms(
    kind: Representation, q: Tensor, pos_q: Tensor, pos_k: Tensor, compute: Arithmetic
) -> list[Tensor]:
    """Return what a kind adds to the scores, each broadcastable to `(B, H, Q, K)`."""
    formula = FORMULAS.get(type(kind).__name__)
    if formula is None and hasattr(kind, "by_definition"):
        found = [kind.by_definition(q, pos_q, pos_k)]
    elif formula is None:
        found = [kind("bias", pos_q, pos_k, dtype=q.dtype), kind("query_bias", q, pos_q, pos_k)]
    else:
        found = [formula(kind, q, pos_q, pos_k, compute)]
    return [x for x in found if x is not None]


def distances(pos_q: Tensor, pos_k: Tensor) -> Tensor:
    """Return j − i, `(B|1, 1, Q, K)`."""
    return (pos_k[:, None, :] - pos_q[:, :, None])[:, None]


def slope(head: int, num_heads: int) -> float:
    """Press et al. 2022, section 3, and its released code."""
    below = 2 ** math.floor(math.log2(num_heads))
    if num_heads == below:
        return 2.0 ** (-8 * (head + 1) / num_heads)
    return slope(head, below) if head < below else slope(2 * (head - below), 2 * below)


def _alibi(kind: ALiBi, q: Tensor, pos_q: Tensor, pos_k: Tensor, compute: Arithmetic) -> Tensor:
    slopes = torch.tensor([slope(h, q.shape[1]) for h in range(q.shape[1])], dtype=q.dtype)
    return -slopes.view(1, -1, 1, 1) * distances(pos_q, pos_k).abs()


def _kerple(kind: KERPLE, q: Tensor, pos_q: Tensor, pos_k: Tensor, compute: Arithmetic) -> Tensor:
    r1, r2 = (compute(x.exp()).view(1, -1, 1, 1) for x in (kind.log_r1, kind.log_r2))
    return -r1 * compute(torch.log(1 + r2 * distances(pos_q, pos_k).abs()))


@cache
def bucket(distance: int, num_buckets: int, max_distance: int, causal: bool) -> int:
    """Raffel et al. 2020, section 2.1, in whole numbers; `distance` is j - i."""
    each = num_buckets if causal else num_buckets // 2
    first = each if distance > 0 and not causal else 0
    d, near = max(0, -distance) if causal else abs(distance), each // 2
    if d < near:
        return first + d
    ratio = Fraction(max_distance, near)
    m = next(m for m in reversed(range(near)) if Fraction(d, near) ** near >= ratio**m)
    return first + near + m


def _t5(kind: T5, q: Tensor, pos_q: Tensor, pos_k: Tensor, compute: Arithmetic) -> Tensor:
    settings = len(kind.weight), kind.max_distance, kind.causal
    d = distances(pos_q, pos_k).clamp(-kind.max_distance, kind.max_distance)
    values, where = d.unique(return_inverse=True)
    rows = torch.tensor([bucket(n, *settings) for n in values.tolist()], dtype=torch.int64)
    return kind.weight[rows[where[:, 0]]].permute(0, 3, 1, 2)


def _clipped(kind: Shaw, pos_q: Tensor, pos_k: Tensor) -> Tensor:
    """Shaw et al. 2018, section 3.2, `(B|1, 1, Q, K)`."""
    to_right = 0 if kind.causal_only else kind.max_distance
    return distances(pos_q, pos_k).clamp(-kind.max_distance, to_right) + kind.max_distance


def _shaw(
    kind: Shaw, q: Tensor, pos_q: Tensor, pos_k: Tensor, compute: Arithmetic
) -> Tensor | None:
    if kind.keys is None:
        return None
    by_row = compute(q @ compute(kind.keys).mT)  # (B, H, Q, R)
    rows = _clipped(kind, pos_q, pos_k)
    return by_row.gather(-1, rows.expand(*q.shape[:3], -1))


def _fire(kind: FIRE, q: Tensor, pos_q: Tensor, pos_k: Tensor, compute: Arithmetic) -> Tensor:
    """Li et al. 2024, section 4; keys on the right as the docstring of FIRE says."""
    c, limit = compute(kind.log_c.exp()), compute(kind.log_threshold.exp())
    d = -distances(pos_q, pos_k)[:, 0].to(q.dtype)  # i - j
    furthest = torch.maximum(pos_q[:, :, None], pos_k[:, None, :]).to(q.dtype)
    furthest = torch.maximum(furthest, limit)
    near, far = (compute(torch.log(c * size + 1)) for size in (d.abs(), furthest))
    x = compute(d.sign() * near / far)
    weights = kind.inner.weight[:, 0], kind.inner.bias
    terms = compute(x[..., None] * weights[0]), weights[1]
    hidden = compute(sum(terms))  # (B|1, Q, K, hidden)
    if compute.is_exact:
        size = sum(term.detach().abs() for term in terms)
        compute.has_kink |= bool((hidden.detach().abs() < 4 * compute.u * size).any())
    out = compute(hidden.relu()) @ compute(kind.outer.weight).mT + kind.outer.bias
    return out.permute(0, 3, 1, 2)


def _tupe(kind: TUPE, q: Tensor, pos_q: Tensor, pos_k: Tensor, compute: Arithmetic) -> Tensor:
    """Ke et al. 2021, equation 7."""

    def project(pos: Tensor, weight: Tensor) -> Tensor:
        at = compute(compute(kind.vectors.weight[pos]) @ compute(weight))
        return compute(at.unflatten(-1, (kind.num_heads, -1)).transpose(1, 2))

    width = kind.dim // kind.num_heads
    left = compute(project(pos_q, kind.query) * (2 * width) ** -0.5)
    return left @ project(pos_k, kind.key).mT


FORMULAS: dict[str, Callable[..., Tensor | None]] = {
    "ALiBi": _alibi,
    "KERPLE": _kerple,
    "T5": _t5,
    "Shaw": _shaw,
    "Skew": _shaw,
    "FIRE": _fire,
    "TUPE": _tupe,
}


def value_terms(kind: Representation, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> list[Tensor]:
    """Return what a kind adds to the heads `(B, H, Q, E)`."""
    if hasattr(kind, "mixed_by_definition"):
        return [kind.mixed_by_definition(probs, pos_q, pos_k)]
    if not isinstance(kind, Shaw):
        found = kind("value_bias", probs, pos_q, pos_k)
        return [] if found is None else [found]
    if kind.values is None:
        return []
    rows = _clipped(kind, pos_q, pos_k).expand_as(probs)
    sums = probs.new_zeros(*probs.shape[:3], kind.values.shape[1]).scatter_add(-1, rows, probs)
    return [sums @ kind.values]


def rotate(
    position: Representation,
    q: Tensor,
    k: Tensor,
    pos_q: Tensor,
    pos_k: Tensor,
    compute: Arithmetic,
) -> tuple[Tensor, Tensor]:
    """Return what `position.rotate` defines."""
    for kind in position.kinds():
        if isinstance(kind, TUPE):
            q = compute(q * 0.5**0.5)
        elif isinstance(kind, Rotary | XPos | Axial):
            q = compute(_turned(kind, compute(q), pos_q, 1, compute))
            k = compute(_turned(kind, compute(k), pos_k, -1, compute))
        elif isinstance(kind, PoPE):
            delta = kind.phase.clamp(-2 * math.pi, 0)
            q = compute(2**0.5 * _polar(kind, compute(q), pos_q, torch.zeros(1), compute))
            k = compute(_polar(kind, compute(k), pos_k, delta, compute))
        elif hasattr(kind, "turned_by_definition"):
            q = compute(kind.turned_by_definition(compute(q), pos_q, 1))
            k = compute(kind.turned_by_definition(compute(k), pos_k, -1))
        else:
            rotated = kind("rotate", compute(q), compute(k), pos_q.long(), pos_k.long())
            q, k = map(compute, rotated)
    return q, k


def _polar(kind: PoPE, x: Tensor, pos: Tensor, delta: Tensor, compute: Arithmetic) -> Tensor:
    """Gopalakrishnan et al. 2025, section 3."""
    width = x.shape[-1]
    theta = kind.base ** -(torch.arange(width, dtype=x.dtype) / width)
    angle = (pos.to(x.dtype)[..., None] * theta).unsqueeze(1) + delta
    if not compute.is_exact:  # in every dtype, angles are computed in float64
        angle = angle * (1 + compute.errors(angle) * (4 * UNIT[torch.float64] / compute.u))
    size = compute(torch.log1p(x.exp()))
    return torch.cat((size * angle.cos(), size * angle.sin()), dim=-1)


def _turned(
    kind: Rotary | XPos | Axial, x: Tensor, pos: Tensor, sign: int, compute: Arithmetic
) -> Tensor:
    """Su et al. 2021, equation 34; Peng et al. 2023, section 3; Sun et al. 2022, section 3.1."""
    width = kind.width if isinstance(kind, Rotary) else x.shape[-1]
    m, pos = torch.arange(width // 2, dtype=x.dtype), pos.to(x.dtype)
    released = kind.rope_parameters if isinstance(kind, Rotary) else None
    base = 1.0 if released else kind.base
    factor, scale = 1.0, torch.ones(1, 1, dtype=x.dtype)
    if released:  # tests/numerics compares θ, of float32, with that of transformers
        scale = scale * released.get("attention_factor", 1.0)
    elif isinstance(kind, Rotary) and kind.scaling == "ntk":
        base = base * kind.factor ** (width / (width - 2))
    theta = base ** (-2 * m / width)
    if isinstance(kind, Rotary) and released:
        theta = kind.frequencies().to(x.dtype)
    elif isinstance(kind, XPos):
        zeta = (2 * m / width + kind.gamma) / (1 + kind.gamma)
        scale = zeta ** (sign * pos[..., None] / kind.scale_base)
    elif isinstance(kind, Axial):
        if kind.order == "same":
            theta = theta[:: kind.num_axes].repeat(kind.num_axes)
        else:
            theta = torch.cat([theta[axis :: kind.num_axes] for axis in range(kind.num_axes)])
    elif kind.scaling == "linear":
        theta = theta / kind.factor
    elif kind.scaling == "yarn":
        ramp = ((kind.original_length * theta / (2 * math.pi) - 1) / 31).clamp(0, 1)
        theta = (1 - ramp) * theta / kind.factor + ramp * theta
        factor = 0.1 * math.log(kind.factor) + 1
    at = pos[..., _axes(kind)] if kind.num_axes > 1 else pos[..., None]
    angle = at * theta  # (B|1, T, width / 2)
    if not compute.is_exact:  # in every dtype, angles are computed in float64
        angle = angle * (1 + compute.errors(angle) * (4 * UNIT[torch.float64] / compute.u))
    cos, sin = ((scale * f(angle)).unsqueeze(1) for f in (torch.cos, torch.sin))
    turning, rest = x[..., :width], x[..., width:]
    if kind.pairs == "halves":
        a, b = turning.tensor_split(2, -1)
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    else:
        a, b = turning.unflatten(-1, (-1, 2)).unbind(-1)
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return torch.cat((turned, rest), -1) * factor


def _axes(kind: Rotary | XPos | Axial) -> list[int]:
    """Return the axis of each pair of channels."""
    if isinstance(kind, Axial):
        return [
            axis
            for axis in range(kind.num_axes)
            for _ in range(kind.head_dim // 2 // kind.num_axes)
        ]
    sections = list(kind.sections)
    if kind.section_order == "blocks":
        return [axis for axis, size in enumerate(sections) for _ in range(size)]
    axes = []
    for m in range(sum(sections)):
        axis = m % len(sections)
        axes.append(axis if m // len(sections) < sections[axis] else 0)
    return axes


def inputs(
    position: Representation, x: list[Tensor], pos_q: Tensor, pos_k: Tensor, compute: Arithmetic
) -> list[Tensor]:
    """Return what `position.inputs` defines for the inputs of the three projections."""
    for kind in position.kinds():
        if not isinstance(kind, Encoding):
            x = list(kind("inputs", *x, pos_q, pos_k))
            continue
        for n, pos in enumerate((pos_q, pos_k, pos_k)):
            if "qkv"[n] in kind.add_to:
                x[n] = compute(x[n] + compute(encoded(kind, pos.long(), x[n])))
    return x


def encoded(kind: Encoding, pos: Tensor, like: Tensor) -> Tensor:
    """Vaswani et al. 2017, section 3.5, and the order of channels in tensor2tensor."""
    if isinstance(kind, Learned):
        return kind.weight[pos]
    assert isinstance(kind, Sinusoidal)
    half = kind.dim // 2
    steps = half - 1 if kind.channels == "tensor2tensor" else half
    angle = pos[..., None] / kind.base ** (torch.arange(half, dtype=like.dtype) / steps)
    if kind.channels == "interleaved":
        return torch.stack((angle.sin(), angle.cos()), -1).flatten(-2)
    return torch.cat((angle.sin(), angle.cos()), -1)
