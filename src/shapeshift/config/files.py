"""Configuration files, those that they extend, and what is laid over them.

Files and overrides follow one rule: what is laid over a configuration replaces values and lists and
leaves all else as it is. The name of a scheme (`position`, `data.corpus`) replaces the whole
section by that scheme. Nothing that was given is ever dropped: a value that the section does not
take in the end, since another schedule was chosen, say, is an error when the configuration is
checked. What a scheme has filled in for its position ids goes with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from shapeshift._system.errors import ShapeshiftError, nearest
from shapeshift.config.errors import dotted
from shapeshift.config.yaml_file import parse_yaml, read_yaml
from shapeshift.data.config import CORPORA
from shapeshift.model.config import SIZES
from shapeshift.model.position_config import expand_scheme, lay_over_scheme
from shapeshift.positions import SCHEMES

_Keys = tuple[Any, ...]

_CHOICES: dict[_Keys, str] = {
    ("position",): "name",
    ("data", "corpus"): "corpus",
    ("data", "recipe"): "name",
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
    shipped = {
        each.stem: each for each in Path(str(files("shapeshift"))).glob("config/shipped/*.yaml")
    }
    if str(name) not in shipped:
        own = Path(f"{path}.yaml")
        meant = f"; did you mean '{own}'?" if own.is_file() else nearest(str(name), shipped)
        raise ShapeshiftError(
            f"no configuration {str(name)!r}{meant} (give the path of a YAML"
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
        found = (
            "nothing" if document is None else "a list" if isinstance(document, list) else "text"
        )
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
    whatever order they are given. `position=rope position.name=mine` is a scheme under another
    name.

    Raises:
        ShapeshiftError: once for all settings that are not of this form, that contradict each
            other, or that name an item of a list which is not there.
    """
    changed, errors = try_to_lay_over(document, settings)
    if errors:
        raise ShapeshiftError("; ".join(errors))
    return changed


def try_to_lay_over(
    document: Mapping[str, Any], settings: Iterable[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return what `lay_over` does without the settings that are wrong, and what is wrong."""
    scheme: dict[str, Any] = {}
    given: dict[str, Any] = {}
    errors: list[str] = []
    for setting in settings:
        try:
            each = _parse(setting)
            if isinstance(each.get("position"), str):
                scheme = _unite(scheme, each, ())
            else:
                given = _unite(given, each, ())
        except ShapeshiftError as error:
            errors.append(str(error))
    if scheme and isinstance(own := given.get("position"), dict):
        named = scheme["position"]
        if own.get("name", named) != named and str(own["name"]) in SCHEMES:
            errors.append(f"position is given twice, {named!r} and {own['name']!r}; give one")
        if isinstance(own.get("parts"), list):
            errors.append(f"position.parts and the scheme {named!r} are both given; give one")
    changed = dict(document)
    for layer in (scheme, *({key: value} for key, value in given.items())):
        try:
            changed = merge(changed, layer)
        except ShapeshiftError as error:
            errors.append(str(error))
    return changed, errors


def _parse(setting: str) -> dict[str, Any]:
    name, equals, text = setting.partition("=")
    keys = name.split(".")
    if not equals or not all(keys):
        raise ShapeshiftError(f"an override looks like training.max_updates=500, got {setting!r}")
    try:
        value = parse_yaml(text)
    except ShapeshiftError as error:
        raise ShapeshiftError(f"the value of {setting[:200]!r} is {error}") from error
    *above, last = keys
    given = {last: value}
    for key in reversed(above):
        given = {key: given}
    return given


def _unite(one: Any, other: Any, keys: _Keys) -> Any:
    """Return what two overrides set together, which is the same in either order."""
    if keys != ("position",):
        one, other = _section(one, keys), _section(other, keys)
    if isinstance(one, dict) and isinstance(other, dict):
        both = {x: _unite(one[x], other[x], (*keys, x)) for x in one.keys() & other.keys()}
        return {**one, **other, **both}
    if one != other:
        raise ShapeshiftError(f"{dotted(keys)} is given twice, {one!r} and {other!r}; give one")
    return one


def _section(value: Any, keys: _Keys) -> Any:
    """Return a section, spelled out if a name stands for it."""
    return {_CHOICES[keys]: value} if keys in _CHOICES and isinstance(value, str) else value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with another one laid over it; see the module."""
    merged: dict[str, Any] = _merge(base, over, ())
    return merged


def _merge(base: Any, over: Any, keys: _Keys) -> Any:
    base, over = _section(base, keys), _section(over, keys)
    if not isinstance(over, dict):
        return over
    if keys == ("position",):
        base = _spell_out_position(base, over)
    elif keys == ("data", "corpus") and str(over.get("corpus")) in CORPORA:
        base = {}  # a scheme replaces the whole section
    elif keys == ("model",) and isinstance(base, dict):
        _check_size(base, over)
    if isinstance(base, list):
        items = {str(number): item for number, item in enumerate(base)}
        if missing := [key for key in over if str(key) not in items]:
            problem = f"{missing[0]!r} is not one of the {len(items)} items, from 0"
            raise ShapeshiftError(f"{dotted((*keys, missing[0]))!r}: {problem}")
        return [*_merge(items, {str(key): value for key, value in over.items()}, keys).values()]
    if not isinstance(base, dict | None):
        place = dotted((*keys, *list(over)[:1]))
        raise ShapeshiftError(f"{place!r} goes through a plain value, which has no keys")
    base = base or {}
    return {**base, **{key: _merge(base.get(key), over[key], (*keys, key)) for key in over}}


def _check_size(base: Mapping[str, Any], over: Mapping[str, Any]) -> None:
    """Refuse another size of a model that gives all that a size stands for itself."""
    size, own = over.get("size"), SIZES["base"].keys() - over.keys()
    if "size" in over and size != base.get("size") and own and own <= base.keys():
        fields = ", ".join(f"model.{key}" for key in SIZES["base"] if key in own)
        raise ShapeshiftError(
            f"model.size={size} has no effect: {fields} are given as well; change those instead"
        )


def _spell_out_position(base: Any, over: Mapping[str, Any]) -> Any:
    """Return the scheme that `over` names or, spelled out, the position that it is laid over."""
    whole = isinstance(over.get("parts"), list)
    if not whole and str(over.get("name")) in SCHEMES:
        return expand_scheme(over["name"])
    if over.keys() == {"name"} and not (isinstance(base, dict) and "parts" in base):
        return {}  # neither a scheme nor a label of parts: an error when it is checked
    if not isinstance(base, dict | None):
        return base
    base = lay_over_scheme(base or {})
    if str(base.get("name")) in SCHEMES:
        options, chosen = base.get("position_ids"), over.get("position_ids")
        if isinstance(options, dict) and isinstance(chosen, dict):
            name = options.get("name")
            if chosen.get("name", name) != name:
                filled_in = expand_scheme(base["name"])["position_ids"].items()
                options = {x: y for x, y in options.items() if (x, y) not in filled_in}
                base["position_ids"] = options
        if whole and "name" not in over:
            del base["name"]  # which is not that of other parts
    return base
