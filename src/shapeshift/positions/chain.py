"""Several representations at one place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError

from .base import DESCRIBED_BY, HOOKS, PROMISES, Representation, check_sizes, total
from .checks import SIZES
from .pairs import Table
from .turns import Turn


class Chain(Representation):
    """Several representations at one place, applied in order; their biases add up.

    Raises:
        ShapeshiftError: if a part is not a `Representation`, or if parts were built for different
            D, H or E, or for positions with different numbers of axes; if one part reads the
            queries that another part rotates, if two parts rotate them, if two parts of one kind
            change queries and keys, or if two keep a state.
    """

    # If all parts promise it.
    shift_invariant = position_free_heads = head_free_score = position_free_score = True

    def __init__(self, *parts: Representation):
        super().__init__()
        for part in parts:
            if not isinstance(part, Representation):
                raise ShapeshiftError(
                    f"the parts of a Chain must be Representations, got {part!r}; call Chain(a, b),"
                    " where shapeshift.positions.get builds a part from a name and a model's sizes"
                )
        self.parts = nn.ModuleList(parts)  # do not change: they are checked together
        kinds = list(self.kinds())
        sizes = [(n, getattr(kind, n)) for kind in kinds for n in SIZES if hasattr(kind, n)]
        check_sizes(self, **dict(reversed(sizes)))  # those of the first kind that has them
        _check_heads(kinds)
        self.num_axes = _common_axes(kinds)
        for promise in PROMISES:
            kept = getattr(self, promise) and all(getattr(part, promise) for part in parts)
            setattr(self, promise, kept)
        self.causal_only = any(part.causal_only for part in parts)

    def acts(self, hook: str) -> bool:
        return super().acts(hook) or any(part.acts(hook) for part in self._parts())

    def acting(self) -> set[str]:
        own = {hook for hook in DESCRIBED_BY if not self._is_own(hook)}
        return own.union(*(part.acting() for part in self._parts()))

    def derives(self, hook: str) -> bool:
        parts = self._parts(hook)
        return (
            super().derives(hook)
            and all(part.derives(hook) for part in parts)
            and (hook == "bias" or len(parts) <= 1)  # turns and vectors are those of one part
        )

    def _parts(self, hook: str | None = None) -> list[Representation]:
        """Return the parts that act at a hook, or all parts."""
        parts = [part for part in self.parts if isinstance(part, Representation)]
        return [part for part in parts if hook is None or part.acts(hook)]

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

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        return total([part("query_bias", q, pos_q, pos_k) for part in self._parts()])

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        return total([part("value_bias", probs, pos_q, pos_k) for part in self._parts()])

    def state(self, x: Tensor, pos: Tensor) -> Tensor | None:
        for part in self._parts("state"):
            state: Tensor | None = part("state", x, pos)
            return state
        return None

    def score(
        self,
        scores: Tensor,
        q: Tensor,
        k: Tensor,
        state: Tensor | None,
        pos_q: Tensor,
        pos_k: Tensor,
    ) -> Tensor:
        for part in self._parts("score"):
            own = state if part.acts("state") else None
            scores = part("score", scores, q, k, own, pos_q, pos_k)
        return scores

    def turns(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Turn, Turn]:
        return self._parts("rotate")[0].turns(q, k, pos_q, pos_k)

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        numbers = [part.bias_at(distances, dtype) for part in self._parts("bias")]
        return sum(numbers[1:], numbers[0])

    @property
    def limits(self) -> tuple[int, int] | None:  # type: ignore[override]
        """The widest limits of the parts, each of which clips distances itself; None if a part has
        none."""
        limits = [part.limits for part in self._parts("bias")]
        known = [x for x in limits if x is not None]
        if not known or len(known) < len(limits):
            return None
        return min(x[0] for x in known), max(x[1] for x in known)

    def distance_vectors(self) -> tuple[Table | None, Table | None]:
        keys, values = self._parts("query_bias"), self._parts("value_bias")
        return (
            keys[0].distance_vectors()[0] if keys else None,
            values[0].distance_vectors()[1] if values else None,
        )


Chain._derived = {name: getattr(Chain, name) for name in HOOKS}


def _common_axes(kinds: list[Representation]) -> int:
    """Return A of the kinds that use positions, which must be one number."""
    found = {kind.num_axes: type(kind).__name__ for kind in kinds if any(map(kind.acts, HOOKS))}
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise ShapeshiftError(
            f"{first} takes positions with {one} axes and {second} with {other}, but the parts of a"
            " Chain get the same positions; build them for the same number of axes"
        )
    return next(iter(found), 1)


def _check_heads(kinds: list[Representation]) -> None:
    """Raise a `ShapeshiftError` if kinds cannot be combined in one attention, see `Chain`: a score
    (R(i) q_i) a_ij depends on i, and two rotations may not commute."""
    apart = "give them different stacks or places"
    for turning, reading in permutations(kinds, 2):
        reads = reading.acts("query_bias") or not reading.head_free_score
        if not turning.position_free_heads and reads:
            one, other = type(turning).__name__, type(reading).__name__
            raise ShapeshiftError(
                f"{one} turns the queries that {other} reads, whose scores would depend on where a"
                f" sentence begins; {apart}, or use a kind that does not read queries, such as T5,"
                " ALiBi or Shaw with add_to='values'"
            )
    stateful = [type(kind).__name__ for kind in kinds if kind.acts("state")]
    if len(stateful) > 1:
        raise ShapeshiftError(
            f"{' and '.join(stateful)} would both keep a state with the keys of one attention;"
            f" leave one of them out, or {apart}"
        )
    changing = [kind for kind in kinds if kind.acts("rotate")]
    for first, second in combinations(changing, 2):
        turn = not (first.position_free_heads or second.position_free_heads)
        if turn or type(first) is type(second):
            one, other = type(first).__name__, type(second).__name__
            raise ShapeshiftError(
                f"{one} and {other} would both change the queries and keys of one attention; leave"
                f" one of them out, or {apart}"
            )
