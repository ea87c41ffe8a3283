"""The rotary positions that a configuration of Hugging Face transformers describes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from shapeshift._system.errors import ShapeshiftError

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
}
"""Names → models whose class in transformers assumes something of its own without any of them."""

BY_LAYER = "cohere2", "exaone4", "gemma3_text", "gemma4_text", "laguna", "modernbert", "olmo3"
"""Models whose layers differ."""

INTERLEAVE_IF_SAID = ("deepseek_v3",)
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
    *("rope_local_base_freq", "global_rope_theta", "local_rope_theta"),
}
"""Names in a configuration that are read here; others with "rope" or "rotary" are refused."""

UNSUPPORTED = {
    "axial": "rotates by the row and the column of a patch, see shapeshift.positions.Axial",
    "llama_4_scaling_beta": "multiplies queries by a function of their position",
}

SLIDING, FULL = "sliding_attention", "full_attention"


class NoPositionsError(ShapeshiftError):
    """The configuration says that this layer does not rotate."""


def read(config: Any, layer: int | str | None, pairs: str | None) -> dict[str, Any]:
    """Return `head_dim`, `pairs`, `rope_parameters` and, of several axes, the sections of `Rotary`;
    see `Rotary.from_config`."""
    given = _as_dict(config)
    model = str(given.get("model_type"))
    if given.get("alibi") or given.get("rotary") is False:
        raise NoPositionsError("this model has other positions in place of rotary ones")
    for name in given:
        if re.search("(?<![a-z])m?rope|rotary", str(name)) and name not in KNOWN:
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
    if "rotary_dim" in given:
        if "partial_rotary_factor" in parameters:
            raise ShapeshiftError("give rotary_dim or partial_rotary_factor, not both")
        share = given["rotary_dim"] / head_dim
        if int(head_dim * share) != given["rotary_dim"]:  # rounded down
            share = math.nextafter(share, 2)
        parameters["partial_rotary_factor"] = share
    for names, models in NEEDS.items():
        either = names.split()
        if model in models.split() and not (given.keys() | parameters.keys()) & {*either}:
            raise ShapeshiftError(
                f"the configuration of a {model} needs {' or '.join(either)}: without, its class in"
                " transformers assumes a number of its own"
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
        said = parameters.pop("mrope_interleaved", None)
        order = None if said is None else "interleaved" if said else "blocks"
        known = SECTION_ORDERS.get(model, order or "blocks")
        if order not in (None, known):
            raise ShapeshiftError(
                f"the code of a {model} has section_order={known!r}; remove mrope_interleaved"
            )
        axes = {"sections": parameters.pop("mrope_section"), "section_order": known}
    return {
        "head_dim": head_dim,
        "pairs": _pairs(given, pairs),
        "rope_parameters": _spelled(given, parameters),
        **axes,
    }


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
            raise ShapeshiftError(f"{name} and {other} differ; give one of them")
    inner = [name for name in ("text_config", "thinker_config", "llm_config") if name in given]
    if inner:
        raise ShapeshiftError(f"this is the configuration of several models; give its {inner[0]}")
    if "head_dim" not in given and not {"hidden_size", "num_attention_heads"} <= given.keys():
        raise ShapeshiftError(
            "config must be a configuration of transformers, or its dictionary, with hidden_size"
            f" and num_attention_heads or head_dim, got {type(config).__name__}"
        )
    return given


def _layer_types(given: Mapping[str, Any]) -> list[str] | None:
    """Return the attention type of each layer, or None if all are alike."""
    if "layer_types" in given:
        return list(given["layer_types"])
    layers = range(int(given.get("num_hidden_layers", 0)))
    if isinstance(every := given.get("sliding_window_pattern"), int):
        return [SLIDING if (n + 1) % every else FULL for n in layers]
    if isinstance(every := given.get("global_attn_every_n_layers"), int):
        return [SLIDING if n % every else FULL for n in layers]
    if given.get("model_type") in BY_LAYER:
        raise ShapeshiftError("layers of this model differ; add layer_types to its configuration")
    return None


def _layer_type(given: Mapping[str, Any], layer: int | str | None) -> str | None:
    """Return the type of a layer, and check that it exists and rotates."""
    if layer is None or isinstance(layer, str):
        return layer
    types, model = _layer_types(given), given.get("model_type")
    count = len(types) if types else int(given.get("num_hidden_layers", 0))
    if isinstance(layer, bool) or not isinstance(layer, int) or not 0 <= layer < count:
        raise ShapeshiftError(
            f"layer must be a type of layers or a number below {count}, the num_hidden_layers of"
            f" the configuration, got {layer!r}"
        )
    rotates = given.get("no_rope_layers") or []
    if not rotates and model in ("smollm3", "llama4_text"):
        every = given.get("no_rope_layer_interval", 4)
        rotates = [(n + 1) % every for n in range(layer + 1)]
    is_global = types is not None and types[layer] == FULL
    if (rotates and not rotates[layer]) or (
        is_global and (model == "cohere2" or (model == "exaone4" and given.get("sliding_window")))
    ):
        raise NoPositionsError(f"layer {layer} of this model has no positions; use kind 'none'")
    return types[layer] if types is not None else None


def _of_layer(given: Mapping[str, Any], layer_type: str | None) -> dict[str, Any]:
    """Return the rope parameters of one layer, with those that are written beside them."""
    both = [name for name in ("rope_parameters", "rope_scaling") if given.get(name)]
    if len(both) == 2 and given[both[0]] != given[both[1]]:
        raise ShapeshiftError("rope_parameters and rope_scaling differ; give one of them")
    inner = given[both[0]] if both else {}
    if not isinstance(inner, Mapping):
        raise ShapeshiftError(f"{both[0]} must be names and values, got {inner!r}")
    inner = dict(inner)
    nested = {name: dict(value) for name, value in inner.items() if isinstance(value, Mapping)}
    if nested:
        empty = [name for name, value in inner.items() if value is None]
        if loose := [name for name in inner if name not in nested and name not in empty]:
            raise ShapeshiftError(
                f"rope_parameters has {loose[0]!r} beside those of {' and '.join(nested)}; remove"
                " it"
            )
        types = list(nested)
    else:
        nested = _by_base(given, inner)
        empty, types = [], list(nested)
    if types:
        if layer_type in empty:
            raise NoPositionsError(f"layers of type {layer_type!r} have no rotary positions")
        if layer_type is None or layer_type not in nested:
            raise ShapeshiftError(
                f"the layers of this model differ: {', '.join(types)}; give layer, one of these or"
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
        if name in given and inner.setdefault(name, given[name]) != given[name] and not types:
            raise ShapeshiftError(
                f"{name}={given[name]} of the model differs from {inner[name]} of the rope"
                " parameters; remove the wrong one"
            )
    return inner


def _by_base(given: Mapping[str, Any], inner: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the rope parameters of each type of layers in a configuration of transformers 4, where
    they had different names; empty if all layers are alike."""
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
    every = given.get("head_dim") or given["hidden_size"] // given["num_attention_heads"]
    changes = {int(n): change for n, change in given.get("per_layer_config", {}).items()}
    if not changes:
        return every
    types = given.get("layer_types", ())
    numbers = [n for n, kind in enumerate(types) if layer_type in (None, kind)]
    sizes = {changes.get(n, {}).get("head_dim", every) for n in numbers}
    if len(sizes) != 1:
        raise ShapeshiftError(f"layers of type {layer_type!r} differ in head_dim: {sorted(sizes)}")
    return sizes.pop()


