"""The hooks through which a model asks where its tokens stand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import ClassVar

from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from .pairs import add


class Representation(nn.Module):
    """How position enters a Transformer; the base class is "no position".

    A model calls the hooks at fixed points and knows nothing else. `embed`, `inputs`, `heads`,
    `bias` and `mix` do nothing by default, so this class itself is the kind `none`. A subclass
    overrides those it needs. `scores` and `outputs` do the rest of attention with `bias` and `mix`;
    a subclass that knows a faster way overrides them as well.

    With x a layer's input, W the projections and i, j the query and key positions, attention is

        q, k, v  = inputs(x, x, x)                        # what is projected
        Q, K     = heads(q W^Q, k W^K)                    # the projected heads
        Q        = Q / sqrt(E)
        e_ij     = Q_i K_j^T + bias(Q)_ij                 # scores, then mask and softmax
        z_i      = sum_j softmax(e)_ij (v W^V)_j + mix(softmax(e))_i    # outputs

    Shapes: B batch, Q and K query and key length, H heads, D model width, E = D / H. Positions are
    integer tensors `(B, T)` or `(1, T)`. A representation never sees nor builds a mask.

    A kind that is built for one D, H or E keeps it as `dim`, `num_heads` or `head_dim`, so that an
    attention of another size can refuse it.
    """

    places: ClassVar[tuple[str, ...]] = ("embedding", "self", "cross")
    """Where this kind has a meaning: `embedding`, `self` (self-attention), `cross`
    (encoder-decoder attention). The first is the default."""

    causal_only: bool = False
    """True if it has no meaning for keys right of their query, as a kind or (built with `causal`)
    as it is: the decoder's self-attention is the only place left."""

    shift_invariant: bool = True
    """True if adding one number to all positions never changes the model's output."""

    mixes: bool = False
    """True if `mix` returns a tensor, so that attention must keep its probabilities."""

    biases: bool = False
    """True if `bias` returns a tensor."""

    turns: bool = False
    """True if `heads` depends on the positions: no other part may read or turn these queries."""

    reads: bool = False
    """True if `bias` depends on the queries."""

    splits: bool = True
    """True if `bias` and `mix` may be asked for some sentences and some queries at a time."""

    def kinds(self) -> Iterator[Representation]:
        """Yield what this consists of: itself, or all parts of a chain."""
        yield self

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Return token embeddings `x (B, T, D)` with position added; `pos (B|1, T)`."""
        return x

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the inputs `(B, Q|K, D)` of the query, key and value projections."""
        return q, k, v

    def heads(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        """Return the projected query and key heads `(B, H, Q|K, E)`. The queries are not
        scaled yet."""
        return q, k

    def bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        """Return what is added to the scaled scores, broadcastable to `(B, H, Q, K)`, or None.

        `q (B, H, Q, E)` are the query heads, scaled by 1 / sqrt(E).
        """
        return None

    def mix(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        """Return what is added to the attention output `(B, H, Q, E)`, or None.

        `probs (B, H, Q, K)` are the attention probabilities after dropout, in the dtype of the
        values.
        """
        return None

    def scores(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return e_ij, `(B, H, Q, K)`, a new tensor: `q k^T + bias`, or what the same softmax comes
        of. A subclass may know a faster way than by its `bias`."""
        made = q @ k.transpose(-1, -2)
        bias = self.bias(q, pos_q, pos_k)
        if bias is not None:
            add(made, bias)
        return made

    def outputs(self, probs: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return z_i, `(B, H, Q, E)`, a new tensor: `probs v + mix`. A subclass may know a faster
        way than by its `mix`."""
        made = probs @ v
        mixed = self.mix(probs, pos_q, pos_k)
        if mixed is not None:
            made += mixed
        return made


class Encoding(Representation):
    """A kind that gives each position a vector: PE(i) in R^D.

    A subclass defines `encode`. At the embedding the vector is added to the token; at an attention
    it is added to the inputs of the projections named in `add_to` (Miyazaki et al. 2024, Table 5).

    Args:
        add_to: the projections whose inputs get the vector at an attention, letters of `qkv`.

    Raises:
        ShapeshiftError: if `add_to` has another letter, or none.
    """

    shift_invariant = False

    def __init__(self, add_to: str = "qk"):
        super().__init__()
        if not add_to or not set(add_to) <= set("qkv"):
            raise ShapeshiftError(f"add_to must be letters of 'qkv', such as 'qk', got {add_to!r}")
        self.add_to = add_to

    def encode(self, pos: Tensor, like: Tensor) -> Tensor:
        """Return the vectors `(B|1, T, D)` of positions `pos (B|1, T)` in the dtype of `like`."""
        raise NotImplementedError

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + self.encode(pos, x)

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        at_q = self.encode(pos_q, q)
        at_k = at_q if pos_k is pos_q else self.encode(pos_k, k)
        return (
            q + at_q if "q" in self.add_to else q,
            k + at_k if "k" in self.add_to else k,
            v + at_k if "v" in self.add_to else v,
        )


class Chain(Representation):
    """Several representations at one place, applied in order; their biases and mixes add up.

    Raises:
        ShapeshiftError: if one part reads the queries that another one turns, or two parts turn
            them, or two of one kind change queries and keys.
    """

    def __init__(self, *parts: Representation):
        super().__init__()
        self.parts = nn.ModuleList(parts)
        _check_heads(list(self.kinds()))
        self.turns = any(part.turns for part in parts)
        self.reads = any(part.reads for part in parts)
        self.mixes = any(part.mixes for part in parts)
        self.biases = any(part.biases for part in parts)
        self.splits = all(part.splits for part in parts)
        self.shift_invariant = all(part.shift_invariant for part in parts)
        self.causal_only = any(part.causal_only for part in parts)

    def _parts(self) -> list[Representation]:
        return [part for part in self.parts if isinstance(part, Representation)]

    def kinds(self) -> Iterator[Representation]:
        for part in self._parts():
            yield from part.kinds()

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        for part in self._parts():
            x = part.embed(x, pos)
        return x

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        for part in self._parts():
            q, k, v = part.inputs(q, k, v, pos_q, pos_k)
        return q, k, v

    def heads(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        for part in self._parts():
            q, k = part.heads(q, k, pos_q, pos_k)
        return q, k

    def bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        return _total([part.bias(q, pos_q, pos_k) for part in self._parts()])

    def mix(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor | None:
        return _total([part.mix(probs, pos_q, pos_k) for part in self._parts()])

    def scores(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        parts = [part for part in self._parts() if part.biases]
        if len(parts) == 1:
            return parts[0].scores(q, k, pos_q, pos_k)
        return super().scores(q, k, pos_q, pos_k)

    def outputs(self, probs: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        parts = [part for part in self._parts() if part.mixes]
        if len(parts) == 1:
            return parts[0].outputs(probs, v, pos_q, pos_k)
        return super().outputs(probs, v, pos_q, pos_k)


def _check_heads(kinds: list[Representation]) -> None:
    """Raise a `ShapeshiftError` if kinds may not stand at one attention, see `Chain`: a score
    (R(i) q_i) a_ij depends on i, and two turns need not commute."""
    apart = "give them different stacks or places"
    for turning, reading in permutations(kinds, 2):
        if turning.turns and reading.reads:
            raise ShapeshiftError(
                f"{_name(turning)} turns the queries that {_name(reading)} reads, whose scores"
                f" would depend on where a sentence begins; {apart}, or use a kind that does not"
                " read queries, such as T5, ALiBi or Shaw with add_to='values'"
            )
    changing = [kind for kind in kinds if type(kind).heads is not Representation.heads]
    for first, second in combinations(changing, 2):
        if (first.turns and second.turns) or type(first) is type(second):
            raise ShapeshiftError(
                f"{_name(first)} and {_name(second)} would both change the queries and keys of one"
                f" attention; leave one of them out, or {apart}"
            )


def _name(kind: Representation) -> str:
    return type(kind).__name__


def _total(terms: list[Tensor | None]) -> Tensor | None:
    present = [term for term in terms if term is not None]
    return sum(present[1:], present[0]) if present else None
