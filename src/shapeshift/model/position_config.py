"""The section of a configuration that sets the positions of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import Field, model_validator

from shapeshift._system.errors import ShapeshiftError, nearest
from shapeshift._system.own_modules import is_own
from shapeshift._system.schema import PlainName, Strict
from shapeshift.model.config import ModelConfig
from shapeshift.model.meta import without_numbers
from shapeshift.positions import (
    KINDS,
    POSITION_IDS,
    SCHEMES,
    Part,
    PositionIds,
    Scheme,
    Stack,
    build_position_ids,
    check,
    place,
)
from shapeshift.positions.registry import FOREIGN_POSITIONS, find_kind, kind_names

DEFAULT_POSITION = "ape"


class PositionConfig(Strict):
    """How the model uses positions: the name of a scheme, or position ids and parts.

    Without `parts`, `name` is a scheme (by default `ape`), and the other keys override it. With
    `parts`, `name` is a label. It may be the name of a scheme only if these position ids and parts
    are that scheme's (options may differ), and a kind's only if that kind is one of the parts.

    Attributes:
        name: a named scheme, or a label of your own; with `parts`, by default `custom`.
        position_ids: `name` and options of the position ids. By default those of the scheme; with
            `parts`, absolute ones.
        parts: a list; each part has `kind` (or `package.module:Class`, a kind of your own),
            `place`, `stacks`, `layers`, `share_layers` and the options of the kind. By default the
            parts of the scheme.
    """

    name: PlainName = DEFAULT_POSITION
    position_ids: dict[str, Any] = Field(default_factory=lambda: {"name": "absolute"})
    parts: list[dict[str, Any]] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _expand_scheme(cls, given: Any) -> Any:
        if isinstance(given, str):
            return expand_scheme(given)
        return lay_over_scheme(given) if isinstance(given, dict) else given

    @model_validator(mode="after")
    def _check(self) -> PositionConfig:
        scheme = self.scheme
        problems: dict[str, None] = {}
        for each in (Scheme(scheme.position_ids), *(Scheme(parts=(x,)) for x in scheme.parts)):
            try:
                check(each)
            except ShapeshiftError as error:
                problems[str(error)] = None
        if problems:
            raise ShapeshiftError("; ".join(problems))
        with without_numbers():  # costs nothing, and finds values that are out of range
            build_position_ids(scheme)
        check_label(self.name, scheme)
        return self

    @property
    def scheme(self) -> Scheme:
        """The scheme these settings describe."""
        position_ids = dict(self.position_ids)
        parts = []
        for given in self.parts:
            options = dict(given)
            own = {key: options.pop(key) for key in PART_FIELDS if key in options}
            if "kind" not in own:
                raise ShapeshiftError(
                    f"a part needs a kind ({', '.join(KINDS)}, or module:Class), got {given}"
                )
            parts.append(Part(**own, options=options))
        name = position_ids.pop("name", "absolute")
        return Scheme(PositionIds(name, position_ids), tuple(parts))


def check_label(label: str, scheme: Scheme) -> None:
    """Raise a `ShapeshiftError` if a label is the name of a scheme with other position ids, kinds,
    places or stacks, or of a kind or position ids that are not in the scheme: tables and figures
    would show one under the name of another."""

    def outline(scheme: Scheme) -> Any:
        parts = [(part.kind, part.at, part.stacks) for part in scheme.parts]
        return scheme.position_ids.name, parts

    if label in SCHEMES:
        fits = outline(scheme) == outline(SCHEMES[label])
    else:
        there = {part.kind for part in scheme.parts} or {"none"}
        fits = label not in {*KINDS, *POSITION_IDS} - there - {scheme.position_ids.name}
    if not fits:
        raise ShapeshiftError(
            f"named {label!r}, but it is {scheme}; give it another name, such as {label}-changed"
        )


PART_FIELDS = tuple(each.name for each in fields(Part) if each.name != "options")


def expand_scheme(name: str) -> dict[str, Any]:
    """Return the scheme `name` spelled out as a configuration."""
    if name not in SCHEMES:
        raise ShapeshiftError(no_scheme(name))
    return spelled_out(name, SCHEMES[name])


def spelled_out(name: str, scheme: Scheme) -> dict[str, Any]:
    """Return a scheme as a configuration, `name` its label."""
    parts = []
    for part in scheme.parts:
        given = {key: getattr(part, key) for key in PART_FIELDS if getattr(part, key) is not None}
        parts.append({**given, **part.options})
    ids = scheme.position_ids
    return {"name": name, "position_ids": {"name": ids.name, **ids.options}, "parts": parts}


def no_scheme(name: str) -> str:
    """Return what to say of a name that is no scheme's: how to have the kind, or which scheme is
    meant."""
    scheme = FOREIGN_POSITIONS.get(name.lower().replace("-", "_"))
    if scheme is not None:
        return f"unknown scheme {name!r}; did you mean {scheme!r}?"
    if name in KINDS or is_own(name) or name in kind_names():
        part = f"{{kind: {name}, place: {find_kind(name).build.places[0]}}}"
        return f"{name!r} is a kind, not a scheme; write position='{{name: mine, parts: [{part}]}}'"
    if name in POSITION_IDS:
        return f"{name!r} are position ids, not a scheme; set position.position_ids.name={name}"
    return f"unknown scheme {name!r}{nearest(name, SCHEMES)} (known: {', '.join(SCHEMES)})"


def lay_over_scheme(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a position as it is if it has a list of `parts`, and else the scheme of its name with
    the rest laid over it.

    Raises:
        ShapeshiftError: it has neither parts nor a scheme's name.
    """
    name = given.get("name", DEFAULT_POSITION)
    if isinstance(given.get("parts"), list):
        return {"name": "custom", **given}
    if not isinstance(name, str):
        return dict(given)
    if name not in SCHEMES and given.keys() - {"name"}:
        raise ShapeshiftError(f"{no_scheme(name)}, and no parts are given")
    scheme = expand_scheme(name)
    if isinstance(given.get("position_ids"), dict):
        given = {**given, "position_ids": {**scheme["position_ids"], **given["position_ids"]}}
    return {**scheme, **given}


def check_in_model(scheme: Scheme, model: ModelConfig) -> None:
    """Raise a `ShapeshiftError` if the scheme cannot be built in this model, or would never run."""
    with without_numbers():
        for name in ("encoder", "decoder"):
            place(scheme, Stack(name, model.dim, model.num_heads, 1))
