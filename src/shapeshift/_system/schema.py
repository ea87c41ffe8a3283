"""The base of every configuration model: strict, immutable, unknown keys refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo


def check_plain(name: str) -> str:
    """Return a name that is safe as part of a file name; raise `ValueError` otherwise."""
    if not re.fullmatch(r"\w[\w.+=, -]{0,99}", name):
        raise ValueError(f"expected a name of letters, digits and . + = , - _, got {name[:100]!r}")
    return name


PlainName = Annotated[str, AfterValidator(check_plain)]
"""Text that may become a part of a file's name: it cannot name another folder."""


def expand_home(path: str | Path) -> Path:
    """Return a path with the home folder in place of `~`."""
    return Path(os.path.expanduser(path))


HomePath = Annotated[Path, AfterValidator(expand_home)]
"""A path in which `~` is the home folder."""


class Strict(BaseModel):
    """A configuration section: unknown keys are errors, and an instance cannot change after it was
    checked.

    A field may be a choice among sections, each with a name of its own in a common key, such as
    `name`. Where that key is missing, the default's name is meant if no other section has more of
    the keys that are given. `null` for a key that only other sections have is no value: it takes
    out a value that an extended file gives. `true` and `false` are no numbers, numbers are not true
    or false, and text is neither.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _choose_sections(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        given = dict(given)
        for name, field in cls.model_fields.items():
            if isinstance(given.get(name), dict) and (sections := variants(field)):
                given[name] = _choose(given[name], sections, field)
            types = {*_types(field.annotation)}
            if name in given and types & {bool, int, float}:
                given[name] = _unconverted(given[name], types)
        return given


def _types(annotation: Any) -> Iterator[Any]:
    """Yield a type, or the member types of a union or a list."""
    yield get_origin(annotation) or annotation
    for each in get_args(annotation):
        if not isinstance(each, FieldInfo):
            yield from _types(each)


class _Refused:
    """Wraps a value so that pydantic shows it and converts it to no type."""

    def __init__(self, value: Any):
        self._value = value

    def __repr__(self) -> str:
        return repr(self._value) if isinstance(self._value, str) else str(self._value).lower()


def _unconverted(value: Any, types: set[Any]) -> Any:
    """Return a value in which pydantic refuses what it would otherwise convert, such as 'yes' to
    True, '5' to 5 or True to 1."""
    if isinstance(value, list | tuple):
        return [_unconverted(each, types) for each in value]
    if isinstance(value, bool):
        fits = bool in types
    elif isinstance(value, int | float):
        fits = bool(types & {int, float})
    else:
        fits = not isinstance(value, str) or bool(types & {str, Literal})
    return value if fits else _Refused(value)


def variants(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the sections that a field can hold, by name; empty if the field is not such a
    choice."""
    if not isinstance(field.discriminator, str):
        return {}
    models = get_args(field.annotation)
    return {model.model_fields[field.discriminator].default: model for model in models}


def _choose(
    section: dict[str, Any], sections: dict[str, type[BaseModel]], field: FieldInfo
) -> dict[str, Any]:
    tag = str(field.discriminator)
    known = {name: section.keys() & model.model_fields for name, model in sections.items()}
    default = str(getattr(field.default, tag))
    if tag not in section and all(len(keys) <= len(known[default]) for keys in known.values()):
        section = {tag: default, **section}
    own = known.get(section[tag], ()) if isinstance(section.get(tag), str) else ()
    others = set().union(*known.values()).difference(own) if own else ()
    return {key: value for key, value in section.items() if value is not None or key not in others}


def added(default: Any, **settings: Any) -> Any:
    """Return a field that was added later. Its default is omitted from hashes, so that the names of
    old runs and prepared data stay valid."""
    return Field(default, exclude_if=lambda value: value == default, **settings)
