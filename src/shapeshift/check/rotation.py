"""By which angles the heads of an attention rotate, as their numbers show."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .adapter import UnsupportedError
from .watch import Call

EXACT = 1e-6
"""Noise of angles, in radians: models compute cosines and sines in float32."""

LINEAR = 1e-3
"""Part of the heads that a linear map from heads that do not rotate may miss."""


class MixedError(UnsupportedError):
    """Heads change with positions otherwise than by one rotation that they all have."""


def pairing(apart: int) -> str:
    """Return how pairs are called whose channels are this far apart."""
    return "interleaved" if apart == 1 else f"halves, {apart} apart"


@dataclass(frozen=True)
class Rotation:
    """How the queries of a layer rotate.

    Attributes:
        pos: the positions, `(T,)`.
        pairs: channels that rotate together, `(P, 2)`, in order of the first.
        angles: of each position and pair, `(T, P)`, in radians, between -π and π.
        theta: θ of each pair, `(P,)`, in radians per position.
        factor: by which channels that rotate are multiplied; None if it was not measured.
        keys_differ: the first position at which keys rotate otherwise; None if there is none.
        noise: of angles.
        backwards: whether angles are negative; `angles` and `theta` have the other sign.
        head: the query head that was measured; None if they all rotate in the same way.
    """

    pos: Tensor
    pairs: Tensor
    angles: Tensor
    theta: Tensor
    factor: float | None
    keys_differ: int | None
    noise: float
    backwards: bool = False
    head: int | None = None

    @property
    def pairing(self) -> str:
        """How the channels of a pair are numbered, as `pairing` writes it."""
        apart = self.pairs.diff(dim=1).flatten()
        order = pairing(int(apart[0])) if (apart == apart[0]).all() else "other"
        return order + (", backwards" if self.backwards else "")

    def differs(self, theta: Tensor) -> tuple[int, float] | None:
        """Return the first position whose angles are not position · `theta (P,)`, and by how many
        radians; None if there is none. float32 has 24 bits, of which 20 have to be right."""
        expected = self.pos.double()[:, None] * theta
        allowed = self.noise + expected.abs() * 2**-20
        off = _wrapped(self.angles - expected).abs()
        wrong = (off > allowed).any(dim=1).nonzero().flatten().tolist()
        return (int(self.pos[wrong[0]]), float(off[wrong[0]].max())) if wrong else None


def measure_rotation(
    call: Call, still: Call | None, pos: Tensor, head: int | None = None
) -> Rotation:
    """Return how the heads of `call` rotate; each of its rows is one token, repeated.

    Args:
        still: the same with rotary embeddings that rotate by zero; None if there are none.
        pos: the position of each token, `(T,)`, from 0 on.
        head: number of the only query head to measure, and of the key head that it reads; None for
            all, which are measured as one.

    Raises:
        MixedError: the heads change otherwise than by one rotation.
        UnsupportedError: they were not reached.
    """
    if call.query is None or call.key is None:
        raise UnsupportedError("its attention is not reached")
    all_heads = still or call
    if head is not None:
        call, still = _one_head(call, head), still and _one_head(still, head)
    query, key = _by_token(call)
    before = [x[:1].expand_as(x) for x in (query, key)] if still is None else _by_token(still)
    width = query.shape[-1]
    if query.shape[1] <= width:
        raise UnsupportedError("the vocabulary has too few tokens")
    u, spread, v = torch.linalg.svd(before[0][0], full_matrices=False)
    if spread[-1] < 1e-4 * spread[0]:
        raise UnsupportedError("the queries of different tokens are too similar")
    turned = (v.mT / spread) @ (u.mT @ query)  # (T, E, E), a row times it
    missed = float((before[0] @ turned - query).norm() / query.norm())
    noise = max(EXACT, 8 * missed * float(spread[0] / spread[-1]))
    mixed = turned.abs() * (1 - torch.eye(width, dtype=turned.dtype))
    mixed = mixed.amax(0)  # (E, E)
    partner = mixed.argmax(1)
    channels = (mixed.amax(1) > noise).nonzero().flatten()
    if missed > LINEAR or not torch.equal(partner[partner[channels]], channels):
        raise MixedError("its heads change with positions otherwise than by a rotation")
    first = channels[channels < partner[channels]]
    pairs = torch.stack((first, partner[first]), dim=1)
    angles, scale, _ = _turns(before[0], query, pairs)
    key_angles, key_scale, missed_keys = _turns(before[1], key, pairs)
    off = missed_keys > LINEAR
    if not len(pairs) and off.any():  # a MixedError unless keys rotate alone
        measure_rotation(Call(call.key, call.key), still and Call(still.key, still.key), pos)
    factor = None
    if len(pairs):
        off |= (_wrapped(angles - key_angles).abs() > 2 * noise).any(1)
        off |= (scale - key_scale).abs() > 4 * noise * scale
        factor = None if still is None else float(scale.mean())
    theta = _theta(angles, pos)
    backwards = len(pairs) > 0 and bool((theta < 0).all())
    sign = -1 if backwards else 1
    return Rotation(
        pos=pos,
        pairs=_sources(all_heads, pairs),
        angles=sign * angles,
        theta=sign * theta,
        factor=factor,
        keys_differ=int(pos[off][0]) if off.any() else None,
        noise=noise,
        backwards=backwards,
        head=head,
    )


def _one_head(call: Call, head: int) -> Call:
    """Return a call with one of its query heads, and the key head that it reads."""
    assert call.query is not None
    assert call.key is not None
    of_key = head * call.key.shape[1] // call.query.shape[1]
    return Call(call.query[:, [head]], call.key[:, [of_key]])


def _by_token(call: Call) -> list[Tensor]:
    """Return queries and keys `(T, B · H, E)` in float64."""
    assert call.query is not None
    assert call.key is not None
    return [heads.double().transpose(0, 2).flatten(1, 2) for heads in (call.query, call.key)]


def _turns(before: Tensor, after: Tensor, pairs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the angles `(T, P)` by which pairs of channels turned, their mean factor `(T,)`, and
    the part of `after` that other pairs or other channels would explain, `(T,)`.

    The eigenvalues of a turn and a scale are factor · e^(±i angle), also where a weight multiplies
    the channels afterwards.
    """
    x, y = (heads[..., pairs].movedim(2, 1) for heads in (before, after))  # (T, P, N, 2)
    turns = torch.linalg.solve(x.mT @ x, x.mT @ y)  # least squares
    expected = before.clone()
    expected[..., pairs] = (x @ turns).movedim(1, 2)
    missed = (after - expected).norm(dim=(1, 2)) / after.norm(dim=(1, 2))
    (a, b), (c, d) = turns.movedim((2, 3), (0, 1))
    scale = (a * d - b * c).clamp(min=0).sqrt()
    sine = (-b * c).clamp(min=0).sqrt() * b.sign()
    return torch.atan2(sine, (a + d) / 2), scale.mean(1), missed


