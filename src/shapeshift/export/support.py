"""Which position representations an engine computes exactly, and why it cannot compute the others.

CTranslate2 has four places for positions, for the encoder and the decoder each:

- a table of vectors added to the token embeddings, read only if the first layer's self-attention
  has no positions;
- tables of relative keys and values for clipped distances, shared by the heads (Shaw et al. 2018),
  which hold what any kind's `distance_vectors` says;
- a bias for each head and each range of distances (T5), of which versions before 4.8.3 use the
  first layer's in all layers; it holds what any kind's `distance_bias` says that has `limits`;
- rotation of queries and keys by RoPE's angles, which the engine computes itself; and in the
  decoder a linear bias for all layers (ALiBi).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import cast

from shapeshift._system.errors import ShapeshiftError
from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.attention import Attention
from shapeshift.model.catalogue import cells
from shapeshift.model.meta import without_numbers
from shapeshift.positions import (
    KINDS,
    POSITION_IDS,
    T5,
    Absolute,
    ALiBi,
    Part,
    PaTH,
    Placed,
    Representation,
    Rotary,
    Scheme,
    Shaw,
    Shifted,
    Stack,
    place,
)
from shapeshift.positions.base import AT_ATTENTION
from shapeshift.positions.registry import find_kind

OF_THE_ENGINE = Shaw, T5, ALiBi, Rotary, Representation
"""Kinds at self-attention that CTranslate2 has; others are written as one of them."""

EXACT, REWRITTEN, REFUSED = "exact", "exact after rewriting", "refused"
STACKS = ("encoder", "decoder")


def unsupported(scheme: Scheme, model: ModelConfig) -> str | None:
    """Return why CTranslate2 cannot compute this model exactly and what works instead, None if it
    can."""
    if refused := ids_of_tokens(scheme):
        return f"CTranslate2 does not compute {refused}"
    numbering = scheme.position_ids.name
    has_gaps = POSITION_IDS[numbering].build not in (Absolute, Shifted)
    ids = f"{numbering} position ids" if has_gaps else None
    with without_numbers():
        for name, layers in model.depths.items():
            placed = place(scheme, Stack(name, model.dim, model.num_heads, layers))
            for what, instead in _unsupported(name, placed, ids):
                return f"CTranslate2 does not compute {what}; use {instead}"
    return None


def unsupported_by_onnx(scheme: Scheme) -> str | None:
    """Return why an ONNX program cannot compute a scheme and what works instead, None if it can."""
    for part in scheme.parts:
        if issubclass(find_kind(part.kind).build, PaTH):
            return f"ONNX has no operator for {part.kind}, a triangular system; use fox at self"
    return None


def ids_of_tokens(scheme: Scheme) -> str | None:
    """Return what to say of position ids that depend on the tokens, which no exported model
    computes; None for other position ids."""
    name = scheme.position_ids.name
    if not POSITION_IDS[name].build.reads_tokens:
        return None
    return f"{name} position ids, which depend on the tokens; use absolute position ids"


def refuse_ids_of_tokens(scheme: Scheme) -> None:
    """Raise a `ShapeshiftError` if position ids depend on the tokens."""
    if ids := ids_of_tokens(scheme):
        raise ShapeshiftError(f"this model cannot be exported exactly: it has {ids}")


def support(scheme: Scheme, model: ModelConfig) -> str:
    """Return `exact`, `exact after rewriting`, or `refused: ` with the reason."""
    reason = unsupported(scheme, model)
    if reason is not None:
        return f"{REFUSED}: {reason}"
    is_ntk = any(part.options.get("scaling") == "ntk" for part in scheme.parts)
    at_self = {find_kind(part.kind).build for part in scheme.parts if part.at == "self"}
    return EXACT if at_self <= {*OF_THE_ENGINE} and not is_ntk else REWRITTEN


ENGINES = ("Hugging Face", "ONNX", "CTranslate2")


def table() -> Iterator[tuple[str, ...]]:
    """Yield kind, place, and the support by each of `ENGINES`, for all `rows`, in
    transformer-base."""
    model = ModelConfig(size="base")
    for name, part in rows():
        yield name, part.at, *by_engine(Scheme(parts=(part,)), model).values()


def by_engine(scheme: Scheme, model: ModelConfig) -> dict[str, str]:
    """Return each of `ENGINES` → its support, as of `support`. The first two run our own code, or a
    program that was traced from it."""
    reason = unsupported_by_onnx(scheme)
    onnx = f"{REFUSED}: {reason}" if reason else EXACT
    return dict(zip(ENGINES, (EXACT, onnx, support(scheme, model)), strict=True))


def rows() -> Iterator[tuple[str, Part]]:
    """Yield every kind at every place, also with options that change the support by engines, under
    a name such as `rotary (scaling: linear, factor: 2.0)`."""
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
    """Return the kinds that have an effect in an attention."""
    return [kind for kind in position.kinds() if _hooks(kind)]


def _hooks(kind: Representation) -> list[str]:
    return [hook for hook in AT_ATTENTION if kind.acts(hook)]


def reach(kind: Representation) -> int | None:
    """Return the distance k, in either direction, from which a kind's contribution is constant;
    None if it never is, or depends on more than the distance."""
    hooks = _hooks(kind)
    if not hooks or not all(kind.derives(hook) for hook in hooks):
        return None
    if hooks == ["bias"]:
        return None if kind.limits is None else max(map(abs, kind.limits))
    if {*hooks} <= {"query_bias", "value_bias"}:
        tables = [table for table in kind.distance_vectors() if table is not None]
        ends = [end for x in tables for end in (x.low, x.low + x.vectors.shape[1] - 1)]
        return max(map(abs, ends))
    return None


def has_linear_bias(stack: str, attentions: list[Representation]) -> bool:
    """Return whether the positions of all these attentions are exactly CTranslate2's own ALiBi."""
    return stack == "decoder" and all(type(attention) is ALiBi for attention in attentions)


