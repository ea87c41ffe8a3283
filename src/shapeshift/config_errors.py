"""Says what is wrong with a configuration, and what is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from shapeshift.errors import ShapeshiftError, closest, nearest
from shapeshift.foreign_names import FOREIGN_NAMES, NOT_HERE, RENAMED
from shapeshift.model.position_config import PART_FIELDS
from shapeshift.positions import KINDS, POSITION_IDS
from shapeshift.schema import expected, variants


def no_sections(document: Any, path: str | Path | None) -> ShapeshiftError:
    """Return the error for a document that is no mapping."""
    kind = type(document).__name__
    return ShapeshiftError(f"expected sections such as 'model:', got {kind}", path=path)


def messages(error: ValidationError, config: type[BaseModel]) -> Iterator[str]:
    """Yield a message for each setting that is wrong.

    Args:
        error: of the check.
        config: what was checked.
    """
    problems = error.errors(include_url=False)
    found = [
        (_locate(problem["loc"], config), problem)
        for problem in problems
        if problem["type"] != "too_short"  # pydantic does not count entries that are wrong
        or not any(_is_below(other["loc"], problem["loc"]) for other in problems)
    ]
    yield from _messages(found, config, 0)


def _messages(
    found: Sequence[tuple[_Place, Any]], config: type[BaseModel], depth: int
) -> Iterator[str]:
    """Yield messages for problems that lie in the same types of `depth` settings, each of which may
    hold values of several types."""
    groups: dict[str, list[tuple[_Place, Any]]] = {}
    for place, problem in found:
        where = place.choices[depth][0] if len(place.choices) > depth else place.where
        groups.setdefault(where, []).append((place, problem))
    for where, group in groups.items():
        if len(group[0][0].choices) <= depth:
            yield from (_message(place, problem, config) for place, problem in group)
            continue
        deepest = max(len(problem["loc"]) for _, problem in group)  # in the type that fits best
        types = [place.choices[depth] for place, problem in group if len(problem["loc"]) == deepest]
        if len(set(types)) == 1:
            best = [each for each in group if each[0].choices[depth] == types[0]]
            yield from _messages(best, config, depth + 1)
        else:
            wanted = " or ".join(dict.fromkeys(_expected(*each) for each in group))
            yield f"{where}: expected {wanted}, got {shown(group[0][1]['input'])}"


def _is_below(loc: tuple[int | str, ...], other: tuple[int | str, ...]) -> bool:
    return len(loc) > len(other) and loc[: len(other)] == other


def _message(place: _Place, problem: Any, config: type[BaseModel]) -> str:
    where, field = place.where, place.choice
    match problem["type"]:
        case "extra_forbidden":
            text = _unknown(place, config)
        case "value_error":  # without a place between sections, which the message names
            text = str(problem["ctx"]["error"])
        case "missing":
            text = "missing"
        case "union_tag_not_found" if field is not None:
            text = (
                f"`{field.discriminator}:` is missing, which says what it is"
                f" ({', '.join(variants(field))})"
            )
        case "union_tag_invalid" if field is not None:
            tag, known = str(problem["ctx"]["tag"]), variants(field)
            text = (
                f"unknown {field.discriminator} {shown(tag)}{nearest(tag, known)}"
                f" (known: {', '.join(known)})"
            )
        case _:
            text = f"expected {_expected(place, problem)}, got {shown(problem['input'])}"
    return f"{where}: {text}" if where else text


def _expected(place: _Place, problem: Any) -> str:
    if problem["type"] in ("list_type", "tuple_type") and place.lists_sections:
        return "a list of sections, each begun by '- '"
    return expected(problem)


def shown(value: Any) -> str:
    """Return a value as a message names it: not longer than a line."""
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def find_key(name: str, config: type[BaseModel], sections: tuple[str, ...] = ()) -> str | None:
    """Return the whole key of a setting that is called `name` here or in another toolkit.

    Args:
        name: such as `beam` or `learning_rate`.
        config: of all settings.
        sections: that are looked through first.
    """
    paths = key_paths(config)
    if name in FOREIGN_NAMES:
        return FOREIGN_NAMES[name]
    exact = [path for path in paths if path.rpartition(".")[2] == name]
    exact.sort(key=lambda path: not path.startswith(sections))
    return exact[0] if exact else None


def _unknown(place: _Place, config: type[BaseModel]) -> str:
    """Return what is wrong with a key that its section does not have."""
    where, name, choice = ".".join(place.keys), place.keys[-1], place.choice
    section = where.rpartition(".")[0]
    if choice is not None:
        others = [key for key, model in variants(choice).items() if name in model.model_fields]
        if others:
            return (
                f"goes with {choice.discriminator} {' or '.join(map(repr, others))} alone; choose"
                f" {section}.{choice.discriminator}={others[0]}, or take it out ({where}=null)"
            )
    if where in RENAMED:
        return f"unknown key; did you mean {RENAMED[where]!r}?"
    if name in NOT_HERE:
        return f"unknown key; {NOT_HERE[name]}"
    paths = [path for path in key_paths(config) if not f"{where}.".startswith(f"{path}.")]
    own = {path.rpartition(".")[2]: path for path in paths if path.rpartition(".")[0] == section}
    every = {path.rpartition(".")[2]: path for path in reversed(paths)}
    known = FOREIGN_NAMES.get(name)
    meant = (
        _close(name, own, 0.8)
        or (known if known in paths else None)
        or every.get(name)
        or _close(name, own, 0.6)
        or _close(name, every, 0.8)
    )
    if meant is None:
        return "unknown key" + (f" (known: {', '.join(own)})" if own else "")
    top = ", at the top level" * (section != "" and "." not in meant)
    return f"unknown key; did you mean {meant!r}{top}?"


def _close(name: str, known: dict[str, str], cutoff: float) -> str | None:
    match = closest(name, known, cutoff)
    return None if match is None else known[match]


class _Place(NamedTuple):
    """Where a setting stands.

    Attributes:
        where: for people, see `shown_place`.
        keys: the names among it, without those that a file gives, and items of lists.
        choice: what the last of them belongs to, if it is a choice among sections.
        choices: settings above it that may hold values of several types, each with the type that
            this problem is about.
        lists_sections: whether a list of sections may stand there.
    """

    where: str
    keys: tuple[str, ...]
    choice: FieldInfo | None
    choices: tuple[tuple[str, str], ...]
    lists_sections: bool


def shown_place(place: Iterable[int | str]) -> str:
    """Return a place in a file for people: `tables, entry 1, columns.BLEU`; entries are counted
    from 1."""
    text = join = ""
    for step in place:
        text += f", entry {step + 1}" if isinstance(step, int) else f"{join}{step}"
        join = ", " if isinstance(step, int) else "."
    return text


def _locate(loc: tuple[int | str, ...], config: type[BaseModel]) -> _Place:
    """Return the place that pydantic names, without the names that it adds for one type of several
    and for a section chosen."""
    place: list[int | str] = []
    keys: list[str] = []
    types: list[Any] = [config]
    choice: FieldInfo | None = None
    choices: list[tuple[str, str]] = []
    steps = iter(loc)
    for step in steps:
        if step == "[key]":  # of the name before it
            continue
        place.append(step)
        fields = [
            one.model_fields[step] for one in types if _is_section(one) and step in one.model_fields
        ]
        if isinstance(step, str) and (fields or not any(get_origin(x) is dict for x in types)):
            keys.append(step)
        if fields and (sections := variants(fields[0])):
            choice, name = fields[0], next(steps, None)
            types = [] if name is None else [sections[str(name)]]
            continue
        if isinstance(step, str):
            choice = None if fields else choice
        types = (
            _alternatives(fields[0].annotation)
            if fields
            else [each for one in types for each in _types_below(one, step)]
        )
        if len(types) > 1 and (name := next(steps, None)) is not None:
            choices.append((shown_place(place), str(name)))
    below = [each for one in types for each in _types_below(one, 0)]
    return _Place(
        shown_place(place), tuple(keys), choice, tuple(choices), any(map(_is_section, below))
    )


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _alternatives(annotation: Any) -> list[Any]:
    """Return the types that an annotation allows, besides None."""
    if get_origin(annotation) is Annotated:
        return _alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [each for one in get_args(annotation) for each in _alternatives(one)]
    return [] if annotation is type(None) else [annotation]


def _types_below(annotation: Any, step: int | str) -> list[Any]:
    """Return the types of an item of a list, or of a value of a mapping; none for other types."""
    arguments = get_args(annotation)
    match get_origin(annotation), step:
        case (mapping, str()) if mapping is dict:
            return _alternatives(arguments[1])
        case (sequence, int()) if sequence in (list, tuple) and Ellipsis not in arguments[:1]:
            several = sequence is tuple and Ellipsis not in arguments
            return _alternatives(arguments[min(step, len(arguments) - 1) if several else 0])
    return []


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that a field may hold, or the items of its list."""
    if _is_section(annotation):
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
