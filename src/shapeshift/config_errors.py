"""Says what is wrong with a configuration, and what is right."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from shapeshift.errors import ShapeshiftError, nearest


def no_sections(document: Any, path: str | Path | None) -> ShapeshiftError:
    """Return the error for a document that is no mapping."""
    found = type(document).__name__
    return ShapeshiftError(f"expected sections such as 'model:', got {found}", path=path)


def messages(error: ValidationError, config: type[BaseModel]) -> Iterator[str]:
    """Yield a message for each setting that is wrong.

    Args:
        error: of the check.
        config: what was checked.
    """
    for problem in error.errors(include_url=False):
        where = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            yield f"{where}: unknown key{_suggestion(where, config)}"
        elif problem["type"] == "value_error":
            # Nowhere: between sections, which the message names.
            yield (f"{where}: " if where else "") + str(problem["ctx"]["error"])
        elif problem["type"] == "missing":
            yield f"{where}: missing"
        else:
            yield f"{where}: {problem['msg']}, got {problem['input']!r}"


@cache
def _field_paths(config: type[BaseModel]) -> tuple[str, ...]:
    """Return all keys with their sections, such as `training.seed`."""
    schema = config.model_json_schema()
    found: dict[str, None] = {}
    level = [("", schema)]
    while level:
        below = []
        for where, section in level:
            for name, field in section.get("properties", {}).items():
                path = f"{where}.{name}" if where else name
                if path not in found:
                    found[path] = None
                    below += [(path, schema["$defs"][each]) for each in _references(field)]
        level = below
    return tuple(found)


def _suggestion(where: str, config: type[BaseModel]) -> str:
    """Return which key one that is unknown may be meant for: one of its own section, or else of
    another one, which is then named with it."""
    section, _, name = where.rpartition(".")
    own = [path for path in _field_paths(config) if path.rpartition(".")[0] == section]
    found = nearest(name, [path.rpartition(".")[2] for path in own])
    elsewhere = {path.rpartition(".")[2]: path for path in reversed(_field_paths(config))}
    close = difflib.get_close_matches(name, elsewhere, n=1, cutoff=0.6)
    return found or (f"; did you mean {elsewhere[close[0]]!r}?" if close else "")


def _references(field: Any) -> Iterator[str]:
    """Yield the names of the sections that a field may hold."""
    if isinstance(field, dict):
        for key, value in field.items():
            if key == "$ref":
                yield value.rpartition("/")[2]
            elif key != "discriminator":
                yield from _references(value)
    elif isinstance(field, list):
        for each in field:
            yield from _references(each)
