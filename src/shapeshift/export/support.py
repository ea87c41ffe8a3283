"""Which position representations an engine computes exactly, and why it cannot compute the others.

CTranslate2 has four places for positions, for the encoder and the decoder each:

- a table of vectors added to the token embeddings, read only if the first layer's self-attention
  has no positions;
- tables of relative keys and values for clipped distances, shared by the heads (Shaw et al. 2018);
- a bias for each head and each range of distances (T5), of which versions before 4.8.3 use the
  first layer's in all layers;
- rotation of queries and keys; and in the decoder a linear bias for all layers (ALiBi).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import torch

from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.attention import Attention
from shapeshift.model.catalogue import cells
from shapeshift.positions import (
    KINDS,
    T5,
    Absolute,
    ALiBi,
    Part,
    Placed,
    Representation,
    Rotary,
    Scheme,
    Shaw,
    Shifted,
    Skew,
    Stack,
    build_position_ids,
    place,
)
from shapeshift.positions.base import AT_ATTENTION

EXACT, REWRITTEN, REFUSED = "exact", "exact after rewriting", "refused"
STACKS = ("encoder", "decoder")


def unsupported(scheme: Scheme, model: ModelConfig) -> str | None:
    """Return why CTranslate2 cannot compute this model exactly and what works instead, None if it
    can."""
    with torch.device("meta"):
        has_gaps = type(build_position_ids(scheme)) not in (Absolute, Shifted)
        gaps = f"{scheme.position_ids.name} positions may have gaps" if has_gaps else None
        for name, layers in zip(STACKS, (model.encoder_layers, model.decoder_layers), strict=True):
            placed = place(scheme, Stack(name, model.dim, model.num_heads, layers))
            if reason := _unsupported(name, placed, gaps):
                return reason
    return None


def support(scheme: Scheme, model: ModelConfig) -> str:
    """Return `exact`, `exact after rewriting`, or `refused: ` with the reason."""
    reason = unsupported(scheme, model)
    if reason is not None:
        return f"{REFUSED}: {reason}"
    is_ntk = any(part.options.get("scaling") == "ntk" for part in scheme.parts)
    return REWRITTEN if is_ntk or any(part.kind == "skew" for part in scheme.parts) else EXACT


ENGINES = ("Hugging Face", "ONNX", "CTranslate2")


def table() -> Iterator[tuple[str, ...]]:
    """Yield kind, place, and what each of `ENGINES` makes of it, for all `rows`, in
    transformer-base. The first two run our own code, or a program that was traced from it."""
    model = ModelConfig(size="base")
    for name, part in rows():
        yield name, part.at, EXACT, EXACT, support(Scheme(parts=(part,)), model)


def rows() -> Iterator[tuple[str, Part]]:
    """Yield every kind at every place, and options that change what engines make of it, with a
    name such as `rotary (scaling: linear, factor: 2.0)`."""
    for cell in cells():
        for part in (cell, *(x for x in VARIANTS if (x.kind, x.place) == (cell.kind, cell.place))):
            options = {**part.options, "share_layers": part.share_layers}
            if part.stacks != cell.stacks:
                options["stacks"] = part.stacks
            given = [
                f"{key}: {value}".lower() for key, value in options.items() if value is not None
            ]
            yield part.kind + (f" ({', '.join(given)})" if given else ""), part


VARIANTS = (
    Part("shaw", "self", options={"per_head": True}),
    Part("skew", "self", options={"per_head": False}),
    Part("t5", "self", share_layers=False),
    Part("alibi", "self", "decoder"),
    Part("rotary", "self", options={"scaling": "linear", "factor": 2.0}),
    Part("rotary", "self", options={"scaling": "ntk", "factor": 2.0}),
    Part("rotary", "self", options={"scaling": "yarn", "factor": 2.0, "original_length": 512}),
)
"""Options worth a row of their own."""


def acting(position: Representation) -> list[Representation]:
    """Return the kinds at an attention that do anything there."""
    return [kind for kind in position.kinds() if any(kind.overrides(hook) for hook in AT_ATTENTION)]


def has_linear_bias(stack: str, attentions: list[Representation]) -> bool:
    """Return whether CTranslate2's own ALiBi computes the positions of all these attentions."""
    return stack == "decoder" and all(type(attention) is ALiBi for attention in attentions)


