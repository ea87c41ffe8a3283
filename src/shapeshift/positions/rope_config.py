"""The rotary positions that a configuration of Hugging Face transformers describes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from numbers import Real
from typing import Any

from shapeshift._system.errors import ShapeshiftError

from .checks import is_whole_number, whole_number

PAIRS = {
    model: pairs
    for pairs, models in {
        "halves": "apertus arcee bitnet diffllama doge dots1 eurobert exaone4 falcon falcon_h1"
        " flex_olmo gemma gemma2 gemma3_text gemma4_text glm4_moe gpt_neox gpt_oss"
        " granite granitemoe granitemoeshared hunyuan_v1_dense hyperclovax jais2"
        " laguna lfm2 llama minimax_m2 ministral mistral mixtral modernbert nemotron"
        " olmo olmo2 olmo3 olmoe persimmon phi phi3 phimoe qwen2 qwen2_5_vl"
        " qwen2_5_vl_text qwen2_moe qwen2_vl qwen2_vl_text qwen3 qwen3_moe qwen3_next"
        " qwen3_vl_moe_text qwen3_vl_text seed_oss smollm3 stablelm starcoder2",
        "interleaved": "codegen cohere cohere2 deepseek_v2 deepseek_v3 ernie4_5 ernie4_5_moe glm"
        " glm4 gptj helium llama4_text",
    }.items()
    for model in models.split()
}
"""`model_type` → which channels rotate together in its code."""

SECTION_ORDERS = {
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), "blocks"),
    **dict.fromkeys(("qwen3_vl_text", "qwen3_vl_moe_text"), "interleaved"),
}
"""`model_type` of models with several axes → `section_order` of `Rotary`."""

NEEDS = {
    "partial_rotary_factor rotary_pct rotary_dim": "codegen glm glm4 glm4_moe gpt_neox gptj"
    " nemotron persimmon phi qwen3_next stablelm",
    "head_dim": "ernie4_5 gemma gemma2 gemma3_text gemma4_text glm glm4 gpt_oss helium laguna"
    " llama4_text minimax_m2 qwen3 qwen3_vl_moe_text qwen3_vl_text seed_oss",
    "global_head_dim per_layer_config": "gemma4_text",
    "qk_rope_head_dim": "deepseek_v2 deepseek_v3",
    "mrope_section": " ".join(SECTION_ORDERS),
    "rope_parameters rope_scaling": "apertus gemma4_text gpt_oss laguna",
    "rope_parameters rope_local_base_freq": "gemma3_text",
    "rope_parameters global_rope_theta": "modernbert",
    "rope_parameters rotary_emb_base": "gpt_neox",
    "position_embedding_type": "granitemoehybrid",
}
"""Names → models whose class in transformers assumes something of its own without any of them."""

BY_LAYER = (
    *("cohere2", "exaone4", "gemma3_text", "gemma4_text", "laguna", "modernbert", "olmo3"),
    "qwen3_next",
)
"""Models whose layers differ."""

READS_INTERLEAVE = ("deepseek_v3",)
"""Models whose code reads `rope_interleave`."""

FIXED_BASE = "codegen", "gptj"
"""Models of which 10000 is part of the code."""

ALIASES = {
    "rotary_emb_base": "rope_theta",
    "rotary_pct": "partial_rotary_factor",
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
}

KNOWN = {
    *("rope_parameters", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct"),
    *("partial_rotary_factor", "rotary_dim", "rope_interleave", "rope_interleaved"),
    *("qk_rope_head_dim", "no_rope_layers", "no_rope_layer_interval"),
    *("rotary", "ignore_keys_at_rope_validation"),
    *("rope_local_base_freq", "global_rope_theta", "local_rope_theta", "qk_nope_head_dim"),
}
"""Names in a configuration that are read here, or have no effect. Others that `OF_POSITIONS` finds
are refused."""

OF_POSITIONS = re.compile("(?<![a-z])([im]?rope|nope|ntk)|rotary")

SIZES = {
    *("hidden_size", "num_attention_heads", "num_hidden_layers", "head_dim", "global_head_dim"),
    *("qk_rope_head_dim", "kv_channels", "rotary_dim"),
    *("max_position_embeddings", "original_max_position_embeddings"),
}
"""Names whose values are whole numbers from 1."""

UNSUPPORTED = {
    "axial": "rotates by the row and the column of a patch, see shapeshift.positions.Axial",
    "llama_4_scaling_beta": "multiplies queries by a function of their position",
}

SLIDING, FULL = "sliding_attention", "full_attention"

ROTATING = SLIDING, FULL, "chunked_attention", "indexed_attention", "attention", "hybrid"
"""Types of layers with attention; `attention` is an old name of `full_attention`."""


class NoPositionsError(ShapeshiftError):
    """The configuration says that this layer does not rotate."""


def read(config: Any, layer: int | str | None, pairs: str | None) -> dict[str, Any]:
    """Return `head_dim`, `pairs`, `rope_parameters` and, of several axes, the sections of `Rotary`;
    see `Rotary.from_config`."""
    given = _as_dict(config)
    model = str(given.get("model_type"))
    kind = given.get("position_embedding_type", "rope")
    if given.get("alibi") or given.get("rotary") is False or kind not in ("rope", "rotary"):
        raise NoPositionsError("this model has no rotary positions, but others or none")
    names = " ".join(map(str, given))
    is_about = "position_embedding_type" in given or OF_POSITIONS.search(names) or model in PAIRS
    if "model_type" in given and not is_about:
        raise ShapeshiftError(
            f"nothing in this configuration of model_type {model!r} is about rotary positions; if"
            " the model has them, add the rope_theta that it was trained with"
        )
    if "head_dim" not in given and not {"hidden_size", "num_attention_heads"} <= given.keys():
        raise ShapeshiftError(
            "config must be a configuration of transformers, or its dictionary, with hidden_size"
            f" and num_attention_heads or head_dim, got {type(config).__name__}"
        )
    for name, value in given.items():
        if OF_POSITIONS.search(str(name)) and name not in KNOWN and value is not False:
            raise ShapeshiftError(
                f"the configuration has {name!r}, which is not known here; remove it if it does not"
                " change the rotary positions"
            )
    layer_type = _layer_type(given, layer)
    parameters = _of_layer(given, layer_type)
    for name, why in UNSUPPORTED.items():
        if name in (*parameters, parameters.get("rope_type"), parameters.get("type")):
            raise ShapeshiftError(f"{name} {why}; from_config does not read that")
    head_dim = _head_dim(given, layer_type)
    if given.get("kv_channels", head_dim) != head_dim:
        raise ShapeshiftError(
            f"kv_channels={given['kv_channels']} differs from the {head_dim} channels of a head;"
            " correct one of them, or add head_dim"
        )
    if "rotary_dim" in given:
        width = given["rotary_dim"]
        if width > head_dim:
            raise ShapeshiftError(
                f"rotary_dim must not be above the {head_dim} channels of a head, got {width}"
            )
        share = width / head_dim
        if int(head_dim * share) != width:  # rounded down
            share = math.nextafter(share, 2)
        other = parameters.setdefault("partial_rotary_factor", share)
        if isinstance(other, Real) and not width <= head_dim * other < width + 1:
            raise _differ(f"rotary_dim={width}", f"partial_rotary_factor={other}")
    for names, models in NEEDS.items():
        either = names.split()
        if model in models.split() and not (given.keys() | parameters.keys()) & {*either}:
            raise ShapeshiftError(
                f"the configuration of a {model} needs {' or '.join(either)}: without, its class in"
                " transformers assumes a value of its own"
            )
    if model in FIXED_BASE:
        parameters.setdefault("rope_theta", 10000.0)
    if "rope_theta" not in parameters:
        raise ShapeshiftError(
            "the configuration names no rope_theta; add the one that the model was trained with,"
            " in many old models 10000.0"
        )
    axes = {}
    if "mrope_section" in parameters:
        interleaved = parameters.pop("mrope_interleaved", None)
        order = None if interleaved is None else "interleaved" if interleaved else "blocks"
        known = SECTION_ORDERS.get(model, order)
        if known is None:
            raise ShapeshiftError(
                f"the order of the mrope_section of model_type {model!r} is not known here; if its"
                " code has one of those of Rotary, add mrope_interleaved to the rope parameters,"
                " false for section_order 'blocks'"
            )
        if order not in (None, known):
            raise ShapeshiftError(
                f"the code of a {model} has section_order={known!r}; remove mrope_interleaved"
            )
        axes = {"sections": parameters.pop("mrope_section"), "section_order": known}
    elif "mrope" in (parameters.get("rope_type"), parameters.get("type")):
        raise ShapeshiftError("rope type 'mrope' needs mrope_section, the pairs of each axis")
    parameters, pairs = spelled(given, parameters), _pairs(given, pairs)
    return {"head_dim": head_dim, "pairs": pairs, "rope_parameters": parameters, **axes}


def _as_dict(config: Any) -> dict[str, Any]:
    """Return the names and values of a configuration that are not null."""
    if isinstance(config, Mapping):
        given = dict(config)
    elif hasattr(config, "to_dict"):
        given = config.to_dict()
    else:
        given = getattr(config, "__dict__", {})
    given = {name: value for name, value in given.items() if value is not None}
    for other, name in ALIASES.items():
        if other in given and given.setdefault(name, given[other]) != given[other]:
            raise _differ(name, other)
    given |= {name: _size(name, given[name]) for name in SIZES & given.keys()}
    inner = [name for name in ("text_config", "thinker_config", "llm_config") if name in given]
    if inner:
        raise ShapeshiftError(f"this is the configuration of several models; give its {inner[0]}")
    return given


def _differ(one: str, other: str) -> ShapeshiftError:
    return ShapeshiftError(f"{one} and {other} differ; give one of them")


def _size(name: str, value: Any) -> int:
    """Return a whole number from 1; JSON may have it as 4096.0."""
    is_whole = isinstance(value, float) and value.is_integer()
    return whole_number(name, int(value) if is_whole else value, 1)


def _list(name: str, value: Any, count: int = 0) -> list[Any]:
    """Return a list as such, of `count` values unless that is 0 (unknown)."""
    if not isinstance(value, list | tuple) or (count and len(value) != count):
        values = f" of {count} values, one for each of num_hidden_layers" if count else ""
        raise ShapeshiftError(f"{name} must be a list{values}, got {value!r}")
    return [*value]


def _layer_types(given: Mapping[str, Any]) -> list[str] | None:
    """Return the attention type of each layer, or None if all have the same."""
    count = given.get("num_hidden_layers", 0)
    layers = range(count)
    if "layer_types" in given:
        return _list("layer_types", given["layer_types"], count)
    if "full_attn_idxs" in given:  # LFM2
        full = _list("full_attn_idxs", given["full_attn_idxs"])
        return [FULL if n in full else "conv" for n in layers]
    for name, first, other in (
        ("sliding_window_pattern", 1, SLIDING),
        ("global_attn_every_n_layers", 0, SLIDING),
        ("full_attention_interval", 1, "linear_attention"),
    ):
        if name in given and not isinstance(given[name], str):  # EXAONE 4 also has "LLLG"
            every = whole_number(name, given[name], 1)
            return [other if (n + first) % every else FULL for n in layers]
    if given.get("model_type") in BY_LAYER:
        raise ShapeshiftError("layers of this model differ; add layer_types to its configuration")
    return None


def _layer_type(given: Mapping[str, Any], layer: int | str | None) -> str | None:
    """Return the type of a layer, and check that it exists and rotates."""
    model, kind, rotates = given.get("model_type"), layer, True
    is_number = is_whole_number(layer)
    types = _layer_types(given) if is_number or "layer_types" in given else None
    if is_number:
        count, number = given.get("num_hidden_layers", 0), whole_number("layer", layer, 0)
        count = len(types) if types else count
        if number >= count:
            raise ShapeshiftError(
                f"layer must be a type of layers or a number below {count}, the num_hidden_layers"
                f" of the configuration, got {number}"
            )
        kind = types[number] if types else None
        if flags := _list("no_rope_layers", given.get("no_rope_layers", ())):
            rotates = bool(_list("no_rope_layers", flags, count)[number])
        elif model in ("smollm3", "llama4_text"):
            name = "no_rope_layer_interval"
            rotates = (number + 1) % whole_number(name, given.get(name, 4), 1) != 0
    elif layer is not None and not isinstance(layer, str):
        raise ShapeshiftError(f"layer must be a type of layers or a number, got {layer!r}")
    elif layer == FULL and model == "llama4_text":  # its class gives this type to those without
        rotates = False
    if kind == FULL and model in ("cohere2", "exaone4"):
        has_windows = "sliding_window" in given or SLIDING in (types or ())
        rotates = model == "exaone4" and not has_windows
    if not rotates or kind not in (None, *ROTATING):
        what = f"layer {layer} of this model has" if is_number else f"layers of type {layer!r} have"
        raise NoPositionsError(f"{what} no rotary positions; use kind 'none'")
    return kind


def _of_layer(given: Mapping[str, Any], layer_type: str | None) -> dict[str, Any]:
    """Return the rope parameters of one layer, with those that are written next to them."""
    both = [name for name in ("rope_parameters", "rope_scaling") if given.get(name)]
    if len(both) == 2 and given[both[0]] != given[both[1]]:
        raise _differ(*both)
    inner = given[both[0]] if both else {}
    if not isinstance(inner, Mapping):
        raise ShapeshiftError(f"{both[0]} must be names and values, got {inner!r}")
    inner = dict(inner)
    nested = {name: dict(value) for name, value in inner.items() if isinstance(value, Mapping)}
    empty = [name for name, value in inner.items() if nested and value is None]
    if nested:
        if bare := [name for name, value in nested.items() if value.get("rope_theta") is None]:
            raise ShapeshiftError(
                f"rope_parameters of {bare[0]!r} need a rope_theta of their own: classes in"
                " transformers differ in which they assume"
            )
        if loose := [name for name in inner if name not in (*nested, *empty)]:
            raise ShapeshiftError(
                f"rope_parameters has {loose[0]!r} next to those of {' and '.join(nested)}; remove"
                " it"
            )
    else:
        nested = _by_base(given, inner)
    if nested:
        if layer_type in empty:
            raise NoPositionsError(f"layers of type {layer_type!r} have no rotary positions")
        if layer_type is None or layer_type not in nested:
            raise ShapeshiftError(
                f"the layers of this model differ: {', '.join(nested)}; give layer, one of these or"
                f" the number of a layer, got {layer_type!r}"
            )
        inner = dict(nested[layer_type])
    elif layer_type is not None and layer_type not in (_layer_types(given) or ()):
        raise ShapeshiftError(
            f"layer={layer_type!r} has no meaning: all layers of this model have the same rotary"
            " positions; leave it out"
        )
    inner = {name: value for name, value in inner.items() if value is not None}
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in given and inner.setdefault(name, given[name]) != given[name] and not nested:
            raise _differ(f"{name}={given[name]}", f"{inner[name]} of the rope parameters")
    return inner


def _by_base(given: Mapping[str, Any], inner: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rope parameters of each type of layers in a configuration of transformers 4, where
    they had different names; empty if all layers have the same."""
    if "rope_local_base_freq" in given:  # Gemma 3
        local = {"rope_theta": given["rope_local_base_freq"]}
        return {FULL: inner, SLIDING: local}
    if "global_rope_theta" in given:  # ModernBERT
        names = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
        return {kind: {"rope_theta": given.get(name), **inner} for kind, name in names.items()}
    if given.get("model_type") == "olmo3" and inner.get("rope_type", inner.get("type")):
        return {FULL: inner, SLIDING: {"rope_theta": given.get("rope_theta")}}
    return {}


