"""The rotation of queries and keys in a Hugging Face model, as options of `Rotary`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import Rotary, rope_config
from shapeshift.positions.released import BY_LENGTH

from .recorder import LENGTH, Call, places, same

SHARE = "partial_rotary_factor"


def own_rotation(
    config: Any, before: Call, now: Call, step: int, rotations: list[tuple[Tensor, ...]]
) -> dict[str, Any] | str:
    """Return `pairs` and `rope_parameters` with which `Rotary` turns the heads `now`, which do not
    rotate, into those of `before`; or the reason why it cannot.

    Args:
        step: distance of neighbours in `before`.
        rotations: cosines and sines `(…, T, width)` of the model's modules, or complex numbers, at
            the positions 0, 1, …
    """
    if not same(now.value, before.value):
        return "its values rotate, too"
    head_dim, index = now.query.shape[3], getattr(now.module, "layer_idx", None)
    pos = step * torch.tensor([places(LENGTH)], device=now.query.device)
    widths = {n * tensors[0].shape[-1] for tensors in rotations for n in (1, 2)}
    theta, refused = [_theta(tensors) for tensors in rotations], []
    for pairs in ("halves", "interleaved"):
        try:
            stated = rope_config.read(config, index, pairs)["rope_parameters"]
        except ShapeshiftError as error:
            refused.append(str(error))
            continue
        # Some models take no notice of the share of channels that their configuration states.
        shares = [(width + 0.5) / head_dim for width in sorted(widths) if width < head_dim]
        for parameters in (stated, *({**stated, SHARE: share} for share in (*shares, 1.0))):
            found = {"pairs": pairs, "rope_parameters": parameters}
            if parameters["rope_type"] in BY_LENGTH:
                width = int(head_dim * parameters.get(SHARE, 1.0))
                if _keeps_pairs(before.query, now.query, width, pairs):
                    return found
                continue
            try:
                rotary = Rotary(head_dim=head_dim, **found)
            except ShapeshiftError as error:
                refused += [str(error)] if parameters is stated else []
                continue
            turned = rotary.rotate(now.query, now.key, pos, pos)
            if not same(turned[0], before.query) or not same(turned[1], before.key):
                continue
            # θ, its sine and its cosine are rounded, and no product is.
            half = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-9}
            allowed = half.get(now.query.dtype, 1e-3)
            expected = rotary.frequencies(pos.device)
            if any(_is_theta(x.to(pos.device), expected, allowed) for x in theta):
                return found
    return refused[0] if len(refused) == 2 else "it differs from what its configuration says"


def _theta(tensors: tuple[Tensor, ...]) -> Tensor:
    """Return the angles `(width,)` at position 1, absolute, of cosines and sines."""
    if len(tensors) == 1:
        tensors = tensors[0].real, tensors[0].imag
    cos, sin = (x.movedim(x.shape.index(LENGTH), 0)[1].reshape(-1, x.shape[-1])[0] for x in tensors)
    return torch.atan2(sin.float(), cos.float()).abs()


def _is_theta(x: Tensor, theta: Tensor, allowed: float) -> bool:
    """Return whether angles `x` are θ `(r/2,)`, each once or twice. Small ones count as much as
    large ones: they turn far positions."""
    n = len(theta)
    return any(
        len(each) == n and bool(((each - theta).abs() <= allowed * theta).all())
        for each in (x[:n], x[: 2 * n : 2])
    )


def _keeps_pairs(x: Tensor, y: Tensor, width: int, pairs: str) -> bool:
    """Return whether pairs of channels have the same length in `x` as in `y`, but for one factor,
    and the other channels are the same."""

    def lengths(heads: Tensor) -> Tensor:
        turned = heads[..., :width].float()
        halves = turned.chunk(2, dim=-1)
        a, b = halves if pairs == "halves" else (turned[..., ::2], turned[..., 1::2])
        return torch.hypot(a, b)

    a, b = lengths(x), lengths(y)
    return same(a * (b.norm() / a.norm()), b) and same(x[..., width:], y[..., width:])
