"""Error messages for configurations: what is wrong, and what is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from shapeshift._system.errors import closest, nearest
from shapeshift._system.schema import variants
from shapeshift.config.foreign_names import FOREIGN_NAMES, RENAMED, unit_note
from shapeshift.model.position_config import PART_FIELDS
from shapeshift.positions import KINDS, POSITION_IDS

Place = tuple[int | str, ...]


def messages(error: ValidationError, config: type[BaseModel], document: Any) -> Iterator[str]:
    """Yield a message for each setting that is wrong."""
    for _, text in faults(error, config, document):
        yield text


def faults(
    error: ValidationError, config: type[BaseModel], document: Any
) -> Iterator[tuple[Place, str]]:
    """Yield the place of each setting that is wrong, and a message that names it."""
    found: dict[Place, list[Any]] = {}
    for problem in error.errors(include_url=False):
        found.setdefault(_place(problem, document), []).append(problem)
    for place, problems in found.items():
        # Where something below is wrong, the value has a right type, and it is not said that it
        # lacks another one, or entries.
        if not any(other != place and other[: len(place)] == place for other in found):
            text = _text(place, problems, config)
            yield place, f"{dotted(place)}: {text}" if place else text


def dotted(place: Sequence[Any]) -> str:
    """Return a place in a document as a dotted key: `position.parts.0.kind`."""
    return ".".join(map(str, place))


def _place(problem: Any, document: Any) -> Place:
    """Return the place that pydantic names, without the names that it adds for one type of several
    and for a section chosen: those are not in the document."""
    place: list[int | str] = []
    for number, step in enumerate(problem["loc"], start=1):
        if isinstance(document, dict) and step in document:
            document = document[step]
            place.append(str(step))
        elif isinstance(document, list | tuple) and isinstance(step, int):
            document = document[step] if step < len(document) else None
            place.append(step)
        elif problem["type"] == "missing" and number == len(problem["loc"]):
            place.append(step)
    return tuple(place)


def _text(place: Place, problems: Sequence[Any], config: type[BaseModel]) -> str:
    """Return the message for a place whose value may have one of several types."""
    # Of a section that may also be text, what is wrong in it, not that it is no text.
    wrong = [each for each in problems if each["type"] == "value_error"]
    problem, field = (wrong or problems)[0], _keys(place, config)[1]
    match problem["type"]:
        case "extra_forbidden":
            return _unknown(place, config)
        case "value_error":
            return str(problem["ctx"]["error"])
        case "missing":
            return "missing"
        case "union_tag_not_found" if field is not None:
            return f"`{field.discriminator}:` is missing ({', '.join(variants(field))})"
        case "union_tag_invalid" if field is not None:
            known, tag = variants(field), str(problem["ctx"]["tag"])
            return f"expected {' or '.join(map(repr, known))}, got {tag!r}{nearest(tag, known)}"
    expected = " or ".join(dict.fromkeys(map(_expected, problems)))
    got = problem["input"]
    shown = str(got).lower() if isinstance(got, bool) else "null" if got is None else repr(got)
    return f"expected {expected}, got {shown if len(shown) <= 100 else f'{shown[:99]}…'}"


_WHOLE, _NUMBER, _LIST, _SECTION = "a whole number", "a number", "a list, as in [a, b]", "a section"
_EXPECTED = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "a finite number",
    "string_type": "text",
    "path_type": "a path",
    "list_type": _LIST,
    "tuple_type": _LIST,
    "dict_type": _SECTION,
    "model_type": _SECTION,
    "model_attributes_type": _SECTION,
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "less than {lt}",
    "less_than_equal": "{le} or less",
    "too_short": "{min_length} or more entries",
    "too_long": "{max_length} or fewer entries",
    "string_too_short": "text of {min_length} or more characters",
    "string_pattern_mismatch": "text of the form {pattern}",
}
"""Type of pydantic's error → what is expected; see https://docs.pydantic.dev/latest/errors."""