def _head_dim(given: Mapping[str, Any], layer_type: str | None) -> Any:
    if "qk_rope_head_dim" in given:
        return given["qk_rope_head_dim"]
    if "global_head_dim" in given and layer_type == FULL:
        return given["global_head_dim"]
    every = given.get("head_dim")
    if every is None:
        every = given["hidden_size"] // given["num_attention_heads"]
    if not (changes := given.get("per_layer_config")):
        return every
    if not isinstance(changes, Mapping) or not all(
        isinstance(x, Mapping) for x in changes.values()
    ):
        raise ShapeshiftError(
            f"per_layer_config must have names and values for numbers of layers, got {changes!r}"
        )
    changes = {int(n): change for n, change in changes.items()}
    types = given.get("layer_types", ())
    numbers = [n for n, kind in enumerate(types) if layer_type in (None, kind)]
    sizes = {changes.get(n, {}).get("head_dim", every) for n in numbers}
    if len(sizes) != 1:
        raise ShapeshiftError(f"layers of type {layer_type!r} differ in head_dim: {sorted(sizes)}")
    return sizes.pop()


def _pairs(given: Mapping[str, Any], pairs: str | None) -> str:
    model = given.get("model_type")
    known = PAIRS.get(str(model))
    interleave = given.get("rope_interleave", given.get("rope_interleaved"))
    if interleave is not None:
        named = "interleaved" if interleave else "halves"
        if known not in (None, named) and model not in READS_INTERLEAVE:
            raise ShapeshiftError(
                f"the code of a {model} has pairs={known!r}, whatever"
                f" rope_interleave={interleave} says; remove it"
            )
        known = named
    if pairs is not None and known not in (None, pairs):
        raise ShapeshiftError(f"a {model} has pairs={known!r}, got {pairs!r}; leave pairs out")
    if (answer := known or pairs) is None:
        raise ShapeshiftError(
            f"the pairing of model_type {model!r} is not known here; give pairs='halves' (most"
            " models) or 'interleaved' (channels 2m and 2m + 1), as its code rotates"
        )
    return answer


