"""Configuration files, those that they extend, and what is laid over them.

A *layer* holds settings that are given together: those of one file, of one list of overrides in a
study, or of the command line. Layers are laid over each other in order; a later one replaces what
earlier ones gave. Within a layer, nothing may undo anything else; see `lay_over`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from shapeshift._system.errors import ShapeshiftError, nearest
from shapeshift.config.errors import dotted
from shapeshift.config.yaml_file import line_of, parse_yaml, read_yaml
from shapeshift.data.config import CORPORA
from shapeshift.model.config import SIZES
from shapeshift.model.position_config import DEFAULT_POSITION, expand_position
from shapeshift.positions.scheme import is_scheme, no_scheme

Keys = tuple[Any, ...]

_CHOICES: dict[Keys, str] = {
    ("model",): "size",
    ("position",): "name",
    ("position", "position_ids"): "name",
    ("data", "corpus"): "corpus",
    ("data", "recipe"): "name",
    ("training", "optimizer"): "name",
    ("training", "schedule"): "name",
    ("decoding", "length_penalty"): "name",
}
"""Sections that a plain name may stand for, and the key of that name in the section."""

PATHS = (("data", "corpus", "root"), ("data", "subwords", "models"), ("training", "init_from"))
"""Settings that are paths."""

_NAMES_OR_PATHS = (("data", "corpus", "repo"), ("evaluation", "comet_model"))
"""Settings that are a path if there is such a file or folder, and else a name on a hub."""

_PACKAGE = Path(str(files("shapeshift")))


@dataclass(frozen=True)
class Layer:
    """Settings that are given together.

    Attributes:
        given: sections, or overrides such as `training.seed=5`.
        path: the file that they stand in; None for the command line.
    """

    given: Mapping[str, Any] | Sequence[str]
    path: Path | None = None

    @property
    def folder(self) -> Path | None:
        """The folder that paths are relative to; None is the working directory, also for shipped
        files."""
        if self.path is None or self.path.resolve().is_relative_to(_PACKAGE.resolve()):
            return None
        return self.path.parent


class Setting(NamedTuple):
    """One value that a layer gives, and the text that gives it."""

    keys: Keys
    value: Any
    text: str
    layer: Layer

    def __str__(self) -> str:
        place = self.place()
        return f"{self.text} ({place})" if place else self.text

    def located(self, problem: str, keys: Keys = ()) -> str:
        """Return a message preceded by the file and line of this setting or an item in it;
        overrides have none."""
        place = self.place(keys)
        return f"{place}: {problem}" if place else problem

    def place(self, keys: Keys = ()) -> str:
        """Return `FILE:LINE` of this setting, or of an item in it; empty for an override."""
        path = self.layer.path
        if path is None or not isinstance(self.layer.given, Mapping):
            return ""
        line = line_of(path, keys or self.keys) or line_of(path, self.keys)
        return str(path) if line is None else f"{path}:{line}"


@dataclass
class Resolved:
    """Layers laid over each other.

    Attributes:
        document: the result.
        given: key → the setting that gave its value; not what a scheme or a corpus filled in.
        problems: what is wrong with the settings; those are left out.
    """

    document: dict[str, Any] = field(default_factory=dict)
    given: dict[Keys, Setting] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def located(self, problem: str, keys: Keys) -> str:
        """Return a message about a value, preceded by the file and line that gave it."""
        for length in range(len(keys), 0, -1):
            if found := [x for key, x in self.given.items() if key[:length] == keys[:length]]:
                return found[-1].located(problem, keys)
        return problem


def find_config(name: str | Path, folder: Path | None = None) -> Path:
    """Return the path of a configuration: `name` as a path, which may start in a folder, or, where
    it has neither folder nor suffix, a file that comes with the package, such as `multi30k`."""
    path = Path(name) if folder is None else folder / name
    if Path(name).name != str(name) or path.suffix or (path.exists() and not path.is_dir()):
        return path
    shipped = {each.stem: each for each in _PACKAGE.glob("config/shipped/*.yaml")}
    if str(name) not in shipped:
        own = Path(f"{path}.yaml")
        meant = f"; did you mean '{own}'?" if own.is_file() else nearest(str(name), shipped)
        raise ShapeshiftError(
            f"no configuration {str(name)!r}{meant} (give the path of a YAML"
            f" file, or the name of a shipped one: {', '.join(sorted(shipped))})"
        )
    return shipped[str(name)]


def read_layers(path: str | Path, extending: tuple[Path, ...] = ()) -> list[Layer]:
    """Read a YAML file and those it extends, the lowest first, without checking what they say.

    With `extends: other.yaml`, a path relative to its own folder, or `extends: multi30k`, a shipped
    configuration, a file is laid over another one. `extending` are the files that led to this one.

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
        return [Layer(document, path)]
    other, line = document.pop("extends"), line_of(path, ["extends"])
    if not isinstance(other, str) or not other:
        problem = f"extends: expected the path of one file, got {other!r}"
        raise ShapeshiftError(problem, path=path, line=line)
    try:
        below = find_config(other, path.parent)
        if not below.exists():
            near = nearest(below.name, [each.name for each in below.parent.glob("*.y*ml")])
            raise ShapeshiftError(f"no such file {str(below)!r}{near}")
    except ShapeshiftError as error:
        raise ShapeshiftError(f"extends: {error}", path=path, line=line) from error
    return [*read_layers(below, (*extending, path.resolve())), Layer(document, path)]


