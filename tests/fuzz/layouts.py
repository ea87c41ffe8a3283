"""How heads lie in memory, and which positions tokens have."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

LAYOUTS: dict[str, Callable[..., tuple[tuple[int, ...], Callable[[Tensor], Tensor]]]] = {
    "plain": lambda B, H, T, E: ((B, H, T, E), lambda x: x),
    "rows": lambda B, H, T, E: ((B, T, H, E), lambda x: x.transpose(1, 2)),
    "channels": lambda B, H, T, E: ((B, H, E, T), lambda x: x.mT),
    "packed": lambda B, H, T, E: ((B, T, 3, H, E), lambda x: x[:, :, 1].transpose(1, 2)),
    "tokens first": lambda B, H, T, E: ((T, B, H, E), lambda x: x.permute(1, 2, 0, 3)),
    "inside": lambda B, H, T, E: ((B, H, T, E + 3), lambda x: x[..., 2 : 2 + E]),
    "stepped": lambda B, H, T, E: ((B, H, T, 2 * E), lambda x: x[..., ::2]),
    "later": lambda B, H, T, E: ((B + 1, H, T + 2, E), lambda x: x[1:, :, 1 : T + 1]),
    "one sentence": lambda B, H, T, E: ((1, H, T, E), lambda x: x.expand(B, -1, -1, -1)),
    "one head": lambda B, H, T, E: ((B, 1, T, E), lambda x: x.expand(-1, H, -1, -1)),
    "one token": lambda B, H, T, E: ((B, H, 1, E), lambda x: x.expand(-1, -1, T, -1)),
    "windows": lambda B, H, T, E: (
        (B * H * (T + E),),
        lambda x: x.as_strided((B, H, T, E), (H * (T + E), T + E, 1, 1)),
    ),
    "as_strided": lambda B, H, T, E: (
        (7 + B * T * H * E,),
        lambda x: x.as_strided((B, H, T, E), (T * H * E, E, H * E, 1), 7),
    ),
}
"""How heads lie in memory: the shape of a tensor, and the view of it that is `(B, H, T, E)`."""


def _drawn(rng: torch.Generator, end: int, *sizes: int) -> Tensor:
    return torch.randint(0, end, sizes, generator=rng)


def _counted(rng: torch.Generator, B: int, Q: int, K: int, first: int | Tensor = 0) -> list[Tensor]:
    counted = torch.arange(max(Q, K))[None] + first
    return [counted[:, -n:] if Q <= K else counted[:, :n] for n in (Q, K)]


def _apart(rng: torch.Generator, B: int, Q: int, K: int) -> list[Tensor]:
    first = _drawn(rng, 90, 2)
    return [torch.arange(n)[None] + at for n, at in zip((Q, K), first, strict=True)]


def _gaps(rng: torch.Generator, B: int, Q: int, K: int) -> list[Tensor]:
    longest = max(Q, K)
    drawn = _drawn(rng, 2 * longest + 9, B, longest).sort(1)[0]
    return [drawn[:, -n:] for n in (Q, K)]


PLACES: dict[str, Callable[..., list[Tensor]]] = {
    "arange": _counted,
    "apart": _apart,
    "offset": lambda *sizes: _counted(*sizes, first=7),
    "far": lambda *sizes: _counted(*sizes, first=1_000_000),
    "one offset": lambda rng, B, Q, K: _counted(rng, B, Q, K, _drawn(rng, 90, B, 1)),
    "own offsets": lambda rng, B, Q, K: [x + _drawn(rng, 90, B, 1) for x in _counted(rng, B, Q, K)],
    "gaps": _gaps,
    "any order": lambda rng, B, Q, K: [_drawn(rng, 150, B, n) for n in (Q, K)],
    "scattered": lambda rng, B, Q, K: [_drawn(rng, 1_000_000, B, n) for n in (Q, K)],
}
"""Positions of queries and keys, `(B|1, Q|K)`."""