def spelled(given: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return rope parameters with the names of transformers 5, complete by themselves; `given` is
    the configuration around them."""
    parameters = dict(parameters)
    old, kind = parameters.pop("type", None), parameters.pop("rope_type", None)
    old = "default" if old == "mrope" else old  # of Qwen2-VL, next to its mrope_section
    if old is not None and kind is not None and old != kind:
        raise _differ(f"rope_type {kind!r}", f"type {old!r}")
    kind = kind or old or "default"
    if kind == "su" or (kind == "yarn" and given.get("model_type") == "phi3"):
        kind = "longrope"
    longest = given.get("max_position_embeddings")
    original = given.get("original_max_position_embeddings")
    if kind in ("dynamic", "yarn", "longrope", "llama3"):
        if (inner := parameters.get("original_max_position_embeddings")) is not None:
            inner = _size("original_max_position_embeddings", inner)
        if kind == "dynamic":  # which is computed from the former alone
            original = longest
        if None not in (original, inner) and original != inner:
            name = "original_max_position_embeddings"
            raise _differ(f"{name}={original}", f"{inner} of the rope parameters")
        original = original if inner is None else inner
        if original is None and (kind, given.get("model_type")) == ("longrope", "phi3"):
            raise ShapeshiftError(
                "the configuration of a phi3 needs original_max_position_embeddings: without, its"
                " class in transformers assumes 4096"
            )
        original = longest if original is None else original
        if original is not None:
            parameters["original_max_position_embeddings"] = original
        if kind in ("yarn", "longrope") and longest is not None and original is not None:
            parameters.setdefault("factor", longest / original)
    return {"rope_type": kind, **parameters}