def self_attentions(model: Transformer, stack: str) -> list[Attention]:
    """Return the self-attention of each layer of a stack."""
    layers = model.encoder if stack == "encoder" else model.decoder
    return [cast(Attention, layer.attention) for layer in layers]


def _unsupported(stack: str, placed: Placed, gaps: str | None) -> str | None:
    crossing = [kind for attention in placed.cross_attention for kind in acting(attention)]
    if crossing:
        return (
            f"{_name(crossing[0])} at cross acts in attention to the source, where CTranslate2 has"
            f" no positions; use {_nearest(crossing[0])}"
        )
    embedded = [kind for kind in placed.embedding.kinds() if kind.overrides("embed")]
    linear_bias = has_linear_bias(stack, placed.self_attention)
    for attention in placed.self_attention:
        kinds = acting(attention)
        if len(kinds) > 1:
            return (
                f"CTranslate2 computes one kind at an attention, got {_name(kinds[0])} and"
                f" {_name(kinds[1])}; leave one of them out"
            )
        if kinds and (reason := _unsupported_kind(kinds[0], gaps, linear_bias)):
            return reason
        if kinds and embedded:
            return (
                "CTranslate2 adds no positions to the embeddings of a stack whose self-attention"
                f" has some; leave out {_name(embedded[0])} at embedding or {_name(kinds[0])} at"
                " self"
            )
    kinds = [kind for attention in placed.self_attention for kind in acting(attention)]
    if type(kinds[0] if kinds else None) is T5 and any(kind is not kinds[0] for kind in kinds):
        return (
            "t5 has a bias for each layer, but CTranslate2 before 4.8.3 uses the first layer's in"
            " all; use t5 with share_layers: true"
        )
    return None


def _unsupported_kind(kind: Representation, gaps: str | None, linear_bias: bool) -> str | None:
    name = _name(kind)
    if kind.overrides("inputs"):
        return (
            f"{name} at self adds positions to the inputs of projections alone, but CTranslate2"
            f" adds them to token embeddings only; use {_nearest(kind)}"
        )
    if isinstance(kind, Rotary) and kind.scaling == "yarn":
        return "CTranslate2 does not compute YaRN; use rotary with scaling: linear or ntk"
    if type(kind) in (Shaw, Skew) and _is_by_head(kind):
        return (
            f"{name} has a table for each head, but CTranslate2 shares one between the heads; use"
            f" {name} with per_head: false"
        )
    if type(kind) is ALiBi and not linear_bias:
        return f"CTranslate2 computes alibi in all layers of the decoder only; use {_nearest(kind)}"
    if type(kind) not in (Shaw, Skew, T5, ALiBi, Rotary):
        return f"CTranslate2 does not compute {name}; use {_nearest(kind)}"
    if gaps is not None:
        return (
            f"{gaps}, but CTranslate2 counts the distances of {name} in tokens; use them with"
            " sinusoidal at embedding, or absolute positions"
        )
    return None


def _is_by_head(kind: Representation) -> bool:
    tables = (getattr(kind, "keys", None), getattr(kind, "values", None))
    return any(table is not None and table.shape[0] > 1 for table in tables)


def _name(kind: Representation) -> str:
    names = [name for name, entry in KINDS.items() if entry.build is type(kind)]
    return names[0] if names else type(kind).__name__


def _nearest(kind: Representation) -> str:
    """Return the nearest kind and place that CTranslate2 computes."""
    if kind.overrides("inputs"):
        return f"{_name(kind)} at embedding"
    if not kind.shift_invariant:
        return "learned at embedding"
    return "rotary at self" if kind.overrides("rotate") else "t5 at self"
