"""Position representations to attack: kinds of the registry with random options, and kinds of one's
own, whose hooks do what hooks may do with tensors."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.positions import KINDS, T5, ALiBi, Chain, Representation, get
from shapeshift.positions.pairs import Table
from shapeshift.positions.turns import Turn

ROWS = 2048
"""Positions of tables."""

Spec = list[Any]
"""A kind and its options: `[name, {option: value}]`."""


class InvalidCaseError(Exception):
    """A case that the library refuses, rightly."""


def wide(x: Tensor) -> Tensor:
    """Return `x` in float32, or in float64 as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def vectors(table: Tensor, pos: Tensor, like: Tensor) -> Tensor:
    """Return a row of a table of nine for each position, `(B|1, 1, K, E)`."""
    return wide(table)[pos % 9].unsqueeze(1).to(like.dtype)


class TransposedBias(Representation):
    """`bias` returns a transposed view, in a row for each sentence, head and pair."""

    def __init__(self, *, num_heads: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 9, num_heads))

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        by_key = wide(self.table)[(pos_q % 9)[:, None], (pos_k % 9)[:, :, None]]  # (B|1, K, Q, H)
        return by_key.permute(0, 3, 2, 1).to(dtype)


class OneForAll(Representation):
    """`bias` broadcasts: one number for each key, or for each head."""

    def __init__(self, *, num_heads: int, of: str = "keys"):
        super().__init__()
        self.of = of
        self.weight = nn.Parameter(torch.randn(num_heads))

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        weight = wide(self.weight)
        if self.of == "keys":
            return ((pos_k % 5)[:, None, None] * weight[0]).to(dtype)
        if self.of == "queries":
            return ((pos_q % 5)[:, None, :, None] * weight.view(1, -1, 1, 1)).to(dtype)
        return weight.view(1, -1, 1, 1).to(dtype)


class ChangedInPlace(Representation):
    """Each hook changes in place what it has computed, through views: as if the first query and key
    of a call were others, so that it must get all of them in one call."""

    def __init__(self, *, num_heads: int, head_dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, head_dim))
        self.weight = nn.Parameter(torch.randn(num_heads))

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        weight = wide(self.weight)
        near = (pos_k[:, None, None] - pos_q[:, None, :, None]).abs() % 4
        out = near * weight.view(1, -1, 1, 1)
        out.transpose(1, 2)[:, :1].mul_(0.5)
        return out.add_(1.0).to(dtype)

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        out = q @ vectors(self.table, pos_k, q).mT
        out[..., :1].mul_(2.0)
        return out

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        out = probs @ vectors(self.table, pos_k, probs)
        out[:, :, ::2].neg_()
        return out


class ReadTransposed(Representation):
    """Hooks read their arguments transposed and expanded, and return views."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, head_dim))

    def query_bias(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return (vectors(self.table, pos_k, q) @ q.mT).mT

    def value_bias(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        return (vectors(self.table, pos_k, probs).mT @ probs.mT).mT


class Turned(Representation):
    """`rotate` reads views and changes its own result in place; `bias` is a view that repeats."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(head_dim))

    def rotate(self, q: Tensor, k: Tensor, pos_q: Tensor, pos_k: Tensor) -> tuple[Tensor, Tensor]:
        return self._turn(q, pos_q), self._turn(k, pos_k)

    def _turn(self, x: Tensor, pos: Tensor) -> Tensor:
        out = x.transpose(1, 2) * self.weight.to(x.dtype)  # (B, T, H, E)
        out[..., ::2].mul_(2.0)
        return out.transpose(1, 2).add_((pos % 3)[:, None, :, None].to(x.dtype))

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        row = (pos_k % 7).to(dtype)[:, None, None]
        return row.expand(-1, -1, pos_q.shape[1], -1)


class HalfALiBi(ALiBi):
    """A subclass with a hook of its own: the faster methods that it inherits do not serve."""

    def bias(self, pos_q: Tensor, pos_k: Tensor, *, dtype: torch.dtype) -> Tensor:
        return super().bias(pos_q, pos_k, dtype=dtype).mul(0.5)