def read_document(path: str | Path) -> dict[str, Any]:
    """Read a YAML file and those it extends; see `read_layers`."""
    resolved = lay_over(read_layers(path))
    if resolved.problems:
        raise ShapeshiftError("; ".join(resolved.problems))
    return resolved.document


def lay_over(layers: Iterable[Layer]) -> Resolved:
    """Lay layers over each other, from left to right; docs/configuration.md has the rules.

    A value or a list replaces what is there, and a section is merged key by key. The name of a
    scheme or a corpus replaces the section by what it stands for. Another choice within a section
    (a schedule, a recipe) keeps the fields: the check of the configuration refuses one that it
    does not take.
    """
    result = Resolved()
    document, given = result.document, result.given
    home: Path | None = None  # of the corpus
    for layer in layers:
        own: dict[Keys, Setting] = {}
        before, corpus = given.copy(), _at(document, _CORPUS)
        default = None if isinstance(layer.given, Mapping) else DEFAULT_POSITION
        name = _at(document, _LABEL) or default
        settings = [*_settings(layer, result)]
        for setting in settings:
            keys, value = setting.keys, _moved(setting)
            try:
                if keys == _LABEL and not _is_label(setting, own):
                    keys, value = keys[:1], expand_position(value)
                elif keys == _CORPUS and str(value) in CORPORA:
                    keys, value = keys[:2], CORPORA[str(value)]
                if keys in own:
                    raise ShapeshiftError(
                        f"{dotted(keys)} is given twice, {own[keys]} and {setting}; give one"
                    )
                if undone := [key for key in own if _undoes(keys, key)]:
                    remedy = "give it first, or give one of them"
                    if {keys, undone[0]} == {_PARTS, _PARTS[:1]}:
                        remedy = "give both in one: position={name: …, parts: […]}"
                    raise ShapeshiftError(f"{setting} would undo {own[undone[0]]}; {remedy}")
                if keys == _SIZE and str(value) in SIZES:
                    _check_size(setting, before, {each.keys for each in settings})
                if keys[0] == "position" and document.get("position") is None:
                    document["position"] = expand_position(DEFAULT_POSITION)
                node: Any = document
                for depth, key in enumerate(keys[:-1], start=1):
                    node = _below(node, key, keys[: depth + 1])
                if keys == _POSITION_IDS and _at(node, keys[-1:]) not in (None, value):
                    for option in [x for x in node if (*keys[:-1], x) not in given]:
                        del node[option]  # what the scheme has filled in goes with it
                elif keys == _PARTS:  # other ones than those of the scheme
                    if is_scheme(_at(node, ("name",))):
                        del node["name"]
                    if not any(key[:2] == _POSITION_IDS[:2] for key in given):
                        node.pop("position_ids", None)
                elif keys in _OWN_RECIPE and _SOURCE not in own:
                    node.pop("source", None)  # of another function
                    given.pop(_SOURCE, None)
                last = _index(node, keys[-1], keys) if isinstance(node, list) else keys[-1]
                changes = value != {} or not isinstance(_at(node, (last,)), dict)
                if changes:
                    node[last] = deepcopy(value)
            except ShapeshiftError as error:
                result.problems.append(setting.located(str(error)))
                continue
            for key in [key for key in given if changes and key[: len(keys)] == keys]:
                del given[key]
            for key in (keys, *(_leaves(keys, value) if keys == setting.keys else ())):
                own[key] = given[key] = setting
        _check_label(result, own, name)
        if _CORPUS[:2] in own:
            home = None
        elif _CORPUS in own and (layer.folder or corpus != "files"):
            home = layer.folder
    if home and _at(document, _CORPUS) == "files":
        document["data"]["corpus"].setdefault("root", from_here(home))
    return result


