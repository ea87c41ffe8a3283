"""A run's configuration: one YAML file and dotted overrides, checked as a whole."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import torch
import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic import Field as PydanticField

from shapeshift.data.config import DataConfig, GrammarCorpus
from shapeshift.data.presets import expand_corpus
from shapeshift.decoding.config import DecodingConfig
from shapeshift.errors import ShapeshiftError, nearest
from shapeshift.evaluation.config import EvaluationConfig
from shapeshift.evaluation.tokenizers import resolve
from shapeshift.model.config import ModelConfig
from shapeshift.positions import (
    INDICES,
    KINDS,
    PRESETS,
    Graph,
    IndicesChoice,
    Part,
    Representation,
    Scheme,
    Stack,
    build_indices,
    check,
    place,
)
from shapeshift.positions.limits import check_numbers
from shapeshift.positions.registry import Entry
from shapeshift.schema import Strict
from shapeshift.training.config import TrainingConfig


class PositionConfig(Strict):
    """How the model knows positions: a preset's name, or indices and parts spelled out.

    Attributes:
        name: what the scheme is called in tables.
        indices: `name` and options of the indices.
        parts: for each kind `kind`, `place`, `stacks`, `layers` and the kind's own options.
    """

    name: str = "custom"
    indices: dict[str, Any] = PydanticField(default_factory=lambda: {"name": "absolute"})
    parts: list[dict[str, Any]] = PydanticField(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _expand_preset(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        try:
            return expand_preset(given)
        except ShapeshiftError as error:
            raise ValueError(str(error)) from error

    @model_validator(mode="after")
    def _check(self) -> PositionConfig:
        try:
            check(self.scheme)
            _check_types(INDICES[self.scheme.indices.name], self.scheme.indices.options)
            for part in self.scheme.parts:
                _check_types(KINDS[part.kind], part.options)
            with torch.device("meta"):  # costs nothing, and finds values that are out of range
                build_indices(self.scheme)
        except ShapeshiftError as error:
            raise ValueError(str(error)) from error
        return self

    @property
    def scheme(self) -> Scheme:
        """The scheme these settings describe."""
        indices = dict(self.indices)
        parts = []
        for given in self.parts:
            options = dict(given)
            own = {key: options.pop(key) for key in _PART_FIELDS if key in options}
            if "kind" not in own:
                raise ShapeshiftError(f"a part needs a kind ({', '.join(KINDS)}), got {given}")
            for key, value in own.items():
                _check_type(f"{key} of a part", value, _PART_FIELDS[key])
            parts.append(Part(**own, options=options))
        name = indices.pop("name", "absolute")
        _check_type("name of indices", name, str)
        return Scheme(IndicesChoice(name, indices), tuple(parts))


_PART_FIELDS = {"kind": str, "place": str | None, "stacks": str, "layers": int | None}

DEFAULT_POSITION = "ape"


def expand_preset(name: str) -> dict[str, Any]:
    """Return the preset `name` spelled out as a configuration."""
    if name not in PRESETS:
        raise ShapeshiftError(
            f"unknown preset {name!r}{nearest(name, PRESETS)} (known: {', '.join(PRESETS)})"
        )
    scheme = PRESETS[name]
    parts = []
    for part in scheme.parts:
        fields = asdict(part)
        options = fields.pop("options")
        parts.append({key: fields[key] for key in fields if fields[key] is not None} | options)
    return {
        "name": name,
        "indices": {"name": scheme.indices.name, **scheme.indices.options},
        "parts": parts,
    }


def _check_type(what: str, value: Any, expected: Any) -> None:
    if not isinstance(value, expected):
        wanted = getattr(expected, "__name__", str(expected))
        raise ShapeshiftError(f"{what} must be of type {wanted}, got {value!r}")


@cache
def _options_model(entry: Entry[Any]) -> type[BaseModel]:
    hints = get_type_hints(entry.build.__init__)
    fields: dict[str, Any] = {
        name: (hints[name], ... if option.default is inspect.Parameter.empty else option.default)
        for name, option in entry.options().items()
    }
    model: type[BaseModel] = create_model(
        entry.build.__name__, __config__=ConfigDict(strict=True, extra="forbid"), **fields
    )
    return model


def _check_types(entry: Entry[Any], options: Mapping[str, Any]) -> None:
    try:
        _options_model(entry)(**options)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ShapeshiftError(
            f"{entry.build.__name__}.{where}: {first['msg']}, got {first['input']!r}"
        ) from error


def _check_parts(scheme: Scheme, model: ModelConfig) -> None:
    """Raise a `ShapeshiftError` for what cannot be built in this model, or never run."""
    with torch.device("meta"):
        indices = build_indices(scheme)
        for name in ("encoder", "decoder"):
            causal = name == "decoder"
            placed = place(scheme, Stack(name, model.dim, model.num_heads, 1, causal=causal))
            for position in (placed.embedding, *placed.self_attention, *placed.cross_attention):
                check_numbers(indices, position)
                _check_edges(position)


def _check_edges(position: Representation) -> None:
    for module in position.modules():
        if isinstance(module, Graph) and module.num_labels is not None:
            raise ShapeshiftError(
                f"kind 'graph' with num_labels={module.num_labels} takes its edges from Python, but"
                " the sentences of a run have none; leave num_labels out, which takes the sentence"
                " for the graph, or use kind 'shaw'"
            )


class Config(Strict):
    """Everything a run depends on."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    position: PositionConfig = PydanticField(
        default_factory=lambda: PositionConfig(**expand_preset(DEFAULT_POSITION))
    )
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @field_validator("position", mode="after")
    @classmethod
    def _check_position_in_model(
        cls, position: PositionConfig, info: ValidationInfo
    ) -> PositionConfig:
        if "model" in info.data:  # or its own errors are told
            try:
                _check_parts(position.scheme, info.data["model"])
            except ShapeshiftError as error:
                raise ValueError(str(error)) from error
        return position

    @model_validator(mode="after")
    def _check_shared_vocabulary(self) -> Config:
        if self.model.share_embeddings and not self.data.subwords.joint:
            raise ValueError(
                "model.share_embeddings needs one vocabulary for both sides: set"
                " data.subwords.joint=true or model.share_embeddings=false"
            )
        return self

    @property
    def bleu_tokenizer(self) -> str:
        """The tokenizer of BLEU by its name: `evaluation.tokenize`, or where that is `auto`, the
        target language's. (Both languages of the grammar have 13a.)"""
        corpus = self.data.corpus
        language = "" if isinstance(corpus, GrammarCorpus) else corpus.target
        return resolve(self.evaluation.tokenize, language)

    def to_yaml(self) -> str:
        """Return the configuration with every default spelled out."""
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a YAML file, apply overrides such as `training.max_updates=500`, and check it all.

    Raises:
        ShapeshiftError: for a file that cannot be read, an override without `=`, and once for all
            settings that are wrong, each with its name and what would be right.
    """
    return parse_config(read_document(path), overrides, path)


def read_document(path: str | Path) -> Any:
    """Read a YAML file, and those it extends, without checking what they say; see `load_config`.

    With `extends: other.yaml`, a path relative to its own folder, a file begins from another one:
    its sections are laid over the other's, key by key. Lists and plain values replace what was
    there, and so does a section that makes another choice (another `name` or `corpus`): the old
    one's settings have no meaning for it. `extends` itself is gone from the result.

    Raises:
        ShapeshiftError: for a file that cannot be read, or files that extend each other in a
            circle.
    """
    return _read(Path(path), ())


def _read(path: Path, extending: tuple[Path, ...]) -> Any:
    """Read `path`, which was reached through the files in `extending`."""
    document = _read_yaml(path, extending)
    if not isinstance(document, dict) or "extends" not in document:
        return document
    other = document.pop("extends")
    if not isinstance(other, str) or not other:
        raise ShapeshiftError(f"extends: expected the path of one file, got {other!r}", path=path)
    below, chain = path.parent / other, (*extending, path)
    if any(below.resolve() == file.resolve() for file in chain):
        circle = " -> ".join(map(str, (*chain, below)))
        raise ShapeshiftError(f"extends goes in a circle: {circle}; take one out", path=path)
    base = _read(below, chain)
    if not isinstance(base, dict):
        raise ShapeshiftError(_NO_SECTIONS.format(type(base).__name__), path=below)
    return _merge(base, document)


def _read_yaml(path: Path, extending: tuple[Path, ...]) -> Any:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        reason = f" (extended by {extending[-1]})" if extending else ""
        raise ShapeshiftError(f"no such configuration file{reason}", path=path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ShapeshiftError(f"cannot be read: {error}", path=path) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise ShapeshiftError(f"not YAML: {problem}", path=path, line=line) from error
    return {} if document is None else document


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Return `over` laid over `base`."""
    for choice in ("name", "corpus"):
        old, new = base.get(choice), over.get(choice)
        if isinstance(old, str) and isinstance(new, str) and old != new:
            return over
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        mappings = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = _merge(merged[key], value) if mappings else value
    return merged