def self_attentions(model: Transformer, stack: str) -> list[Attention]:
    """Return the self-attention of each layer of a stack."""
    layers = model.encoder if stack == "encoder" else model.decoder
    return [cast(Attention, layer.attention) for layer in layers]


def _unsupported(stack: str, placed: Placed, ids: str | None) -> Iterator[tuple[str, str]]:
    """Yield what CTranslate2 cannot compute in a stack, and what to use instead. It counts
    distances in tokens, so position ids with gaps are refused."""
    for attention in placed.cross_attention:
        yield from ((f"{_name(kind)} at cross", _nearest(kind)) for kind in acting(attention))
    embedded = [_name(kind) for kind in placed.embedding.kinds() if kind.acts("embed")]
    linear_bias = has_linear_bias(stack, placed.self_attention)
    all_kinds = [acting(attention) for attention in placed.self_attention]
    for kinds in all_kinds:
        for kind in kinds:
            name = _name(kind)
            if kind.acts("inputs"):
                yield f"{name} at self, only at embedding", _nearest(kind)
            elif type(kind) is ALiBi and not linear_bias:
                yield f"{name}, except in all layers of the decoder", _nearest(kind)
            elif isinstance(kind, Rotary) and kind.rope_parameters is not None:
                yield f"{name} with rope_parameters", f"{name} with base and fraction"
            elif not _is_native(kind) and reach(kind) is None:
                is_by_distance = _hooks(kind) == ["bias"] and kind.derives("bias")
                yield name + ", which has no limits" * is_by_distance, _nearest(kind)
            elif isinstance(kind, Rotary) and kind.scaling == "yarn":
                yield "YaRN", f"{name} with scaling: linear or ntk"
            elif any(table and table.vectors.shape[0] > 1 for table in kind.distance_vectors()):
                yield f"{name} with a table for each head", f"{name} with per_head: false"
            elif ids is not None:
                yield f"{name} with {ids}", "sinusoidal at embedding, or absolute position ids"
        names = [*embedded[:1], *map(_name, kinds)]
        if kinds and len(names) > 1:
            yield f"{names[0]} together with {names[1]}", "one of them"
    found = list(chain(*all_kinds))
    by_layer = any(kind is not found[0] and [*kind.parameters()] for kind in found)
    if by_layer and found[0].acts("bias") and not _is_native(found[0]):
        name = _name(found[0])
        yield f"{name} with a bias for each layer, before 4.8.3", f"{name} with share_layers: true"


def _is_native(kind: Representation) -> bool:
    """Return whether the engine computes a kind's turns or slopes itself."""
    return (type(kind) is Rotary and kind.derives("rotate")) or (
        type(kind) is ALiBi and kind.derives("bias")
    )


def _name(kind: Representation) -> str:
    names = [name for name, entry in KINDS.items() if entry.build is type(kind)]
    return names[0] if names else type(kind).__name__


def _nearest(kind: Representation) -> str:
    """Return the nearest kind and place that CTranslate2 computes."""
    if kind.acts("inputs"):
        return f"{_name(kind)} at embedding"
    if not kind.shift_invariant:
        return "learned at embedding"
    return "rotary at self" if kind.acts("rotate") else "t5 at self"