def _expected(problem: Any) -> str:
    """Return the values that a setting may have, in words of YAML; pydantic's own text for an
    unknown error."""
    template = _EXPECTED.get(problem["type"])
    if template is None:
        return str(problem["msg"]).removeprefix("Input should be ")
    limits = problem.get("ctx", {}).items()
    whole = {x: int(y) if isinstance(y, float) and y.is_integer() else y for x, y in limits}
    return template.format_map(whole)


def _keys(place: Place, config: type[BaseModel]) -> tuple[list[str], FieldInfo | None]:
    """Return the settings in a place, without the user's own names and indices, and the field of
    the last one."""
    sections: list[type[BaseModel]] = [config]
    keys: list[str] = []
    field: FieldInfo | None = None
    for step in map(str, place):
        fields = [x.model_fields[step] for x in sections if step in x.model_fields]
        if fields:
            field = fields[0]
            keys.append(step)
            sections = [section for each in fields for section in _models(each.annotation)]
    return keys, field


def _unknown(place: Place, config: type[BaseModel]) -> str:
    """Return the message for an unknown key."""
    sections, field = _keys(place[:-1], config)
    section, name = dotted(sections), str(place[-1])
    where = dotted([*sections, name])
    if field is not None and field.discriminator:
        others = [key for key, model in variants(field).items() if name in model.model_fields]
        if others:
            return (
                f"goes with {field.discriminator} {' or '.join(map(repr, others))} alone; choose"
                f" {section}.{field.discriminator}={others[0]}, or take it out ({where}=null)"
            )
    paths = [path for path in key_paths(config) if not f"{where}.".startswith(f"{path}.")]
    own = {key: path for path in paths for at, _, key in [path.rpartition(".")] if at == section}
    if (new := RENAMED.get(name)) in own:
        return f"{name} is now {new}"
    meant = own.get(closest(name, own, cutoff=0.85) or "")  # `claim` for `claims`
    if meant is None:
        meant = find_key(name, config, (f"{section}.",) if section else ())
    if meant not in paths:
        meant = own.get(closest(name, own) or "")
    if meant is None:
        return "unknown key" + (f" (known: {', '.join(own)})" if own else "")
    top = ", at the top level" * (section != "" and "." not in meant)
    return f"unknown key; did you mean {meant!r}{top}?{unit_note(name)}"


def find_key(name: str, config: type[BaseModel], sections: tuple[str, ...] = ()) -> str | None:
    """Return the full key of the setting that is called `name` here or in another toolkit, such as
    `beam` or `learning_rate`; `sections` are looked through first."""
    paths = key_paths(config)
    exact = [path for path in paths if path.rpartition(".")[2] == name]
    first = [path for path in exact if path.startswith(sections)]
    foreign = [path for path in (FOREIGN_NAMES.get(name),) if path in paths]
    return next(iter([*first, *foreign, *exact]), None)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models of the sections that a field, or the items of its list, may hold."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    else:
        for each in get_args(annotation):
            yield from _models(each)


@cache
def key_paths(config: type[BaseModel]) -> tuple[str, ...]:
    """Return all keys with their sections, such as `training.seed`, those of a position's kinds and
    position ids among them."""

    def below(section: type[BaseModel], prefix: str) -> Iterator[str]:
        for name, field in section.model_fields.items():
            yield prefix + name
            for each in _models(field.annotation):
                yield from below(each, f"{prefix}{name}.")

    paths = sorted(below(config, ""), key=lambda path: path.count("."))
    if "position" in config.model_fields:
        for where, registry in (("position_ids", POSITION_IDS), ("parts.0", KINDS)):
            options = [option for entry in registry.values() for option in entry.options()]
            paths += [f"position.{where}.{option}" for option in options]
        paths += [f"position.parts.0.{key}" for key in PART_FIELDS]
    return tuple(dict.fromkeys(paths))
