"""The base of every configuration model: strict, immutable, unknown keys refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo


def check_plain(name: str) -> str:
    """Return a name that may become a part of a file's; raise `ValueError` for any other."""
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
    out a value that an extended file gives. `true` and `false` are no numbers.
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
            if isinstance(given.get(name), bool | list | tuple):
                types = {*_types(field.annotation)}
                if types & {int, float} and bool not in types:
                    given[name] = _spelled_out(given[name])
        return given


def _types(annotation: Any) -> Iterator[Any]:
    """Yield a type, or the types that one of several, or of a list, consists of."""
    yield get_origin(annotation) or annotation
    for each in get_args(annotation):
        if not isinstance(each, FieldInfo):
            yield from _types(each)


def _spelled_out(value: Any) -> Any:
    """Return a value with words for truth values, which pydantic takes for 1 and 0."""
    if isinstance(value, list | tuple):
        return [_spelled_out(each) for each in value]
    return str(value).lower() if isinstance(value, bool) else value


def variants(field: FieldInfo) -> dict[str, type[BaseModel]]:
    """Return the sections that a field chooses among, by name; none if it is no such choice."""
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
    """Return a field that a section got after runs had been made with it. Its default value is not
    written: the hashes that name runs and prepared data stay what they were."""
    return Field(default, exclude_if=lambda value: value == default, **settings)
