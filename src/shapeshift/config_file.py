"""Configuration files, those that they extend, and what is laid over them.

Files and overrides follow one rule: what is laid over a configuration replaces values and lists and
leaves all else as it is. The name of a preset (`position`, `data.corpus`) replaces the whole
section by that preset. Nothing that was given is ever dropped: a value that the section does not
take in the end, since another schedule was chosen, say, is an error when the configuration is
checked. What a model's size, or a preset for its position ids, has filled in goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from shapeshift.config_errors import dotted
from shapeshift.data.sources.presets import CORPORA
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.model.config import SIZES
from shapeshift.model.position_config import expand_preset, lay_over_preset
from shapeshift.positions import PRESETS
from shapeshift.yaml_file import parse_yaml, read_yaml

_Keys = tuple[Any, ...]

_CHOICES: dict[_Keys, str] = {
    ("position",): "name",
    ("data", "corpus"): "corpus",
    ("data", "dataset"): "name",
    ("training", "schedule"): "name",
    ("decoding", "length_penalty"): "name",
}
"""Sections that a plain name may stand for, and the key of that name in the section."""


def find_config(name: str | Path, folder: Path | None = None) -> Path:
    """Return the path of a configuration: `name` itself, or a file that comes with the package.

    Args:
        name: a path, or, without folder and suffix, the name of a shipped one such as `multi30k`.
        folder: where a path that is relative starts, if not in the current folder.
    """
    path = Path(name) if folder is None else folder / name
    if Path(name).name != str(name) or path.suffix or (path.exists() and not path.is_dir()):
        return path
    shipped = {each.stem: each for each in Path(str(files("shapeshift"))).glob("configs/*.yaml")}
    if str(name) not in shipped:
        raise ShapeshiftError(
            f"no configuration {str(name)!r}{nearest(str(name), shipped)} (give the path of a YAML"
            f" file, or the name of a shipped one: {', '.join(sorted(shipped))})"
        )
    return shipped[str(name)]


def read_document(path: str | Path, extending: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Read a YAML file, and those it extends, without checking what they say.

    With `extends: other.yaml`, a path relative to its own folder, or `extends: multi30k`, a shipped
    configuration, a file is laid over another one; `extends` itself is gone from the result.

    Args:
        path: the file.
        extending: the files through which it was reached.

    Raises:
        ShapeshiftError: for a file that cannot be read or has no sections, or files that extend
            each other in a circle.
    """
    path = Path(path)
    if path.resolve() in extending:
        raise ShapeshiftError("extends itself, by way of other files", path=path)
    document = read_yaml(path)
    if not isinstance(document, dict):
        found = "nothing" if document is None else type(document).__name__
        raise ShapeshiftError(
            f"expected sections such as 'model:', got {found} ({{}} stands for all defaults)",
            path=path,
        )
    if "extends" not in document:
        return document
    other = document.pop("extends")
    if not isinstance(other, str) or not other:
        raise ShapeshiftError(f"extends: expected the path of one file, got {other!r}", path=path)
    try:
        below = find_config(other, path.parent)
    except ShapeshiftError as error:
        raise ShapeshiftError(f"extends: {error}", path=path) from error
    base = read_document(below, (*extending, path.resolve()))
    try:
        return merge(base, document)
    except ShapeshiftError as error:
        raise ShapeshiftError(str(error), path=path) from error


def lay_over(document: Mapping[str, Any], settings: Iterable[str]) -> dict[str, Any]:
    """Return a configuration with settings such as `training.max_updates=500` laid over it, in
    whatever order they are given. `position=rope position.name=mine` is a preset under another
    name.

    Raises:
        ShapeshiftError: once for all settings that are not of this form, that contradict each
            other, or that name an item of a list which is not there.
    """
    values: dict[_Keys, Any] = {}
    errors: list[str] = []
    for setting in settings:
        try:
            for keys, value in _leaves(*_parse(setting)):
                before = values.setdefault(keys, value)
                if before != value:
                    both = f"{before!r} and {value!r}"
                    raise ShapeshiftError(f"{dotted(keys)} is given twice, {both}; give one")
        except ShapeshiftError as error:
            errors.append(str(error))
    if isinstance(preset := values.get(("position",)), str):
        del values["position",]
        name = values.get(("position", "name"), preset)
        if name != preset and str(name) in PRESETS:
            errors.append(f"position.name is given twice, {preset!r} and {name!r}; give one")
        if ("position", "parts") in values:
            errors.append(f"position.parts and the preset {preset!r} are both given; give one")
    given: dict[str, Any] = {}
    for keys in sorted(values, key=len):
        node: Any = given
        for depth, key in enumerate(keys[:-1], start=1):
            node = node.setdefault(key, {})
            if not isinstance(node, dict):
                errors.append(_goes_through_value(keys[: depth + 1]))
                break
        else:
            node[keys[-1]] = values[keys]
    if errors:
        raise ShapeshiftError("; ".join(errors))
    if isinstance(preset, str):
        document = merge(document, {"position": preset})
    return merge(document, given)