_LABEL, _PARTS = ("position", "name"), ("position", "parts")
_POSITION_IDS = ("position", "position_ids", "name")
_CORPUS, _SIZE = ("data", "corpus", "corpus"), ("model", "size")
_OWN_RECIPE, _SOURCE = (
    (("data", "recipe", "name"), ("data", "recipe", "function")),
    ("data", "recipe", "source"),
)


def _settings(layer: Layer, result: Resolved) -> Iterator[Setting]:
    """Yield the values of a layer one at a time; the choice of a section comes before its
    fields."""
    if isinstance(layer.given, Mapping):
        for keys, value in _flatten((), layer.given):
            text = f"{dotted(keys)}={value}"
            yield Setting(keys, value, text if len(text) < 80 else f"{text[:79]}…", layer)
        return
    for override in layer.given:
        name, equals, text = override.partition("=")
        keys = tuple(name.split("."))
        try:
            if not equals or not all(keys):
                problem = f"an override looks like training.max_updates=500, got {override!r}"
                raise ShapeshiftError(problem)
            try:
                parsed = parse_yaml(text)
            except ShapeshiftError as error:
                raise ShapeshiftError(f"the value of {override[:200]!r} is {error}") from error
        except ShapeshiftError as error:
            result.problems.append(str(error))
            continue
        for own, value in _flatten(keys, parsed):
            yield Setting(own, value, override, layer)


def _flatten(keys: Keys, value: Any) -> Iterator[tuple[Keys, Any]]:
    if keys in _CHOICES and isinstance(value, str):
        value = {_CHOICES[keys]: value}
    is_whole = len(keys) == 4 and (*keys[:2], keys[3]) == (*_PARTS, "layers")
    if not isinstance(value, Mapping) or (keys and not value) or is_whole:
        yield keys, value
        return
    first: Any = _CHOICES.get(keys)
    if keys == ("position",) and isinstance(value.get("parts"), list):
        first = "parts"  # of which the name is a label
    for key in sorted(value, key=lambda key: key != first):
        yield from _flatten((*keys, str(key)), value[key])


def _leaves(keys: Keys, value: Any) -> Iterator[Keys]:
    """Yield the keys of all values in a list."""
    if isinstance(value, list | dict):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, below in items:
            yield from _leaves((*keys, str(key)), below)
    else:
        yield keys


def _is_label(setting: Setting, own: Mapping[Keys, Setting]) -> bool:
    """Return whether a position's name is only a label: unknown as a scheme, or given next to
    `parts`."""
    parts = own.get(_PARTS)
    whole = isinstance(setting.layer.given, Mapping) or (parts and parts.text == setting.text)
    return bool(parts and whole) or not is_scheme(setting.value)


def _undoes(keys: Keys, earlier: Keys) -> bool:
    """Return whether a setting would undo an earlier one of the same layer."""
    return bool(
        earlier[: len(keys)] == keys
        or (keys == _PARTS and earlier == _PARTS[:1])
        or (keys == _CORPUS and earlier == _CORPUS[:2])
        or (keys == _SIZE and earlier[0] == "model" and {*earlier[1:2]} & {*SIZES["base"]})
    )


