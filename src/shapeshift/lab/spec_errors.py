"""Says what is wrong in the file of a grid or of a study, and what is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from shapeshift.config_errors import shown
from shapeshift.errors import nearest
from shapeshift.schema import expected

Place = Sequence[str | int]

_SECTIONS = "a list of sections, each begun by '- '"

_KINDS: dict[Any, str] = {
    str: "text",
    int: "a number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}


def spec_messages(
    error: ValidationError, root: type[BaseModel], sections: Mapping[str, type[BaseModel]]
) -> list[str]:
    """Return a message for each place that is wrong, each once.

    Args:
        error: of the check.
        root: what was checked.
        sections: place in the whole file → what is there, for saying where a key belongs. The one
            that is `root` tells where the file has what was checked.
    """
    start = next((place for place, model in sections.items() if model is root), "")
    lines: dict[str, str] = {}
    problems = error.errors(include_url=False)
    for problem in problems:
        loc = problem["loc"]
        if problem["type"] == "too_short" and any(
            len(each["loc"]) > len(loc) and each["loc"][: len(loc)] == loc for each in problems
        ):
            continue  # pydantic does not count entries that are wrong
        place, kind, section = _walk(root, loc)
        where = shown_place([*filter(None, [start]), *place])
        match problem["type"]:
            case "extra_forbidden":
                inside = [*filter(None, [start]), *place[:-1]]
                text = _unknown(str(place[-1]), inside, section, sections)
            case "missing":
                text = "missing"
            case "value_error":
                text = str(problem["ctx"]["error"])
            case "model_type" if isinstance(place[-1], int):  # or no list at all: one entry is one
                where = shown_place([*filter(None, [start]), *place[:-1]])
                text = f"expected {_SECTIONS}, got {shown(problem['input'])}"
            case _ if _is_simple(kind) and problem["type"] not in _WRONG_KIND:
                text = f"expected {expected(problem)}, got {shown(problem['input'])}"
            case _:
                text = f"expected {_words(kind)}, got {shown(problem['input'])}"
        lines.setdefault(where, text)  # a choice has a problem for each of what it could be
    return [": ".join(filter(None, line)) for line in lines.items()]


_WRONG_KIND = ("tuple_type", "list_type", "dict_type", "model_type", "string_type")


def shown_place(place: Place) -> str:
    """Return a place in the file for people: `tables, entry 1, columns.BLEU`; entries are counted
    from 1."""
    text = ""
    join = ""
    for key in place:
        is_entry = isinstance(key, int)
        text += f", entry {int(key) + 1}" if is_entry else f"{join}{key}"
        join = ", " if is_entry else "."
    return text


def _walk(root: Any, loc: Sequence[int | str]) -> tuple[list[str | int], Any, Any]:
    """Return a place without the names that pydantic adds, what is expected there, and the section
    that the last key is in."""
    place: list[str | int] = []
    kind, section = root, None
    for step in loc:
        options = _options(kind)
        if len(options) > 1:  # the step names one of them
            continue
        only = options[0] if options else None
        if step == "[key]":
            break
        place.append(step)
        section = only
        if isinstance(only, type) and issubclass(only, BaseModel):
            field = only.model_fields.get(str(step))
            kind = None if field is None else field.annotation
        elif get_origin(only) in (tuple, list):
            kind = get_args(only)[0]
        elif get_origin(only) is dict:
            kind = get_args(only)[1]
        else:
            kind = None
    return place, kind, section


def _options(kind: Any) -> list[Any]:
    """Return what a field may be, but for `null`."""
    if get_origin(kind) is Annotated:
        return _options(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [each for option in get_args(kind) for each in _options(option)]
    return [] if kind in (NoneType, None) else [kind]


def _is_simple(kind: Any) -> bool:
    return len(_options(kind)) == 1 and get_origin(_options(kind)[0]) is not Literal


def _words(kind: Any) -> str:
    """Return what is expected, for people."""
    options = _options(kind)
    values = [value for each in options if get_origin(each) is Literal for value in get_args(each)]
    words = list(map(repr, values))
    for each in options:
        if get_origin(each) is Literal:
            continue
        if get_origin(each) in (tuple, list):
            inner = _options(get_args(each)[0])
            sections = any(isinstance(one, type) and issubclass(one, BaseModel) for one in inner)
            words.append(_SECTIONS if sections else "a list")
        else:
            words.append(_KINDS.get(each, "a section"))
    words = list(dict.fromkeys(words))
    return " or ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _unknown(
    name: str, inside: Place, section: Any, sections: Mapping[str, type[BaseModel]]
) -> str:
    """Return what is wrong with a key that its section does not have."""
    elsewhere = [
        f"in {place}" if place else "at the top level"
        for place, model in sections.items()
        if name in model.model_fields and model is not section
    ]
    if elsewhere:
        here = f"in {shown_place(inside)}" if inside else "at the top level"
        return f"unknown key; it belongs {' or '.join(elsewhere)}, not {here}"
    own = [*section.model_fields]
    return "unknown key" + (nearest(name, own) or f" (known: {', '.join(own)})")


def sections_of(model: type[BaseModel], place: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the place of each section below a model, itself first, and what is there."""
    yield place, model
    for name, field in model.model_fields.items():
        for below in _models(field.annotation):
            yield from sections_of(below, f"{place}.{name}".lstrip("."))


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    for each in _options(kind):
        if isinstance(each, type) and issubclass(each, BaseModel):
            yield each
        else:
            for inner in get_args(each):
                yield from _models(inner)
