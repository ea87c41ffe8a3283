"""The section of a configuration that sets the positions of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import Field, model_validator

from shapeshift._system.errors import ShapeshiftError
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
from shapeshift.positions.scheme import find_scheme, is_scheme, no_scheme

DEFAULT_POSITION = "ape"


class PositionConfig(Strict):
    """How the model uses positions: the name of a scheme or a kind, or position ids and parts.

    Without `parts`, `name` is a scheme (by default `ape`) or a kind, which stands for itself at its
    default place; the other keys override it. With
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
    def _expand(cls, given: Any) -> Any:
        return expand_position(given) if isinstance(given, str | dict) else given

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


def spelled_out(name: str, scheme: Scheme) -> dict[str, Any]:
    """Return a scheme as a configuration, `name` its label."""
    parts = []
    for part in scheme.parts:
        given = {key: getattr(part, key) for key in PART_FIELDS if getattr(part, key) is not None}
        parts.append({**given, **part.options})
    ids = scheme.position_ids
    return {"name": name, "position_ids": {"name": ids.name, **ids.options}, "parts": parts}


def expand_position(given: str | Mapping[str, Any]) -> dict[str, Any]:
    """Return a position spelled out: the scheme of a name, or of the name in a mapping without a
    list of `parts`, and the rest of the mapping laid over it.

    Raises:
        ShapeshiftError: it has neither parts nor a scheme's name.
    """
    given = {"name": given} if isinstance(given, str) else given
    name = given.get("name", DEFAULT_POSITION)
    if isinstance(given.get("parts"), list):
        return {"name": "custom", **given}
    if not isinstance(name, str):
        return dict(given)
    if given.keys() - {"name"} and not is_scheme(name):
        raise ShapeshiftError(f"{no_scheme(name)}, and no parts are given")
    scheme = spelled_out(name.rpartition(":")[2], find_scheme(name))
    rest = {key: value for key, value in given.items() if key != "name"}
    if isinstance(rest.get("position_ids"), dict):
        rest["position_ids"] = {**scheme["position_ids"], **rest["position_ids"]}
    return {**scheme, **rest}


def check_in_model(scheme: Scheme, model: ModelConfig) -> None:
    """Raise a `ShapeshiftError` if the scheme cannot be built in this model, or would never run."""
    with without_numbers():
        for name, num_layers in model.depths.items():
            place(scheme, Stack(name, model.dim, model.num_heads, num_layers))
