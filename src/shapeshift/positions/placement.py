"""Build representations by name: one for your own model, or all of a scheme."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shapeshift._system import own_modules
from shapeshift._system.errors import ShapeshiftError

from .base import Representation
from .chain import Chain
from .checks import check_arguments, whole_number
from .layers import select_layers
from .position_ids import Absolute, Coupled, Randomized, Shifted
from .registry import (
    FIXED_BY_MODEL,
    KINDS,
    POSITION_IDS,
    check_name,
    check_options,
    find_kind,
    kind_names,
)
from .scheme import PLACES, SCHEMES, STACKS, Part, Scheme


@dataclass(frozen=True)
class Stack:
    """Properties of an encoder or a decoder that a representation needs.

    Args:
        name: `encoder` or `decoder`, whose self-attention is causal.
        dim: D.
        num_heads: H; D must be a multiple.
        num_layers: number of layers in the stack.

    Raises:
        ShapeshiftError: for an invalid argument.
    """

    name: str
    dim: int
    num_heads: int
    num_layers: int

    def __post_init__(self) -> None:
        check_arguments(type(self).__init__, vars(self), type(self).__name__)
        check_name(STACKS[:2], self.name, "stack")
        if self.dim % self.num_heads:
            raise ShapeshiftError(
                f"dim must be a multiple of num_heads, got {self.dim} and {self.num_heads}"
            )
        whole_number("num_layers", self.num_layers, 1)


@dataclass(frozen=True)
class Placed:
    """A scheme's modules in one stack. A module that several layers share appears in each."""

    embedding: Representation
    self_attention: list[Representation]
    cross_attention: list[Representation]


def get(name: str, /, **options: Any) -> Representation:
    """Build the position representation of a scheme or a kind.

        get("rope", head_dim=64)
        get("rpe", num_heads=8, head_dim=64, max_distance=32)

    Args:
        name: a kind (also `package.module:Class`), or a scheme that is one kind in all layers with
            absolute positions.
        options: arguments of its class, see `shapeshift positions NAME`; the scheme's options are
            the defaults. Model arguments (`dim`, `num_heads`, `head_dim`, `causal`) that the kind
            does not need are ignored, so that one call works for all kinds.

    Raises:
        ShapeshiftError: if the name is unknown; if the scheme has more than one module; if an
            argument is unknown or out of range; or if `causal` is false for a causal kind.
        TypeError: if an argument of the model is missing.
    """
    kind, scheme_options = _kind_of(name)
    options = {**scheme_options, **options}
    sizes = {key: options.pop(key) for key in FIXED_BY_MODEL if key in options}
    build = find_kind(kind).build
    check_options(find_kind(kind), options, repr(name))
    if build.causal_only and not sizes.get("causal", True):
        raise ShapeshiftError(
            f"{name!r} has no meaning for tokens on the right, which an encoder sees, got"
            " causal=False; use it in the decoder alone (stacks: decoder), or another kind, such as"
            " 'rotary'"
        )
    taken = inspect.signature(build).parameters
    return build(**{key: sizes[key] for key in sizes if key in taken}, **options)


def _kind_of(name: str) -> tuple[str, Mapping[str, Any]]:
    """Return the kind of a scheme or the kind itself, and the scheme's options."""
    if name in KINDS or own_modules.is_own(name):
        return name, {}
    if name not in SCHEMES:
        names = kind_names()
        check_name([*dict.fromkeys([*SCHEMES, *names])], name, "scheme or kind")
        return name, {}
    scheme = SCHEMES[name]
    part, *others = scheme.parts or (Part("none"),)
    is_limited = part.layers is not None or part.stacks != "both"
    if others or is_limited or scheme.position_ids.name != "absolute":
        remedy = "SHAPE" if name == "shape" else "positions.place"
        raise ShapeshiftError(
            "get returns one kind, of all layers, with absolute position ids, and the scheme"
            f" {name!r} is {scheme}; use shapeshift.{remedy}"
        )
    return part.kind, part.options


