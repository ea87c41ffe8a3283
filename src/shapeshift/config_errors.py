"""Says what is wrong with a configuration, and what is right."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.foreign_names import FOREIGN_NAMES, NOT_HERE, RENAMED
from shapeshift.model.position_config import PART_FIELDS
from shapeshift.positions import KINDS, POSITION_IDS
from shapeshift.schema import variants


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
    for problem in error.errors(include_url=False):
        keys, field = _locate(problem["loc"], config)
        where = ".".join(keys)
        match problem["type"]:
            case "extra_forbidden":
                yield f"{where}: {_unknown(keys, field, config)}"
            case "value_error":  # nowhere: between sections, which the message names
                yield (f"{where}: " if where else "") + str(problem["ctx"]["error"])
            case "missing":
                yield f"{where}: missing"
            case "union_tag_not_found" if field is not None:
                yield (
                    f"{where}: `{field.discriminator}:` is missing, which says what it is"
                    f" ({', '.join(variants(field))})"
                )
            case "union_tag_invalid" if field is not None:
                tag, known = str(problem["ctx"]["tag"]), variants(field)
                yield (
                    f"{where}: unknown {field.discriminator} {shown(tag)}{nearest(tag, known)}"
                    f" (known: {', '.join(known)})"
                )
            case "model_type" | "dict_type":
                yield f"{where}: expected a section of settings, got {shown(problem['input'])}"
            case _:
                yield f"{where}: {expected(problem['msg'])}, got {shown(problem['input'])}"


_IN_PLAIN_WORDS = {
    "Input should be a valid integer": "expected a whole number",
    "Input should be greater than or equal to": "expected at least",
    "Input should be less than or equal to": "expected at most",
    "Input should be greater than": "expected more than",
    "Input should be less than": "expected less than",
    "Input should be ": "expected ",
    "List should have ": "expected ",
    "Tuple should have ": "expected ",
    "Dictionary should have ": "expected ",
}


def expected(message: str) -> str:
    """Return what was expected, from a message of pydantic's."""
    message = message.partition(", unable")[0].partition(" after validation")[0]
    for start, words in _IN_PLAIN_WORDS.items():
        if message.startswith(start):
            return words + message.removeprefix(start)
    return message


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


def _unknown(keys: tuple[str, ...], choice: FieldInfo | None, config: type[BaseModel]) -> str:
    """Return what is wrong with a key that its section does not have."""
    where, name = ".".join(keys), keys[-1]
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
        or (known if known != where else None)
        or every.get(name)
        or _close(name, own, 0.6)
        or _close(name, every, 0.8)
    )
    return "unknown key" + (f"; did you mean {meant!r}?" if meant else "")


def _close(name: str, known: dict[str, str], cutoff: float) -> str | None:
    close = difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return known[close[0]] if close else None


def _locate(
    place: tuple[int | str, ...], config: type[BaseModel]
) -> tuple[tuple[str, ...], FieldInfo | None]:
    """Return the keys of a setting without the names that pydantic adds for a section chosen, and
    the choice that the last of them belongs to, if it does."""
    keys: list[str] = []
    model: type[BaseModel] | None = config
    choice: FieldInfo | None = None
    steps = iter(place)
    for step in steps:
        keys.append(str(step))
        field = None if model is None else model.model_fields.get(str(step))
        if field is not None:
            sections = variants(field)
            choice, model = field if sections else None, next(_models(field.annotation), None)
            if sections and (name := next(steps, None)) is not None:
                model = sections[str(name)]
    return tuple(keys), choice


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the sections that a field may hold, or the items of its list."""
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
