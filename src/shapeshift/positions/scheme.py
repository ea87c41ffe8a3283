"""A position scheme is three independent choices: position ids × kind × place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shapeshift._system.errors import ShapeshiftError, nearest
from shapeshift._system.own_modules import is_own

from .checks import check_arguments
from .layers import Layers, check_layers, describe_layers
from .registry import FOREIGN_POSITIONS, KINDS, POSITION_IDS, find_kind, kind_names

PLACES = ("embedding", "self", "cross")
STACKS = ("encoder", "decoder", "both")


@dataclass(frozen=True)
class PositionIds:
    """The number of each token: a name from the registry's POSITION_IDS and its options."""

    name: str = "absolute"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_arguments(type(self).__init__, vars(self), type(self).__name__)

    def __str__(self) -> str:
        """Return `shifted, max_offset=500`."""
        return ", ".join((self.name, *_assignments(self.options)))


@dataclass(frozen=True)
class Part:
    """One kind at one place.

    Args:
        kind: a name from the registry's KINDS, or `package.module:Class`; see `find_kind`.
        place: `embedding`, `self` or `cross`; None is the kind's first place.
        stacks: `encoder`, `decoder` or `both` (`cross` exists in the decoder only).
        layers: the layers it acts in, counted from 0; None means all. A number n is the first n
            (all layers of a shorter stack), `[0, 2, 5]` are these, `{"every": 4, "offset": 3}` are
            3, 7, 11, …, and `{"except": …}` are all but one of these forms. Has no meaning at the
            embedding.
        options: options of the kind, such as `max_distance`.
        share_layers: whether the layers of a stack share one module and its weights, or each layer
            has its own; None is the kind's default, as in its paper. Has no meaning at the
            embedding or without weights.
    """

    kind: str
    place: str | None = None
    stacks: str = "both"
    layers: Layers | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    share_layers: bool | None = None

    def __post_init__(self) -> None:
        check_arguments(type(self).__init__, vars(self), type(self).__name__)
        if self.layers is not None:
            object.__setattr__(self, "layers", check_layers(self.layers))

    @property
    def at(self) -> str:
        """The place; by default the kind's first."""
        return self.place or find_kind(self.kind).build.places[0]

    @property
    def used_stacks(self) -> tuple[str, ...]:
        """Names of the stacks that have the part; the encoder has no cross-attention."""
        if self.at == "cross" and self.stacks == "both":
            return ("decoder",)
        return STACKS[:2] if self.stacks == "both" else (self.stacks,)

    def __str__(self) -> str:
        """Return `sinusoidal at self (decoder, first layer, add_to=qk)`."""
        limits = [] if self.stacks == "both" else [self.stacks]
        if self.layers is not None:
            limits.append(describe_layers(self.layers))
        if self.share_layers is not None:
            limits.append(f"share_layers={self.share_layers}")
        limits += _assignments(self.options)
        return f"{self.kind} at {self.at}" + (f" ({', '.join(limits)})" if limits else "")


@dataclass(frozen=True)
class Scheme:
    """How a model uses positions; with empty `parts` it uses none."""

    position_ids: PositionIds = PositionIds()
    parts: tuple[Part, ...] = ()

    def __post_init__(self) -> None:
        parts = self.parts if isinstance(self.parts, tuple | list) else (None,)
        if not isinstance(self.position_ids, PositionIds) or not all(
            isinstance(part, Part) for part in parts
        ):
            raise ShapeshiftError(
                "a Scheme needs PositionIds and a tuple of Parts, such as"
                f" Scheme(PositionIds('shifted'), (Part('sinusoidal'),)), got {self.position_ids!r}"
                f" and {self.parts!r}"
            )

    def __str__(self) -> str:
        """Return `shaw at self (max_distance=16), position ids absolute`."""
        parts = " + ".join(map(str, self.parts)) or "no position"
        return f"{parts}, position ids {self.position_ids}"