def check(scheme: Scheme) -> None:
    """Raise a `ShapeshiftError` for an unknown name or option, or a kind at a place that it does
    not have."""
    if not isinstance(scheme, Scheme):
        raise ShapeshiftError(
            f"a scheme must be a Scheme, such as Scheme(parts=(Part('rotary'),)) or SCHEMES['rope']"
            f" of shapeshift.positions, got {scheme!r}"
        )
    name, options = scheme.position_ids.name, scheme.position_ids.options
    check_name(POSITION_IDS, name, "position ids")
    check_options(POSITION_IDS[name], options, f"position ids {name!r}")
    for part in scheme.parts:
        kind = find_kind(part.kind)
        check_options(kind, part.options, f"kind {part.kind!r}")
        check_name(PLACES, part.at, "place")
        check_name(STACKS, part.stacks, "stacks")
        if part.at not in kind.build.places:
            raise ShapeshiftError(
                f"{part.kind!r} has no meaning at {part.at!r}; use it at"
                f" {' or '.join(kind.build.places)}"
            )
        if part.at == "cross" and part.stacks == "encoder":
            raise ShapeshiftError("the encoder has no cross-attention; use stacks: decoder")
        embedded, layers = part.at == "embedding", part.layers
        is_one = layers == 1 or (isinstance(layers, list | tuple) and len(layers) == 1)
        unused = {
            "layers": embedded and layers is not None,
            "share_layers": (embedded or is_one) and part.share_layers is not None,
            "add_to": embedded and "add_to" in part.options,
        }
        for option in filter(unused.get, unused):
            raise ShapeshiftError(f"{option} has no meaning for {part}; leave it out")


def build_position_ids(scheme: Scheme) -> Absolute:
    """Build a module that numbers the tokens of one side (source or target)."""
    name, options = scheme.position_ids.name, scheme.position_ids.options
    check_name(POSITION_IDS, name, "position ids")
    return POSITION_IDS[name].build(**options)


def place(scheme: Scheme, stack: Stack) -> Placed:
    """Build the modules of `scheme` for one stack.

    Raises:
        ShapeshiftError: for a name, an option or a cell that does not exist; for an option out of
            range; for layers that do not exist, and a pattern that selects all or none of them; for
            kinds that cannot be combined in one attention, see `Chain`; and for a kind whose
            highest position is below the highest position id.
    """
    check(scheme)
    parts = [part for part in scheme.parts if stack.name in part.used_stacks]
    at = {name: [part for part in parts if part.at == name] for name in PLACES}
    placed = Placed(
        embedding=_join([_build(part, stack) for part in at["embedding"]]),
        self_attention=_layers(at["self"], stack),
        cross_attention=_layers(at["cross"], stack),
    )
    position_ids = build_position_ids(scheme)
    for position in (placed.embedding, *placed.self_attention, *placed.cross_attention):
        check_numbers(position_ids, position)
    return placed


def check_numbers(position_ids: Absolute, position: Representation) -> None:
    """Raise a `ShapeshiftError` if the position ids exceed the `max_position` of `position`.

    This checks only what is known before any text is read; the hooks check sequence lengths.
    """
    if isinstance(position_ids, Shifted | Coupled):
        highest, option = position_ids.max_offset, "max_offset"  # and more with its tokens
    elif isinstance(position_ids, Randomized):
        highest, option = position_ids.max_position - 1, "max_position"
    else:
        return
    for kind in position.kinds():
        limit = kind.max_position()
        if limit is not None and limit < highest:
            raise ShapeshiftError(
                f"position ids go up to {highest}, but {type(kind).__name__} takes positions up to"
                f" {limit}; use a smaller {option}, a larger num_positions of a table, or a kind"
                " without a limit, such as 'sinusoidal'"
            )


def _build(part: Part, stack: Stack) -> Representation:
    sizes = {"dim": stack.dim, "num_heads": stack.num_heads}
    causal = stack.name == "decoder" and part.at == "self"
    head_dim = stack.dim // stack.num_heads
    built = get(part.kind, **sizes, head_dim=head_dim, causal=causal, **part.options)
    if built.num_axes > 1:
        raise ShapeshiftError(
            f"{part.kind!r} takes positions with {built.num_axes} axes here, and tokens of this"
            " model have one; use shapeshift.positions.get to build it for a model of your own"
        )
    return built


def _layers(parts: list[Part], stack: Stack) -> list[Representation]:
    layers: list[list[Representation]] = [[] for _ in range(stack.num_layers)]
    for part in parts:
        first = _build(part, stack)
        if part.share_layers is not None and not [*first.parameters()]:
            raise ShapeshiftError(f"share_layers has no meaning for {part}; leave it out")
        shared = first.share_layers if part.share_layers is None else part.share_layers
        for count, n in enumerate(select_layers(part.layers, stack.num_layers, stack.name)):
            layers[n].append(first if shared or count == 0 else _build(part, stack))
    return [_join(layer) for layer in layers]


def _join(modules: list[Representation]) -> Representation:
    if not modules:
        return Representation()
    return modules[0] if len(modules) == 1 else Chain(*modules)