def _parse(setting: str) -> tuple[_Keys, Any]:
    name, equals, text = setting.partition("=")
    keys = tuple(name.split("."))
    if not equals or not all(keys):
        raise ShapeshiftError(f"an override looks like training.max_updates=500, got {setting!r}")
    try:
        return keys, parse_yaml(text)
    except ShapeshiftError as error:
        raise ShapeshiftError(f"the value of {setting[:200]!r} is {error}") from error


def _leaves(keys: _Keys, value: Any) -> Iterable[tuple[_Keys, Any]]:
    """Return what a value gives to each key below."""
    if keys in _CHOICES and keys != ("position",) and isinstance(value, str):
        value = {_CHOICES[keys]: value}
    if not isinstance(value, dict):
        return [(keys, value)]
    return [leaf for key, below in value.items() for leaf in _leaves((*keys, key), below)]


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with another one laid over it; see the module."""
    merged: dict[str, Any] = _merge(base, over, ())
    return merged


def _merge(base: Any, over: Any, keys: _Keys) -> Any:
    if keys in _CHOICES:
        base, over = (
            {_CHOICES[keys]: each} if isinstance(each, str) else each for each in (base, over)
        )
    if not isinstance(over, dict):
        return over
    if keys == ("position",):
        base = _spell_out_position(base, over)
    elif keys == ("data", "corpus") and str(over.get("corpus")) in CORPORA:
        base = {}  # a preset replaces the whole section
    elif keys == ("model",) and "size" in over and isinstance(base, dict):
        filled_in = SIZES.get(str(base.get("size", "base")), {})
        base = {key: value for key, value in base.items() if filled_in.get(key) != value}
    if isinstance(base, list):
        items = list(base)
        for key, value in over.items():
            name = (*keys, key)
            if not str(key).isdecimal() or int(key) >= len(items):
                problem = f"{key!r} is not one of the {len(items)} items, from 0"
                raise ShapeshiftError(f"{dotted(name)!r}: {problem}")
            items[int(key)] = _merge(items[int(key)], value, name)
        return items
    if not isinstance(base, dict | None):
        raise ShapeshiftError(_goes_through_value((*keys, *list(over)[:1])))
    base = base or {}
    return {**base, **{key: _merge(base.get(key), over[key], (*keys, key)) for key in over}}


def _spell_out_position(base: Any, over: Mapping[str, Any]) -> Any:
    """Return the preset that `over` names or, spelled out, the position that it is laid over."""
    whole = isinstance(over.get("parts"), list)
    if not whole and str(over.get("name")) in PRESETS:
        return expand_preset(over["name"])
    if over.keys() == {"name"} and not (isinstance(base, dict) and "parts" in base):
        return {}  # neither a preset nor a label of parts: an error when it is checked
    if not isinstance(base, dict | None):
        return base
    try:
        base = lay_over_preset(base or {})
    except ShapeshiftError as error:
        raise ShapeshiftError(f"position: {error}") from error
    if str(base.get("name")) in PRESETS:
        options, chosen = base.get("position_ids"), over.get("position_ids")
        if isinstance(options, dict) and isinstance(chosen, dict):
            name = options.get("name")
            if chosen.get("name", name) != name:
                filled_in = expand_preset(base["name"])["position_ids"].items()
                options = {x: y for x, y in options.items() if (x, y) not in filled_in}
                base["position_ids"] = options
        if whole and "name" not in over:
            del base["name"]  # which is not that of other parts
    return base


def _goes_through_value(keys: _Keys) -> str:
    return f"{dotted(keys)!r} goes through a plain value, which has no keys"