class TwiceT5(T5):
    """A subclass that changes what a hook is derived from."""

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        return 2 * super().distance_bias(distances, dtype)


class ByDistance(Representation):
    """Describes its bias: one number for all heads, of clipped distances."""

    limits = (-9, 4)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5))

    def distance_bias(self, distances: Tensor, dtype: torch.dtype) -> Tensor:
        return self.weight.to(dtype)[distances % 5].unsqueeze(0)

    def by_definition(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return what the description says, `(B|1, 1, Q, K)`."""
        distances = (pos_k[:, None, :] - pos_q[:, :, None]).clamp(-9, 4)
        return self.weight[distances % 5][:, None]


class ByTable(Representation):
    """Describes vectors by distance: of keys for each head, of values for all, of others."""

    def __init__(self, *, num_heads: int, head_dim: int):
        super().__init__()
        self.keys = nn.Parameter(torch.randn(num_heads, 4, head_dim))
        self.values = nn.Parameter(torch.randn(1, 3, head_dim))

    def distance_vectors(self) -> tuple[Table, Table]:
        return Table(self.keys, -1), Table(self.values, -2)

    def by_definition(self, q: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return what is added to the scores."""
        by_row = q @ self.keys.mT
        return by_row.gather(-1, _rows(pos_q, pos_k, -1, 2).expand(*q.shape[:3], -1))

    def mixed_by_definition(self, probs: Tensor, pos_q: Tensor, pos_k: Tensor) -> Tensor:
        """Return what is added to the heads."""
        rows = _rows(pos_q, pos_k, -2, 0)
        near = [(probs * (rows == n)).sum(-1, keepdim=True) for n in range(3)]
        return torch.cat(near, -1) @ self.values


def _rows(pos_q: Tensor, pos_k: Tensor, low: int, high: int) -> Tensor:
    return (pos_k[:, None, None] - pos_q[:, None, :, None]).clamp(low, high) - low


class ByTurn(Representation):
    """Describes a rotation of two channels, with a scale and a decay."""

    def __init__(self, *, head_dim: int):
        super().__init__()
        if head_dim < 2:
            raise ShapeshiftError("two channels turn")

    def turn(self, pos: Tensor, dtype: torch.dtype) -> Turn:
        angle = 0.3 * pos.double().unsqueeze(-1)
        decay = 1 + 0.1 * (pos.double() % 5).unsqueeze(-1)
        return Turn(angle.cos(), angle.sin(), False, 1.2, decay)

    def turned_by_definition(self, x: Tensor, pos: Tensor, sign: int) -> Tensor:
        """Return the heads, rotated."""
        factor = (1 + 0.1 * (pos.double() % 5)) ** sign
        angle, factor = (y[:, None, :, None] for y in (0.3 * pos.double(), factor))
        a, b, rest = x[..., :1], x[..., 1:2], x[..., 2:]
        a, b = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return torch.cat((a * factor, b * factor, rest), -1) * 1.2


class Mixing(Representation):
    """`embed` and `inputs`, with views and changes of their own results in place."""

    def __init__(self, *, dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return (x.mT * self.weight[:, None]).mT.add_((pos % 4).unsqueeze(-1) / 4)

    def inputs(
        self, q: Tensor, k: Tensor, v: Tensor, pos_q: Tensor, pos_k: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        k = k * self.weight.to(k.dtype)
        k[..., :1].neg_()
        return (q.mT + (pos_q % 4)[:, None].to(q.dtype) / 4).mT, k, v


OWN = {
    each.__name__: each
    for each in (
        TransposedBias, OneForAll, ChangedInPlace, ReadTransposed, Turned, HalfALiBi, TwiceT5,
        ByDistance, ByTable, ByTurn, Mixing,
    )
}  # fmt: skip


WHOLE = {ChangedInPlace}
"""Those that do not decode token by token."""


def full_name(name: str) -> str:
    """Return the name under which the library finds a kind."""
    return f"{__name__}:{name}" if name in OWN else name


OPTIONS: dict[str, dict[str, list[Any]]] = {
    "shaw": {"max_distance": [0, 1, 3, 40], "per_head": [True]},
    "skew": {"max_distance": [0, 2, 9], "per_head": [False]},
    "fire": {"hidden": [1, 5], "threshold": [1.0, 30.0]},
    "rotary": {"pairs": ["halves"], "fraction": [0.5, 0.3], "base": [500.0]},
    "xpos": {"pairs": ["halves"], "gamma": [0.1], "scale_base": [300.0]},
    "pope": {"base": [500.0]},
    "path": {"rank": [3], "conv_size": [0, 1, 5]},
    "inkling": {"rank": [3], "extent": [1, 7]},
    "sinusoidal": {"channels": ["halves", "tensor2tensor"], "add_to": ["q", "v", "qkv"]},
    "learned": {"add_to": ["k", "qkv"]},
    "OneForAll": {"of": ["queries", "heads"]},
}
"""Kind → options that change what it computes, each drawn in half of the cases."""


def draw_options(rng: random.Random, kind: str) -> dict[str, Any]:
    """Return random options of a kind."""
    values = OPTIONS.get(kind, {})
    together: dict[str, Any] = {"num_positions": ROWS} if kind in ("learned", "tupe") else {}
    if kind == "t5":
        together = rng.choice(({}, {"num_buckets": 8, "max_distance": 5}, {"max_distance": 600}))
    elif kind == "rotary":
        share = rng.choice((0.5, 1.0))
        scaling = {"scaling": "yarn", "factor": 4.0, "original_length": 32}
        together = rng.choice(({}, {}, {"scaling": "linear", "factor": 3.0}, scaling))
        if rng.random() < 0.2:  # as a released model
            values, together = {"pairs": ["halves"]}, {"rope_parameters": {
                "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "attention_factor": 1.5,
                "original_max_position_embeddings": 32, "partial_rotary_factor": share,
            }}  # fmt: skip
    drawn = {name: rng.choice(each) for name, each in values.items() if rng.random() < 0.5}
    if kind == "shaw":
        together = rng.choice(
            ({}, {"add_to": "keys"}, {"add_to": "values"}, {"share_tables": True})
        )
    return together | drawn


def draw_with_axes(rng: random.Random) -> Spec:
    """Return a kind whose positions have several axes, for heads of width 24."""
    pairs = {"pairs": rng.choice(("halves", "interleaved"))}
    axial = {"num_axes": rng.choice((2, 3)), "order": rng.choice(("same", "alternating"))}
    rotary = {"sections": rng.choice(([4, 4, 4], [6, 6], [6, 3, 3], [1, 8, 3]))}
    mixed = {"sections": rng.choice(([6, 6], [6, 3, 3])), "section_order": "interleaved"}
    name, options = rng.choice((("axial", axial), ("rotary", rotary), ("rotary", mixed)))
    return [name, options | pairs]


def draw(rng: random.Random, own: float = 0.15, place: str = "self") -> list[Spec]:
    """Return one kind, or now and then several in a chain. Kinds with a `score`, which `reference`
    alone computes, are drawn for whole models only."""
    count = rng.choices((1, 2, 3), (6, 2, 1))[0]
    builds = {name: entry.build for name, entry in KINDS.items()}
    adding = [x for x, build in builds.items() if build.score is Representation.score]
    known = [name for name in adding if place in builds[name].places]
    ours = [name for name, kind in OWN.items() if place in kind.places]
    names = [rng.choice(ours if rng.random() < own else known) for _ in range(count)]
    return [[name, draw_options(rng, name)] for name in names]


def build(specs: list[Spec], *, causal: bool, seed: int, **sizes: int) -> Representation:
    """Return the representation, with random weights.

    Raises:
        InvalidCaseError: if these kinds cannot stand together, or have no meaning at these sizes.
    """
    torch.manual_seed(seed)
    parts = []
    try:
        for name, options in specs:
            parts.append(get(full_name(name), causal=causal, **sizes, **options))
        position = parts[0] if len(parts) == 1 else Chain(*parts)
    except ShapeshiftError as error:
        raise InvalidCaseError(str(error)) from error
    with torch.no_grad():
        for parameter in position.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return position
