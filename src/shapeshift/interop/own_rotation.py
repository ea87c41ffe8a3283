"""The rotation of queries and keys in a Hugging Face model, in the words of `Rotary`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import Rotary, rope_config
from shapeshift.positions.released import BY_LENGTH

from .recorder import LENGTH, Call, places, same

SHARE = "partial_rotary_factor"


def own_rotation(config: Any, before: Call, now: Call, widths: set[int]) -> dict[str, Any] | str:
    """Return `pairs` and `rope_parameters` with which `Rotary` turns the heads `now`, which do not
    rotate, into those of `before`; or the reason why it cannot."""
    head_dim, index = now.query.shape[3], getattr(now.module, "layer_idx", None)
    pos = torch.tensor([places(LENGTH)], device=now.query.device)
    refused: list[str] = []
    for pairs in ("halves", "interleaved"):
        try:
            configured = rope_config.read(config, index, pairs)["rope_parameters"]
        except ShapeshiftError as error:
            refused.append(str(error))
            continue
        # Some models take no notice of the share of channels that their configuration states.
        shares = [(width + 0.5) / head_dim for width in sorted(widths) if width < head_dim]
        for parameters in (configured, *({**configured, SHARE: share} for share in (*shares, 1.0))):
            found = {"pairs": pairs, "rope_parameters": parameters}
            if parameters["rope_type"] in BY_LENGTH:
                width = int(head_dim * parameters.get(SHARE, 1.0))
                if _keeps_pairs(before.query, now.query, width, pairs):
                    return found
                continue
            try:
                rotary = Rotary(head_dim=head_dim, **found)
            except ShapeshiftError:
                continue
            turned = rotary.rotate(now.query, now.key, pos, pos)
            if same(turned[0], before.query) and same(turned[1], before.key):
                return found
    return refused[0] if len(refused) == 2 else "it differs from what its configuration says"


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
