"""The section of a configuration that says how the model knows positions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from typing import Any, get_args, get_type_hints

import torch
from pydantic import BaseModel, ConfigDict, ValidationError, create_model, model_validator
from pydantic import Field as PydanticField

from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.model.config import ModelConfig
from shapeshift.positions import (
    INDICES,
    KINDS,
    PRESETS,
    Graph,
    IndicesChoice,
    Part,
    Representation,
    Scheme,
    Stack,
    build_indices,
    check,
    place,
)
from shapeshift.positions.limits import check_numbers
from shapeshift.positions.registry import Entry
from shapeshift.schema import Strict


class PositionConfig(Strict):
    """How the model knows positions: a preset's name, or indices and parts spelled out.

    Attributes:
        name: what the scheme is called in tables.
        indices: `name` and options of the indices.
        parts: for each kind `kind`, `place`, `stacks`, `layers`, `share_layers` and the kind's own
            options.
    """

    name: str = "custom"
    indices: dict[str, Any] = PydanticField(default_factory=lambda: {"name": "absolute"})
    parts: list[dict[str, Any]] = PydanticField(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        try:
            return expand_preset(given)
        except ShapeshiftError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _check(self) -> PositionConfig:
        try:
            check(self.scheme)
            _check_types(INDICES[self.scheme.indices.name], self.scheme.indices.options)
            for part in self.scheme.parts:
                _check_types(KINDS[part.kind], part.options)
            with torch.device("meta"):  # costs nothing, and finds values that are out of range
                build_indices(self.scheme)
        except ShapeshiftError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def scheme(self) -> Scheme:
        """The scheme these settings describe."""
        indices = dict(self.indices)
        parts = []
        for given in self.parts:
            options = dict(given)
            own = {key: options.pop(key) for key in _PART_FIELDS if key in options}
            if "kind" not in own:
                raise ShapeshiftError(f"a part needs a kind ({', '.join(KINDS)}), got {given}")
            for key, value in own.items():
                _check_type(f"{key} of a part", value, _PART_FIELDS[key])
            parts.append(Part(**own, options=options))
        name = indices.pop("name", "absolute")
        _check_type("name of indices", name, str)
        return Scheme(IndicesChoice(name, indices), tuple(parts))


_PART_FIELDS = {
    "kind": str,
    "place": str | None,
    "stacks": str,
    "layers": int | None,
    "share_layers": bool | None,
}

DEFAULT_POSITION = "ape"


def expand_preset(name: str) -> dict[str, Any]:
    """Return the preset `name` spelled out as a configuration."""
    if name not in PRESETS:
        raise ShapeshiftError(
            f"unknown preset {name!r}{nearest(name, PRESETS)} (known: {', '.join(PRESETS)})"
        )
    scheme = PRESETS[name]
    parts = []
    for part in scheme.parts:
        fields = asdict(part)
        options = fields.pop("options")
        parts.append({key: fields[key] for key in fields if fields[key] is not None} | options)
    return {
        "name": name,
        "indices": {"name": scheme.indices.name, **scheme.indices.options},
        "parts": parts,
    }


def _check_type(what: str, value: Any, expected: Any) -> None:
    if type(value) not in (get_args(expected) or (expected,)):  # a bool is not an int here
        wanted = getattr(expected, "__name__", str(expected))
        raise ShapeshiftError(f"{what} must be of type {wanted}, got {value!r}")


@cache
def _options_model(entry: Entry[Any]) -> type[BaseModel]:
    hints = get_type_hints(entry.build.__init__)
    fields: dict[str, Any] = {
        name: (hints[name], ... if option.default is inspect.Parameter.empty else option.default)
        for name, option in entry.options().items()
    }
    model: type[BaseModel] = create_model(
        entry.build.__name__, __config__=ConfigDict(strict=True, extra="forbid"), **fields
    )
    return model


def _check_types(entry: Entry[Any], options: Mapping[str, Any]) -> None:
    try:
        _options_model(entry)(**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ShapeshiftError(
            f"{entry.build.__name__}.{where}: {first['msg']}, got {first['input']!r}"
        ) from error


def check_in_model(scheme: Scheme, model: ModelConfig) -> None:
    """Raise a `ShapeshiftError` if the scheme cannot be built in this model, or would never run."""
    with torch.device("meta"):
        indices = build_indices(scheme)
        for name in ("encoder", "decoder"):
            causal = name == "decoder"
            placed = place(scheme, Stack(name, model.dim, model.num_heads, 1, causal=causal))
            for position in (placed.embedding, *placed.self_attention, *placed.cross_attention):
                check_numbers(indices, position)
                _check_edges(position)


def _check_edges(position: Representation) -> None:
    for module in position.modules():
        if isinstance(module, Graph) and module.num_labels is not None:
            raise ShapeshiftError(
                f"kind 'graph' with num_labels={module.num_labels} takes its edges from Python, but"
                " the sentences of a run have none; leave num_labels out, which takes the sentence"
                " for the graph, or use kind 'shaw'"
            )