def _check_size(setting: Setting, before: Mapping[Keys, Setting], own: Collection[Keys]) -> None:
    """Refuse a size that would undo a field which an earlier layer gives, or that has no effect."""
    filled = SIZES[str(setting.value)]
    fields = {("model", name): value for name, value in filled.items()}
    for keys, value in fields.items():
        old = before.get(keys)
        if old and keys not in own and old.value != value:
            raise ShapeshiftError(
                f"{setting} would undo {old}; give {dotted(keys)} as well: {old.value} keeps it,"
                f" {value} is that of {setting.value!r}"
            )
    if not isinstance(setting.layer.given, Mapping) and fields.keys() <= {*own}:
        raise ShapeshiftError(
            f"{setting} has no effect: {', '.join(map(dotted, fields))} are given as well"
        )


def _check_label(result: Resolved, own: Mapping[Keys, Setting], before: str | None) -> None:
    """Refuse a position's name that is no scheme if no parts are given that it could label, in the
    settings of one layer over a position with the name `before`."""
    label = own.get(_LABEL)
    if label is None or not isinstance(label.value, str):
        return
    others = [keys for keys in own if keys[0] == "position" and keys != _LABEL]
    whole = _PARTS[:1] in others or _PARTS in others
    short = label.text == f"position={label.value}"  # which names a scheme
    if not whole and (before is None or (is_scheme(before) and (short or not others))):
        problem = no_scheme(label.value) + ", and no parts are given" * bool(others)
        result.problems.append(label.located(f"position: {problem}"))


def _at(node: Any, keys: Keys) -> Any:
    """Return the value at a place, or None."""
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _below(node: Any, key: Any, keys: Keys) -> Any:
    """Return the section or list at `key`; create it if it is missing."""
    if isinstance(node, list):
        node = node[_index(node, key, keys[:-1])]
    else:
        if node.get(key) is None:
            node[key] = {}
        node = node[key]
    if not isinstance(node, dict | list):
        raise ShapeshiftError(f"{dotted(keys)!r} goes through a plain value, which has no keys")
    return node


def _index(items: list[Any], key: Any, keys: Keys) -> int:
    if str(key) not in map(str, range(len(items))):
        problem = f"{key!r} is not one of the {len(items)} items, from 0"
        raise ShapeshiftError(f"{dotted(keys)!r}: {problem}")
    return int(key)


def _moved(setting: Setting) -> Any:
    """Return the value of a setting; a relative path, from the working directory on."""
    keys, value = setting.keys, setting.value
    if keys not in (*PATHS, *_NAMES_OR_PATHS) or not isinstance(value, str):
        return value
    if value.startswith("~") or os.path.isabs(value):
        return value
    path = (setting.layer.folder or Path()) / value
    return value if keys in _NAMES_OR_PATHS and not path.exists() else from_here(path)


def from_here(path: str | Path) -> str:
    """Return a path in normal form: relative to the current folder if it is below it, else
    absolute."""
    whole, here = os.path.abspath(path), os.getcwd()
    if os.path.realpath(whole) != os.path.realpath(path):  # `..` after a symbolic link
        whole = os.path.realpath(path)
    return os.path.relpath(whole) if Path(whole).is_relative_to(here) else whole


def paths_from(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a configuration for a file in a folder: relative paths start there."""
    document = deepcopy(document)
    for keys in (*PATHS, *_NAMES_OR_PATHS):
        value, section = _at(document, keys), _at(document, keys[:-1])
        named = keys in _NAMES_OR_PATHS and not os.path.exists(value or "")
        if value is not None and not os.path.isabs(value) and not named:
            moved = os.path.relpath(value, folder)
            if os.path.realpath(folder / moved) != os.path.realpath(value):
                moved = os.path.relpath(os.path.realpath(value), os.path.realpath(folder))
            section[keys[-1]] = moved
    return document
