"""BERT's relative positions, which transformers 5 no longer has.

transformers 4 knew `position_embedding_type="relative_key"` (Shaw et al. 2018, keys alone) and
`"relative_key_query"` (Huang et al. 2020, method 4) in BERT, ELECTRA, RoBERTa and models like them:

    e_ij = (q_i k_j^T + q_i a_ij^T [+ k_j a_ij^T]) / sqrt(E),   a_ij = table[i - j + k]

transformers 5 drops the tables without an error, and adds absolute positions, which these models do
not have.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend
from shapeshift.attention.masks import additive
from shapeshift.positions import Representation, pairs
from shapeshift.positions.relative import distances

from .changed import (
    RELATIVE,
    cache_of,
    no_vectors,
    refuse_changed,
    require_attention,
    use_attention,
)

NAME = "shapeshift_relative_key"
"""Of our attention among those of transformers."""

TABLE = "distance_embedding"
_FILES = ("model.safetensors", "pytorch_model.bin")

Kind = Literal["relative_key", "relative_key_query"]


def restore_relative_positions(
    model: nn.Module,
    checkpoint: Mapping[str, Tensor] | str | Path,
    kind: Kind | None = None,
) -> list[str]:
    """Give a model of transformers 5 the relative positions that its checkpoint has.

        model = AutoModelForMaskedLM.from_pretrained(folder)
        restore_relative_positions(model, folder)

    Each self-attention gets its table back under the old name, `distance_embedding`, so that a
    model which is saved opens in transformers 4, too; call this again after `from_pretrained`. The
    table of absolute positions stays and is not added any more. Attention with a cache works.

    Args:
        model: that `from_pretrained` read from the checkpoint.
        checkpoint: its folder or name on the Hugging Face hub, or its weights by name.
        kind: by default what the model's configuration says (`position_embedding_type`).

    Returns:
        The names of the tables in the model.

    Raises:
        ShapeshiftError: the checkpoint has no such tables, or they do not fit the model; the kind
            is not known; or the model's positions are changed already, also by `shift_positions`.
    """
    refuse_changed(model)
    config: Any = getattr(model, "config", None)
    kind = kind or getattr(config, "position_embedding_type", None)
    if kind not in ("relative_key", "relative_key_query"):
        raise ShapeshiftError(
            f"the model's position_embedding_type is {kind!r}; give kind='relative_key' or"
            " 'relative_key_query', as the checkpoint was trained"
        )
    weights = checkpoint if isinstance(checkpoint, Mapping) else _read(checkpoint)
    tables = {name: x for name, x in weights.items() if name.endswith(f".{TABLE}.weight")}
    attentions: dict[str, Any] = {
        name: part
        for name, part in model.named_modules()
        if type(part).__name__.endswith("SelfAttention") and hasattr(part, "attention_head_size")
    }
    found = {name: _named(tables, f"{name}.{TABLE}.weight") for name in attentions}
    for name, table in found.items() or [("no layer", None)]:
        width = attentions[name].attention_head_size if name in attentions else 0
        if table is None or table.shape[1] != width or len(table) % 2 == 0:
            raise ShapeshiftError(
                f"the checkpoint has {len(tables)} tables called {TABLE}; that of {name} is"
                f" {None if table is None else tuple(table.shape)}, expected an odd number of rows"
                f" of {width}; is this the checkpoint of this {type(model).__name__}?"
            )
    for _, own_config in use_attention(model, model, attentions.values(), NAME, _attention):
        own_config.position_embedding_type = kind
    for name, attention in attentions.items():
        like = attention.query.weight
        weight = found[name].detach().to(like.device, like.dtype).clone()  # type: ignore[union-attr]
        setattr(attention, TABLE, nn.Embedding(len(weight), weight.shape[1], _weight=weight))
        setattr(attention, RELATIVE, kind == "relative_key_query")
        attention.register_forward_pre_hook(_number, with_kwargs=True)
    for name, part in model.named_modules():
        if name.endswith("position_embeddings"):
            part.forward = no_vectors
    return [f"{name}.{TABLE}.weight" for name in attentions]


def _named(tables: Mapping[str, Tensor], name: str) -> Tensor | None:
    """Return a tensor by name, with or without the prefix of a model with a head."""
    fits = [x for key, x in tables.items() if name.endswith(f".{key}") or key.endswith(f".{name}")]
    return tables.get(name, fits[0] if fits else None)


def _read(checkpoint: str | Path) -> dict[str, Tensor]:
    """Return the weights of a checkpoint in a folder or on the hub."""
    from transformers.modeling_utils import load_state_dict
    from transformers.utils.hub import cached_file

    for file in _FILES:
        try:
            path = cached_file(str(checkpoint), file, _raise_exceptions_for_missing_entries=False)
        except OSError as error:
            raise ShapeshiftError(str(error).strip().splitlines()[0], path=checkpoint) from error
        if path is not None:
            loaded: dict[str, Tensor] = load_state_dict(path)
            return loaded
    raise ShapeshiftError(f"has no {' and no '.join(_FILES)}", path=checkpoint)


def _number(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Forward pre-hook of an attention: passes on the positions of its queries."""
    require_attention(module, NAME, _attention, "open the checkpoint again")
    given = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    hidden, cache = given["hidden_states"], cache_of({**given, **given.get("kwargs", {})})
    pos_q = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)  # (1, Q)
    if cache is not None:
        pos_q = pos_q + cache.get_seq_length(module.layer_idx)
    return args, {**kwargs, "pos_q": pos_q}


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    pos_q: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers calls it; returns `(B, Q, H, E)`. Attention to an encoder has no
    table."""
    mask, table = attention_mask, getattr(module, TABLE, None)
    if mask is None and pos_q is not None:  # then nothing masks unused columns
        key, value = (x[:, :, : int(pos_q[0, -1]) + 1] for x in (key, value))
    pos_k = torch.arange(key.shape[2], device=query.device).unsqueeze(0)  # (1, K)
    if table is not None:
        assert pos_q is not None, "`_number` has run"
        k = len(table.weight) // 2
        rows = k - distances(pos_q, pos_k).clamp(-k, k)  # of i - j: (1, Q, K)
        vectors = table.weight.unsqueeze(0) * query.shape[-1] ** -0.5  # (1, 2k + 1, E)
        bias = pairs.query_bias(query, vectors, rows)  # (B, H, Q, K)
        if getattr(module, RELATIVE):
            bias = bias + pairs.query_bias(key, vectors, rows.mT).mT
        mask = bias if mask is None else bias + additive(mask, bias.dtype)
    elif type(module).__name__.endswith("SelfAttention"):
        raise ShapeshiftError(
            "this model was built from the configuration of one with restored relative positions,"
            " but has no tables; call restore_relative_positions with a checkpoint"
        )
    if pos_q is None:  # nothing reads them
        pos_q = torch.arange(query.shape[2], device=query.device).unsqueeze(0)
    causal = attention_mask is None and query.shape[2] > 1 and bool(module.is_causal)
    heads = attend(query, key, value, mask, Representation(), pos_q, pos_k, dropout, causal=causal)
    return heads.transpose(1, 2).contiguous(), None
