"""Several representations at one place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError
from shapeshift.kernels import Turn

from .base import (
    AT_ATTENTION,
    PROMISES,
    Representation,
    ScoreMod,
    check_sizes,
    inherits,
    known_tables,
    known_turns,
    total,
)
from .checks import SIZES
from .pairs import Table


class Chain(Representation):
    """Several representations at one place, applied in order; their biases add up.

    Raises:
        ShapeshiftError: if a part is not a `Representation`, or if parts were built for different
            D, H or E; if one part reads the queries that another part rotates, if two parts rotate
            them, or if two parts of one kind change queries and keys.
    """

    shift_invariant = position_free_heads = splits = True  # if all parts promise it

    def __init__(self, *parts: Representation):
        super().__init__()
        for part in parts:
            if not isinstance(part, Representation):
                raise ShapeshiftError(
                    f"the parts of a Chain must be Representations, got {part!r};"
                    " shapeshift.positions.get builds one from a name and the sizes of a model"
                )
        self.parts = nn.ModuleList(parts)  # do not change: they are checked together
        kinds = list(self.kinds())
        sizes = [(n, getattr(kind, n)) for kind in kinds for n in SIZES if hasattr(kind, n)]
        check_sizes(self, **dict(reversed(sizes)))  # those of the first kind that has them
        _check_heads(kinds)
        for promise in PROMISES:
            kept = getattr(self, promise) and all(getattr(part, promise) for part in parts)
            setattr(self, promise, kept)
        self.causal_only = any(part.causal_only for part in parts)

    def overrides(self, hook: str) -> bool:
        if hook in ("embed", *AT_ATTENTION) and inherits(self, hook, Chain):
            return bool(self._parts(hook))
        return super().overrides(hook)

    def holds(self, name: str) -> bool:
        parts = self._parts() if name in PROMISES else []
        return super().holds(name) and all(part.holds(name) for part in parts)

    def _parts(self, *hooks: str) -> list[Representation]:
        """Return the parts that override one of these hooks, by default all."""
        parts = [part for part in self.parts if isinstance(part, Representation)]
        return [part for part in parts if not hooks or any(map(part.overrides, hooks))]

    def kinds(self) -> Iterator[Representation]:
        for part in self._parts():
            yield from part.kinds()

    def max_position(self) -> int | None:
        limits = [part.max_position() for part in self._parts()]
        return min((limit for limit in limits if limit is not None), default=None)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        for part in self._parts():
            x = part("embed", x, pos)
        return x

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        for part in self._parts():
            q, k, v = part("inputs", q, k, v, pos_q, pos_k)
        return q, k, v

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        for part in self._parts():
            q, k = part("rotate", q, k, pos_q, pos_k)
        return q, k

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor | None:
        return total([part("bias", pos_q, pos_k, dtype=dtype) for part in self._parts()])

    def bias_by_distance(self, distances: Tensor, *, dtype: torch.dtype) -> Tensor | None:
        parts = self._parts("bias")
        if not all(part.overrides("bias_by_distance") for part in parts):
            return None
        rows = [part.bias_by_distance(distances, dtype=dtype) for part in parts]
        present = [row for row in rows if row is not None]
        return sum(present[1:], present[0]) if present and len(present) == len(rows) else None

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        return total([part("query_bias", q, pos_q, pos_k) for part in self._parts()])

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        return total([part("value_bias", probs, pos_q, pos_k) for part in self._parts()])

    def score_mod(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> ScoreMod | None:
        parts = self._parts("bias", "query_bias")
        if not all(part.overrides("score_mod") for part in parts):
            return None
        score_mods = [part.score_mod(q, pos_q, pos_k) for part in parts]
        present = [score_mod for score_mod in score_mods if score_mod is not None]
        if len(present) < len(parts) or not present:
            return None

        def apply(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            for score_mod in present:
                score = score_mod(score, b, h, i, j)
            return score

        return apply

    def tables(self) -> tuple[Table | None, Table | None]:
        scoring, mixing = self._parts("bias", "query_bias"), self._parts("value_bias")
        keys = known_tables(scoring[0])[0] if len(scoring) == 1 else None
        values = known_tables(mixing[0])[1] if len(mixing) == 1 else None
        return keys, values

    def turns(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Turn, Turn] | None:
        turning = self._parts("rotate")
        return known_turns(turning[0], q, k, pos_q, pos_k) if len(turning) == 1 else None


def _check_heads(kinds: list[Representation]) -> None:
    """Raise a `ShapeshiftError` if kinds cannot be combined in one attention, see `Chain`: a score
    (R(i) q_i) a_ij depends on i, and two rotations may not commute."""
    apart = "give them different stacks or places"
    for turning, reading in permutations(kinds, 2):
        if not turning.holds("position_free_heads") and reading.overrides("query_bias"):
            one, other = type(turning).__name__, type(reading).__name__
            raise ShapeshiftError(
                f"{one} turns the queries that {other} reads, whose scores would depend on where a"
                f" sentence begins; {apart}, or use a kind that does not read queries, such as T5,"
                " ALiBi or Shaw with add_to='values'"
            )
    changing = [kind for kind in kinds if kind.overrides("rotate")]
    for first, second in combinations(changing, 2):
        turn = not (first.holds("position_free_heads") or second.holds("position_free_heads"))
        if turn or type(first) is type(second):
            one, other = type(first).__name__, type(second).__name__
            raise ShapeshiftError(
                f"{one} and {other} would both change the queries and keys of one attention; leave"
                f" one of them out, or {apart}"
            )
