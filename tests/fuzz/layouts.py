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


def _counted(rng: torch.Generator, B: int, Q: int, K: int, first: int = 0) -> list[Tensor]:
    counted = torch.arange(max(Q, K)) + first
    return [counted[None, -n:] if Q <= K else counted[None, :n] for n in (Q, K)]


def _apart(rng: torch.Generator, B: int, Q: int, K: int) -> list[Tensor]:
    first = torch.randint(0, 90, (2,), generator=rng)
    return [torch.arange(n)[None] + at for n, at in zip((Q, K), first, strict=True)]


def _own_offsets(rng: torch.Generator, B: int, Q: int, K: int) -> list[Tensor]:
    return [x + torch.randint(0, 90, (B, 1), generator=rng) for x in _counted(rng, B, Q, K)]


def _one_offset(rng: torch.Generator, B: int, Q: int, K: int) -> list[Tensor]:
    first = torch.randint(0, 90, (B, 1), generator=rng)
    return [x + first for x in _counted(rng, B, Q, K)]


def _gaps(rng: torch.Generator, B: int, Q: int, K: int) -> list[Tensor]:
    drawn = torch.randint(0, 2 * max(Q, K) + 9, (B, max(Q, K)), generator=rng).sort(1)[0]
    return [drawn[:, -n:] for n in (Q, K)]


def _any_order(rng: torch.Generator, B: int, Q: int, K: int) -> list[Tensor]:
    return [torch.randint(0, 150, (B, n), generator=rng) for n in (Q, K)]


def _scattered(rng: torch.Generator, B: int, Q: int, K: int) -> list[Tensor]:
    return [torch.randint(0, 1_000_000, (B, n), generator=rng) for n in (Q, K)]


PLACES: dict[str, Callable[..., list[Tensor]]] = {
    "arange": _counted,
    "apart": _apart,
    "offset": lambda *sizes: _counted(*sizes, first=7),
    "far": lambda *sizes: _counted(*sizes, first=1_000_000),
    "one offset": _one_offset,
    "own offsets": _own_offsets,
    "gaps": _gaps,
    "any order": _any_order,
    "scattered": _scattered,
}
"""Positions of queries and keys, `(B|1, Q|K)`."""
