"""What the result of a run depends on, and a short name for it.

Left out, because they change speed, messages or names alone: see `NEUTRAL`. Left out of the name
as well: settings that have their default value, so that a setting which a later version adds does
not rename the runs that were made without it. Where a version has another default, the names are
equal and the runs are not: `RunFolder.check_settings` compares them. A position scheme counts by
what it does: its name and the same scheme spelled out are one, and a part of the kind `none` is no
part. A kind of the user's own counts with the source of its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from shapeshift._system.hashes import digest
from shapeshift._system.own_modules import source_sha256
from shapeshift.config import Config
from shapeshift.config.files import from_here
from shapeshift.evaluation.tokenizers import DEFAULT
from shapeshift.model import ModelConfig
from shapeshift.positions import KINDS, POSITION_IDS, Part, Scheme
from shapeshift.positions.layers import select_layers
from shapeshift.positions.position_ids import FUNCTION
from shapeshift.positions.registry import Entry, find_kind

NEUTRAL = (
    "training.log_every",
    "training.keep_checkpoints",
    "training.device",
    "training.rank_timeout_s",
    "data.corpus.root",
    "data.corpus.archive",
    "decoding.max_tokens",
    "decoding.max_sentences",
    "decoding.buffer_size",
    "position.name",
    "model.size",
    "evaluation",
)
"""Settings that a run's name does not depend on.

Devices and the batches of decoding change results by rounding at most. The kind of device a run is
trained on, and the precision that `training.precision=auto` is there, are known when it begins:
they stand in its folder, and runs that differ in them are not compared; see `machine`.
`root` and `archive` say where the text is, not what it is. `size` is spelled out by the widths and
depths. `evaluation` changes what is computed from translations: its hash is in the names of the
measures, so that other length buckets score again and do not train again. Validation
stays in: the log depends on it, and with it the model of COMET, how text is detokenised and BLEU's
tokenizer, where that matters.
"""


def run_key(config: Config) -> str:
    """Return 16 hexadecimal digits: the same for configurations that give the same result, in any
    process, whatever the order of keys."""
    own = _without_defaults(identity_fields(config), _default_fields())
    return digest(own)[:16]


def identity_fields(config: Config) -> dict[str, Any]:
    """Return the settings that a run's result depends on, as a document of plain values."""
    document = config.model_dump(mode="json")
    for name in NEUTRAL:
        *sections, last = name.split(".")
        node = document
        for section in sections:
            node = node.get(section, {})
        node.pop(last, None)
    for section, key in (
        (document["training"], "init_from"),
        (document["data"]["subwords"], "models"),
    ):
        if section.get(key) is not None:
            section[key] = from_here(section[key])
    document["position"] = _position(config.position.scheme, config.model)
    # What validation measures stands in the log, and may choose the final model.
    metrics, validation = config.training.validated_metrics, {}
    if "comet" in metrics:
        validation["comet_model"] = config.evaluation.comet_model
    if metrics and config.evaluation.detokenize != "none":
        validation["detokenize"] = config.evaluation.detokenize
    if "bleu" in metrics:
        validation |= other_tokenizer(config)
    if validation:
        document["validation"] = validation
    return document


def position_options(scheme: Scheme) -> dict[str, bool | int | float | str]:
    """Return setting → value for all options of a scheme, as text if it is no number; a
    configuration leaves defaults out."""
    ids = scheme.position_ids
    given: dict[str, tuple[Entry[Any], Mapping[str, Any]]] = {
        "position.position_ids": (POSITION_IDS[ids.name], ids.options)
    }
    for number, part in enumerate(scheme.parts):
        given[f"position.parts.{number}"] = find_kind(part.kind), part.options
    values = {
        f"{place}.{name}": options.get(name, each.default)
        for place, (entry, options) in given.items()
        for name, each in entry.options().items()
    }
    return {name: x if isinstance(x, int | float) else str(x) for name, x in values.items()}


def other_tokenizer(config: Config) -> dict[str, str]:
    """Return the setting of BLEU's tokenizer, with `auto` resolved; empty for 13a, the tokenizer of
    runs made before this setting existed."""
    name = config.bleu_tokenizer
    return {} if name == DEFAULT else {"tokenize": name}


def how_to_score(config: Config) -> dict[str, Any]:
    """Return the settings of `evaluation` that measured results depend on, as a document of plain
    values."""
    settings = config.evaluation.model_dump(mode="json", exclude={"tokenize"})
    return settings | other_tokenizer(config)


def _position(scheme: Scheme, model: ModelConfig) -> dict[str, Any]:
    ids = scheme.position_ids
    numbering = [ids.name, _own_options(POSITION_IDS[ids.name], ids.options)]
    if function := ids.options.get("function"):  # code of the user's own may change
        numbering.append(source_sha256(function, FUNCTION))
    return {
        "position_ids": numbering,
        "parts": [
            _part(part, model)
            for part in scheme.parts
            if part.kind != "none"  # which does nothing, wherever it stands
        ],
    }


def _part(part: Part, model: ModelConfig) -> dict[str, Any]:
    kind = find_kind(part.kind)
    document = {
        "kind": part.kind,
        "place": part.at,
        "stacks": part.stacks,
        "layers": _layers(part, model),
        "options": _own_options(kind, part.options),
    }
    if part.kind not in KINDS:  # code of the user's own may change
        document["source"] = source_sha256(kind.source, "kind")
    if part.share_layers not in (None, kind.build.share_layers):
        document["share_layers"] = part.share_layers
    return document


def _layers(part: Part, model: ModelConfig) -> Any:
    """Return the selected layers: a number if they are the first ones, one list if all stacks of
    the part have the same ones."""
    if not isinstance(part.layers, Mapping | list | tuple):
        return part.layers
    chosen = {n: select_layers(part.layers, model.depths[n], n) for n in part.used_stacks}
    first, *others = chosen.values()
    if any(other != first for other in others):
        return chosen
    return len(first) if first == [*range(len(first))] else first


def _own_options(entry: Entry[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    known = entry.options()
    return {name: value for name, value in options.items() if value != known[name].default}


@cache
def _default_fields() -> dict[str, Any]:
    return identity_fields(Config())


def _without_defaults(own: dict[str, Any], default: dict[str, Any]) -> dict[str, Any]:
    left: dict[str, Any] = {}
    for key, value in own.items():
        if isinstance(value, dict) and isinstance(default.get(key), dict):
            below = _without_defaults(value, default[key])
            if below:
                left[key] = below
        elif key not in default or value != default[key]:
            left[key] = value
    return left