def _assignments(options: Mapping[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in options.items()]


SINUSOIDAL = (Part("sinusoidal", "embedding"),)
LESS_FEEDING = Part("sinusoidal", "self", layers=1, options={"add_to": "qk"})
CROSS_PE = Part("sinusoidal", "cross", layers=1, options={"add_to": "qk"})

SCHEMES: dict[str, Scheme] = {
    "nope": Scheme(),
    "ape": Scheme(parts=SINUSOIDAL),
    "learned": Scheme(parts=(Part("learned", "embedding"),)),
    "shape": Scheme(PositionIds("shifted", {"max_offset": 500}), SINUSOIDAL),
    "rpe": Scheme(parts=(Part("shaw", "self", options={"max_distance": 16}),)),
    "skew": Scheme(parts=(Part("skew", "self"),)),
    "t5": Scheme(parts=(Part("t5", "self"),)),
    "alibi": Scheme(parts=(Part("alibi", "self"),)),
    "rope": Scheme(parts=(Part("rotary", "self"),)),
    "xpos": Scheme(parts=(Part("rotary", "self", "encoder"), Part("xpos", "self", "decoder"))),
    "cope": Scheme(parts=(Part("rotary", "self", "encoder"), Part("cope", "self", "decoder"))),
    "fox": Scheme(parts=(Part("rotary", "self", "encoder"), Part("fox", "self", "decoder"))),
    "pope": Scheme(parts=(Part("pope", "self"),)),
    "path": Scheme(parts=(Part("rotary", "self", "encoder"), Part("path", "self", "decoder"))),
    "inkling": Scheme(
        parts=(Part("rotary", "self", "encoder"), Part("inkling", "self", "decoder"))
    ),
    "tupe": Scheme(parts=(Part("tupe", "self"),)),
    "randomized": Scheme(PositionIds("randomized", {"max_position": 2048}), SINUSOIDAL),
    "cross-pe": Scheme(parts=(*SINUSOIDAL, CROSS_PE)),
    "less-feeding": Scheme(parts=(LESS_FEEDING,)),
    "less-feeding-cross-pe": Scheme(parts=(LESS_FEEDING, CROSS_PE)),
    "skew-cross-pe": Scheme(parts=(Part("skew", "self", layers=1), CROSS_PE)),
}
"""The papers' names: APE, SHAPE and RPE of Kiyono et al. 2021; no position at all; learned; each
further kind in self-attention with its paper's settings (xPos, CoPE, FoX, PaTH and Inkling are for
decoders; the encoder uses rotary); randomized sinusoidal positions; and the schemes of Miyazaki et
al. 2024, which add positions to Q and K in the first layer: in self-attention instead of at the
embedding (LESS-FEEDING), in cross-attention as well (CROSS-PE), and their best, skew with
CROSS-PE."""


def is_scheme(name: object) -> bool:
    """Return whether `find_scheme` knows a name; a kind of the user's own is not looked up."""
    return isinstance(name, str) and (
        name in SCHEMES or name in KINDS or is_own(name) or name in kind_names()
    )


def find_scheme(name: str) -> Scheme:
    """Return the scheme of a name. A kind's name, also `package.module:Class`, is the scheme that
    has this kind at its default place, in all layers.

    Raises:
        ShapeshiftError: there is none.
    """
    if name in SCHEMES:
        return SCHEMES[name]
    if not is_scheme(name):
        raise ShapeshiftError(no_scheme(name))
    return Scheme(parts=(Part(name, find_kind(name).build.places[0]),))


def no_scheme(name: str) -> str:
    """Return what to say of a name that no scheme has: which one is meant, if one is."""
    meant = FOREIGN_POSITIONS.get(name.lower().replace("-", "_"))
    if meant is not None:
        return f"unknown scheme {name!r}; did you mean {meant!r}?"
    if name in POSITION_IDS:
        return f"{name!r} are position ids, not a scheme; set position.position_ids.name={name}"
    known = dict.fromkeys((*SCHEMES, *kind_names()))
    return f"unknown scheme {name!r}{nearest(name, known)} (known: {', '.join(known)})"