def _wrapped(angles: Tensor) -> Tensor:
    return (angles + math.pi) % (2 * math.pi) - math.pi


def _theta(angles: Tensor, pos: Tensor) -> Tensor:
    """Return θ `(P,)`: the angle at position 1, then at 2, 4, 8, …, each of which tells how many
    whole turns the next one has."""
    theta = torch.zeros(angles.shape[1], dtype=angles.dtype)
    for place, at in enumerate(pos.tolist()):
        if at and at & (at - 1) == 0:
            theta = theta + _wrapped(angles[place] - at * theta) / at
    return theta


def _sources(call: Call, pairs: Tensor) -> Tensor:
    """Return pairs by the channels of the projection to queries, where a model reorders them."""
    assert call.query is not None
    heads = call.query
    shape = heads.shape[0], heads.shape[2], heads.shape[1], heads.shape[3]
    for out in call.projected if len(pairs) else ():
        if not isinstance(out, Tensor) or out.shape != (*shape[:2], shape[2] * shape[3]):
            continue
        one, channels = (x[0, :, :2] for x in (heads, out.view(shape).transpose(1, 2)))
        gaps = (one[..., :, None] - channels[..., None, :]).abs().amax((0, 1))  # (E, E)
        if (gaps.amin(1) <= 1e-6 * one.abs().max()).all():
            pairs = gaps.argmin(1)[pairs].sort(dim=1).values
            return pairs[pairs[:, 0].argsort()]
    return pairs
