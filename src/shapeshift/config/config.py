"""A run's configuration: one YAML file and dotted overrides, checked as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field as PydanticField
from pydantic import ValidationError, ValidationInfo, field_validator, model_validator

from shapeshift._system.errors import ShapeshiftError, shell_command
from shapeshift._system.schema import Strict
from shapeshift.config.errors import faults
from shapeshift.config.files import Keys, Layer, find_config, lay_over, paths_from, read_layers
from shapeshift.data.config import DataConfig, GrammarCorpus
from shapeshift.decoding.config import DecodingConfig
from shapeshift.evaluation.config import EvaluationConfig
from shapeshift.evaluation.tokenizers import resolve
from shapeshift.model.config import ModelConfig
from shapeshift.model.position_config import (
    DEFAULT_POSITION,
    PositionConfig,
    check_in_model,
    expand_position,
)
from shapeshift.training.config import TrainingConfig


class Config(Strict):
    """Everything that a run depends on."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    position: PositionConfig = PydanticField(
        default_factory=lambda: PositionConfig(**expand_position(DEFAULT_POSITION))
    )
    training: TrainingConfig = TrainingConfig()
    decoding: DecodingConfig = DecodingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="before")
    @classmethod
    def _keep_subwords_of_start(cls, given: Any) -> Any:
        """Give a run with `training.init_from` the subword models of the run it starts from."""
        match given:
            case {"training": {"init_from": str() | Path() as start}}:
                data = given.get("data", {})
                subwords = data.get("subwords", {}) if isinstance(data, dict) else None
                if isinstance(subwords, dict):
                    return {**given, "data": {**data, "subwords": {"models": start, **subwords}}}
        return given

    @field_validator("position", mode="after")
    @classmethod
    def _check_position_in_model(
        cls, position: PositionConfig, info: ValidationInfo
    ) -> PositionConfig:
        # Where the model is wrong, what is wrong with the positions is said as well.
        check_in_model(position.scheme, info.data.get("model", ModelConfig()))
        return position

    @model_validator(mode="after")
    def _check_together(self) -> Config:
        if problems := [text for _, text in _conflicts(dict(self))]:
            raise ValueError("; ".join(problems))
        return self

    @property
    def bleu_tokenizer(self) -> str:
        """The tokenizer of BLEU by its name: `evaluation.tokenize`, or where that is `auto`, the
        target language's. (Both languages of the grammar have 13a.)"""
        corpus = self.data.corpus
        language = "" if isinstance(corpus, GrammarCorpus) else corpus.target
        return resolve(self.evaluation.tokenize, language)

    def to_yaml(self, folder: str | Path = "") -> str:
        """Return the configuration with every default spelled out, for a file in this folder, where
        relative paths start."""
        document = paths_from(self.model_dump(mode="json"), Path(folder))
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def load_config(path: str | Path, overrides: Sequence[str] = ()) -> Config:
    """Read a configuration, apply overrides such as `training.max_updates=500`, and check it all.

    Args:
        path: of a YAML file, or the name of a shipped one, see `find_config`.
        overrides: each `KEY=VALUE`.

    Raises:
        ShapeshiftError: for a file that cannot be read, an override without `=`, or wrong settings:
            one error names all of them, each with what would be right.
    """
    path = find_config(path)
    layers = read_layers(path)
    if {"grid", "axes"} & {*layers[-1].given}:
        raise ShapeshiftError(
            "is a study, not the configuration of one run; use"
            f" `{shell_command('reproduce', path)}`",
            path=path,
        )
    return parse_layers([*layers, Layer(overrides)])


def parse_config(
    document: Mapping[str, Any], overrides: Sequence[str] = (), path: str | Path | None = None
) -> Config:
    """Check a configuration that is already a mapping, with the file it is from; see
    `load_config`."""
    return parse_layers([Layer(document, None if path is None else Path(path)), Layer(overrides)])


def parse_layers(layers: Sequence[Layer]) -> Config:
    """Lay layers over each other and check the result; see `load_config`."""
    resolved = lay_over(layers)
    problems = list(resolved.problems)
    try:
        config = Config.model_validate(resolved.document)
    except ValidationError as error:
        wrong = [each for each in faults(error, Config, resolved.document) if each[0]]
        wrong += _conflicts(_valid_sections(resolved.document))
        problems += [resolved.located(text, keys) for keys, text in wrong]
        raise ShapeshiftError("; ".join(dict.fromkeys(problems))) from error
    if problems:
        raise ShapeshiftError("; ".join(problems))
    return config


def _conflicts(sections: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """Yield the key and a message for each conflict between sections that are valid on their
    own."""
    data, model, evaluation = (sections.get(each) for each in ("data", "model", "evaluation"))
    if data and model and model.share_embeddings and not data.subwords.joint:
        yield (
            ("data", "subwords", "joint"),
            "model.share_embeddings needs one vocabulary for both sides: set"
            " data.subwords.joint=true or model.share_embeddings=false",
        )
    is_grammar = data and isinstance(data.corpus, GrammarCorpus)
    if is_grammar and evaluation and evaluation.detokenize != "none":
        yield (
            ("evaluation", "detokenize"),
            f"evaluation.detokenize={evaluation.detokenize} has no effect on the built-in"
            " grammar, whose text is not tokenised; set evaluation.detokenize=none",
        )


def _valid_sections(document: Mapping[str, Any]) -> dict[str, Any]:
    sections = {}
    for name in ("data", "model", "evaluation"):
        with suppress(ValidationError):
            section: Any = Config.model_fields[name].annotation
            sections[name] = section.model_validate(document.get(name, {}))
    return sections
