"""A run's configuration: one YAML file and dotted overrides, checked as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field as PydanticField
from pydantic import ValidationError, ValidationInfo, field_validator, model_validator

from shapeshift.config_errors import messages, no_sections
from shapeshift.config_file import read_document
from shapeshift.data.config import DataConfig, GrammarCorpus
from shapeshift.data.presets import expand_corpus
from shapeshift.decoding.config import DecodingConfig
from shapeshift.errors import ShapeshiftError
from shapeshift.evaluation.config import EvaluationConfig
from shapeshift.evaluation.tokenizers import resolve
from shapeshift.model.config import ModelConfig
from shapeshift.model.position_config import (
    DEFAULT_POSITION,
    PositionConfig,
    check_in_model,
    expand_preset,
)
from shapeshift.schema import Strict
from shapeshift.training.config import TrainingConfig


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
                check_in_model(position.scheme, info.data["model"])
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


def parse_config(
    document: Any, overrides: Sequence[str] = (), path: str | Path | None = None
) -> Config:
    """Check a configuration that is already a mapping; see `load_config`."""
    if not isinstance(document, dict):
        raise no_sections(document, path)
    document = deepcopy(document)
    for override in overrides:
        _apply(document, override)
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise ShapeshiftError("; ".join(messages(error, Config)), path=path) from error


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