_NO_SECTIONS = "expected sections such as 'model:', got {}"


def parse_config(
    document: Any, overrides: Sequence[str] = (), path: str | Path | None = None
) -> Config:
    """Check a configuration that is already a mapping; see `load_config`."""
    if not isinstance(document, dict):
        raise ShapeshiftError(_NO_SECTIONS.format(type(document).__name__), path=path)
    document = deepcopy(document)
    for override in overrides:
        _apply(document, override)
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise ShapeshiftError("; ".join(_messages(error)), path=path) from error


_TAGS = ("name", "corpus")


def _apply(document: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise ShapeshiftError(f"an override looks like training.max_updates=500, got {override!r}")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ShapeshiftError(f"the value of {override!r} is not YAML") from error
    keys = name.split(".")
    position = document.get("position", DEFAULT_POSITION)
    if keys[0] == "position" and len(keys) > 1 and isinstance(position, str):
        document["position"] = expand_preset(position)
    data = document.get("data")
    if keys[:2] == ["data", "corpus"] and len(keys) > 2 and isinstance(data, dict):
        corpus = data.get("corpus")
        if isinstance(corpus, str):
            data["corpus"] = expand_corpus(corpus)
    node: Any = document
    for depth, key in enumerate(keys[:-1]):
        if isinstance(node, list):
            node = node[_item(node, key, name)]
        else:
            node = node.setdefault(key, _default_tag(keys[: depth + 1]))
        if not isinstance(node, dict | list):
            raise ShapeshiftError(f"{name!r} goes through {key!r}, which holds a plain value")
    last: Any = keys[-1]
    if isinstance(node, list):
        last = _item(node, last, name)
    elif keys == ["data", "corpus"]:
        pass  # a whole section, or its name
    elif last in _TAGS and keys[0] != "position" and node.get(last, value) != value:
        node.clear()  # another schedule, say: the settings of the old one mean nothing to it
    node[last] = value


@cache
def _defaults() -> Config:
    return Config()


def _default_tag(keys: list[str]) -> dict[str, Any]:
    """Return what tells which of several kinds a section is of, if it is left out."""
    section: Any = _defaults()
    for key in keys:
        section = getattr(section, key, None)
    tags = {tag: getattr(section, tag, None) for tag in _TAGS}
    return {tag: value for tag, value in tags.items() if isinstance(value, str)}


def _item(items: list[Any], key: str, name: str) -> int:
    if not key.isdigit() or int(key) >= len(items):
        raise ShapeshiftError(f"{name!r}: {key!r} is not one of the {len(items)} items, from 0")
    return int(key)


def _messages(error: ValidationError) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        where = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            yield f"{where}: unknown key{_suggestion(where)}"
        elif problem["type"] == "value_error":
            # Nowhere: between sections, which the message names.
            yield (f"{where}: " if where else "") + str(problem["ctx"]["error"])
        elif problem["type"] == "missing":
            yield f"{where}: missing"
        else:
            yield f"{where}: {problem['msg']}, got {problem['input']!r}"


@cache
def _field_paths() -> tuple[str, ...]:
    """Return all keys with their sections, such as `training.seed`."""
    schema = Config.model_json_schema()
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


def _suggestion(where: str) -> str:
    """Return which key one that is unknown may be meant for: one of its own section, or else of
    another one, which is then named with it."""
    section, _, name = where.rpartition(".")
    own = [path for path in _field_paths() if path.rpartition(".")[0] == section]
    found = nearest(name, [path.rpartition(".")[2] for path in own])
    elsewhere = {path.rpartition(".")[2]: path for path in reversed(_field_paths())}
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