def _pairs(given: Mapping[str, Any], pairs: str | None) -> str:
    model = given.get("model_type")
    known = PAIRS.get(str(model))
    said = given.get("rope_interleave", given.get("rope_interleaved"))
    if said is not None:
        stated = "interleaved" if said else "halves"
        if known not in (None, stated) and model not in INTERLEAVE_IF_SAID:
            raise ShapeshiftError(
                f"the code of a {model} has pairs={known!r}, whatever rope_interleave={said} says;"
                " remove it"
            )
        known = stated
    if pairs is not None and known not in (None, pairs):
        raise ShapeshiftError(f"a {model} has pairs={known!r}, got {pairs!r}; leave pairs out")
    if (found := known or pairs) is None:
        raise ShapeshiftError(
            f"the pairing of model_type {model!r} is not known here; give pairs='halves' (most"
            " models) or 'interleaved' (channels 2m and 2m + 1), as its code rotates"
        )
    return found


def _spelled(given: Mapping[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Return rope parameters with the names of transformers 5, complete by themselves."""
    old, kind = parameters.pop("type", None), parameters.pop("rope_type", None)
    old = "default" if old == "mrope" else old  # of Qwen2-VL, beside its mrope_section
    if old is not None and kind is not None and old != kind:
        raise ShapeshiftError(f"rope_type {kind!r} and type {old!r} differ; give one of them")
    kind = kind or old or "default"
    if kind == "su" or (kind == "yarn" and given.get("model_type") == "phi3"):
        kind = "longrope"
    longest = given.get("max_position_embeddings")
    original = given.get("original_max_position_embeddings")
    if kind in ("dynamic", "yarn", "longrope", "llama3"):
        inner = parameters.get("original_max_position_embeddings")
        if kind == "dynamic":  # which is computed from the former alone
            original = longest
        if None not in (original, inner) and original != inner:
            raise ShapeshiftError(
                f"original_max_position_embeddings={inner} of the rope parameters differs from"
                f" {original} of the model; remove the wrong one"
            )
        original = inner or original or longest
        if original is not None:
            is_whole = isinstance(original, float) and original.is_integer()
            original = int(original) if is_whole else original
            parameters["original_max_position_embeddings"] = original
        if kind in ("yarn", "longrope") and longest is not None and original is not None:
            parameters.setdefault("factor", longest / original)
    return {"rope_type": kind, **parameters}
