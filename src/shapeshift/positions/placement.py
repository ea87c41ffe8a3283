"""Put the parts of a scheme where they act in a model of a given shape."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

from shapeshift.errors import ShapeshiftError, nearest

from .base import Chain, Representation
from .position_ids import Absolute
from .registry import KINDS, POSITION_IDS, check_options, entry
from .scheme import PLACES, STACKS, Part, Scheme


@dataclass(frozen=True)
class Stack:
    """What a representation has to know of an encoder or a decoder."""

    name: str
    dim: int
    num_heads: int
    num_layers: int
    causal: bool


@dataclass(frozen=True)
class Placed:
    """A scheme's modules in one stack. A module that serves several layers appears in each."""

    embedding: Representation
    self_attention: list[Representation]
    cross_attention: list[Representation]


def check(scheme: Scheme) -> None:
    """Raise a `ShapeshiftError` for a name, an option or a cell that does not exist."""
    position_ids = entry(POSITION_IDS, scheme.position_ids.name, "position ids")
    check_options(
        position_ids, scheme.position_ids.options, f"position ids {scheme.position_ids.name!r}"
    )
    for part in scheme.parts:
        kind = entry(KINDS, part.kind, "kind")
        check_options(kind, part.options, f"kind {part.kind!r}")
        places = kind.build.places
        if part.place is not None and part.place not in PLACES:
            raise ShapeshiftError(
                f"unknown place {part.place!r}{nearest(part.place, PLACES)}"
                f" (known: {', '.join(PLACES)})"
            )
        if part.place is not None and part.place not in places:
            raise ShapeshiftError(
                f"{part.kind!r} has no meaning at {part.place!r}; use it at {' or '.join(places)}"
            )
        if part.stacks not in STACKS:
            raise ShapeshiftError(
                f"unknown stacks {part.stacks!r}{nearest(part.stacks, STACKS)}"
                f" (known: {', '.join(STACKS)})"
            )
        if _place(part) == "cross" and part.stacks == "encoder":
            raise ShapeshiftError("the encoder has no cross-attention; use stacks: decoder")
        if kind.build.causal_only and part.stacks != "decoder":
            raise ShapeshiftError(
                f"{part.kind!r} has no meaning for tokens on the right, which an encoder sees, got"
                f" stacks: {part.stacks}; use stacks: decoder and another kind for the encoder,"
                " such as 'rotary'"
            )
        if part.share_layers is not None and (part.layers == 1 or _place(part) == "embedding"):
            raise ShapeshiftError(
                f"share_layers={part.share_layers} has no meaning for {part.kind!r} in a single"
                " layer or at 'embedding'; leave it out"
            )
        if part.layers is not None and (part.layers < 1 or _place(part) == "embedding"):
            raise ShapeshiftError(
                f"layers={part.layers} has no meaning for {part.kind!r} at {_place(part)!r};"
                " give a number from 1 at self or cross, or leave it out"
            )
        if "add_to" in part.options and _place(part) == "embedding":
            raise ShapeshiftError(
                f"add_to={part.options['add_to']!r} has no meaning for {part.kind!r} at"
                " 'embedding', where nothing is projected; leave it out, or use it at self or cross"
            )


def build_position_ids(scheme: Scheme) -> Absolute:
    """Return a fresh module that numbers the tokens of one side (source or target)."""
    return POSITION_IDS[scheme.position_ids.name].build(**scheme.position_ids.options)


def place(scheme: Scheme, stack: Stack) -> Placed:
    """Build the modules of `scheme` for one stack.

    Args:
        scheme: checked by `check` first.
        stack: the stack's shape.

    Raises:
        ShapeshiftError: see `check`; for an option out of its range; and for kinds that may not
            stand at one attention, see `Chain`.
    """
    check(scheme)
    parts = [part for part in scheme.parts if part.stacks in ("both", stack.name)]
    embedding = [_build(part, stack) for part in parts if _place(part) == "embedding"]
    return Placed(
        embedding=_join(embedding),
        self_attention=_layers([part for part in parts if _place(part) == "self"], stack),
        cross_attention=_layers([part for part in parts if _place(part) == "cross"], stack),
    )


def _place(part: Part) -> str:
    return part.place or KINDS[part.kind].build.places[0]


def _build(part: Part, stack: Stack) -> Representation:
    build = KINDS[part.kind].build
    available = {
        "dim": stack.dim,
        "num_heads": stack.num_heads,
        "head_dim": stack.dim // stack.num_heads,
        "causal": stack.causal and _place(part) == "self",
    }
    wanted = inspect.signature(build).parameters
    fixed = {name: value for name, value in available.items() if name in wanted}
    return build(**fixed, **part.options)


def _layers(parts: list[Part], stack: Stack) -> list[Representation]:
    columns = []
    for part in parts:
        last = stack.num_layers if part.layers is None else min(part.layers, stack.num_layers)
        first = _build(part, stack)
        if part.share_layers is not None and not any(True for _ in first.parameters()):
            raise ShapeshiftError(
                f"share_layers={part.share_layers} has no meaning for {part.kind!r}, which has no"
                " weights that layers could share; leave it out"
            )
        shared = first.share_layers if part.share_layers is None else part.share_layers
        modules = [first, *(first if shared else _build(part, stack) for _ in range(1, last))]
        columns.append([*modules, *[None] * (stack.num_layers - last)])
    return [
        _join([column[layer] for column in columns if column[layer] is not None])
        for layer in range(stack.num_layers)
    ]


def _join(modules: list[Representation | None] | list[Representation]) -> Representation:
    present = [module for module in modules if module is not None]
    if not present:
        return Representation()
    return present[0] if len(present) == 1 else Chain(*present)
