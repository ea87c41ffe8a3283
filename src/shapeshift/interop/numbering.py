"""Positions of tokens in a Hugging Face model, and the attention that uses them."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Mapping
from functools import cache
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shapeshift._system.errors import ShapeshiftError
from shapeshift.attention import attend, causal_mask
from shapeshift.attention.backends.reference import softmax
from shapeshift.attention.masks import additive
from shapeshift.attention.recording import record
from shapeshift.positions.base import total_bias

from .changed import cache_of, require_attention

NAME = "shapeshift"
"""Of our attention among those of transformers, and of an attribute of each: the positions of the
model, and the number of this one's among them."""

CAUSAL = "shapeshift_causal"
"""Attribute of an attention: whether it is causal where it gets no mask."""

KEYS = "shapeshift_keys"
"""Argument by which a call hands the positions of its keys, `(B|1, K)`, to its attentions. Those of
the queries are the last ones."""

WEIGHTS = "shapeshift_weights"
"""Argument by which a call asks its attentions for probabilities, which GPT-2 does not pass on."""


def keys_as_ids(module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Forward pre-hook of a layer that passes `position_ids` on to its attention, and no further
    arguments: gives it those of the keys in their place."""
    return args, {**kwargs, "position_ids": kwargs[KEYS]}


class Tracker:
    """Numbers the tokens of a model.

    Key positions belong to one call. The call passes them to its attentions as an argument, and
    keeps them as an additional layer of its cache, so that they move with its rows. The model
    stores none, so several threads may call it.
    """

    numbers = count(1)

    def __init__(self, base: nn.Module) -> None:
        self.number = next(self.numbers)
        # BERT reads those that are not given in a buffer that is as long as its table of positions.
        names = (name.rpartition(".")[2] for name, _ in base.named_buffers())
        self.gives_types = "token_type_ids" in names

    def before(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Forward pre-hook of the base model: adds `position_ids` and `KEYS` to its arguments."""
        require_attention(module, NAME, attention, "undo use_position by unshift(model)")
        signature = inspect.signature(module.forward)
        given = _named(signature, args, kwargs)
        tokens = _tokens(given)
        cache, mask = cache_of(given), given.get("attention_mask")
        start = 0 if cache is None else int(cache.get_seq_length())
        end = start + tokens.shape[1]
        pos = given.pop("position_ids", None)
        if pos is not None and pos.ndim != 2:
            raise ShapeshiftError(
                f"position_ids must be (B, T), one number a token, got {tuple(pos.shape)}; leave"
                " them out, or call unshift"
            )
        if pos is None and isinstance(mask, Tensor) and mask.ndim == 2:
            pos = (mask.long().cumsum(-1) - 1).clamp(min=0)[:, start:end]
        if pos is None:
            pos = torch.arange(start, end, device=tokens.device).unsqueeze(0)
        if "position_ids" in signature.parameters:
            given["position_ids"] = pos
        if self.gives_types and given.get("token_type_ids") is None:
            shape = tokens.shape[:2]
            given["token_type_ids"] = torch.zeros(shape, dtype=torch.long, device=tokens.device)
        given[KEYS] = pos  # (B|1, T)
        if given.get("output_attentions", getattr(module.config, "output_attentions", False)):
            given[WEIGHTS] = True
        if start:
            layer = _layer_of(cache)
            if layer is None or layer.number != self.number or layer.get_seq_length() != start:
                raise ShapeshiftError(
                    "this cache was filled with other positions, before use_position was called;"
                    " start with an empty one"
                )
            layer.in_use = True
            earlier = layer.keys[:, 0, :, 0]  # (B, start)
            given[KEYS] = torch.cat((earlier, pos.expand(len(earlier), -1)), dim=1)
        return (), given

    def before_around(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Forward pre-hook of a model around the base model, as it may make the masks (Gemma 3):
        marks a cache of this tracker as in use."""
        cache = cache_of(_named(inspect.signature(module.forward), args, kwargs))
        layer = None if cache is None else _layer_of(cache)
        if layer is not None and layer.number == self.number:
            layer.in_use = True

    def after(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        """Forward hook: stores the key positions in the cache for the next call."""
        cache = cache_of(kwargs)
        if cache is None:
            values = output if isinstance(output, tuple) else vars(output).values()
            cache = next((value for value in values if hasattr(value, "get_seq_length")), None)
        if cache is None or int(cache.get_seq_length()) != kwargs[KEYS].shape[1]:
            return  # the call has put no keys there
        layer = _layer_of(cache)
        if layer is None:
            cache.layers.append(layer := _positions_layer()())
        keys = kwargs[KEYS].expand(len(_tokens(kwargs)), -1)[:, None, :, None]
        layer.keys, layer.values, layer.is_initialized = keys, keys[..., :0], True
        layer.number, layer.in_use, layer.cache = self.number, False, weakref.ref(cache)


def _named(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by their names."""
    given = signature.bind_partial(*args, **kwargs).arguments
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
    return given


def _tokens(arguments: dict[str, Any]) -> Tensor:
    """Return the ids `(B, T)`, or embeddings `(B, T, D)`, that a model is called with."""
    ids: Tensor | None = arguments.get("input_ids")
    return arguments["inputs_embeds"] if ids is None else ids


def _layer_of(cache: Any) -> Any:
    """Return the cache layer that holds the positions of the keys, or None."""
    return next((layer for layer in cache.layers if hasattr(layer, "number")), None)


@cache
def _positions_layer() -> Any:
    """Return the class of the cache layer that holds the positions of the keys, `(B, 1, K, 1)`.
    When transformers makes a mask, the class refuses a model whose keys do not match these
    positions."""
    from transformers.cache_utils import DynamicLayer

    class Positions(DynamicLayer):  # type: ignore[no-untyped-call]
        number = 0  # of the `Tracker` that has filled the cache
        in_use = False  # by a forward pass with that tracker
        cache: Any  # a weak reference: a cycle would keep the cache until it is collected

        def reset(self) -> None:
            layers: Any = getattr(self.cache(), "layers", [])
            if any(layer is self for layer in layers):  # else a copy, which is refused elsewhere
                layers.remove(self)  # any model may fill it

        @property
        def is_sliding(self) -> bool:  # type: ignore[override]
            if self.get_seq_length() and not self.in_use:
                raise ShapeshiftError(
                    "this cache was filled by a model after use_position, and this model has its"
                    " own positions; start with an empty one"
                )
            return False

    return Positions


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    shapeshift_keys: Tensor | None = None,
    position_ids: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    shapeshift_weights: bool = False,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as transformers calls it; returns `(B, Q, H, E)`, and the probabilities
    `(B, H, Q, K)` after dropout if they are asked for.

    Args:
        softcap: scores s become softcap · tanh(s / softcap) before a bias and the mask (Gemma Team
            2024, section 2), or None.
        s_aux: of each head `(H,)`, a further score whose probability no value gets (GPT-OSS).
    """
    placed: Any = vars(module).get(NAME)
    if placed is None:
        raise ShapeshiftError(
            "this attention has the configuration of one with a position of shapeshift, but no"
            " position; call use_position (after unshift, if a layer was replaced), or"
            " model.set_attn_implementation('sdpa') for the model's own positions"
        )
    if not isinstance(placed, tuple):  # a `recorder.Run`
        given = {**kwargs, "softcap": softcap, "s_aux": s_aux, KEYS: shapeshift_keys}
        given["position_ids"] = position_ids
        recorded: tuple[Tensor, None] = placed.attend(
            module, query, key, value, attention_mask, given
        )
        return recorded
    keys = position_ids if shapeshift_keys is None else shapeshift_keys  # see `keys_as_ids`
    assert keys is not None, "`use_position` has tried that they arrive"
    position = placed[0][placed[1]]
    if hasattr(position, "modules_to_save") and not position.disable_adapters:  # of PEFT
        position = position.modules_to_save[position.active_adapters[0]]
    pos_q = keys[:, -query.shape[2] :]
    # A window of a cache has the last keys alone; a static one has unused columns, masked.
    num_keys, num_known = key.shape[2], keys.shape[1]
    pos_k = F.pad(keys[:, -num_keys:], (0, max(0, num_keys - num_known)))
    if attention_mask is None:  # then nothing masks the unused columns of a static cache
        key, value, pos_k = key[:, :, :num_known], value[:, :, :num_known], pos_k[:, :num_known]
    causal = attention_mask is None and query.shape[2] > 1 and getattr(module, CAUSAL)
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) if groups > 1 else x for x in (key, value))
    width = query.shape[-1]
    query, key = position("rotate", query, key, pos_q, pos_k)
    if scaling is not None:  # what follows, or the kind if it changes the width, divides by sqrt(E)
        query = query * (scaling * width**0.5)
    at = pos_q, pos_k
    wanted = shapeshift_weights or kwargs.get("output_attentions")
    if softcap is None and s_aux is None and key.shape == value.shape and not wanted:
        heads = attend(query, key, value, attention_mask, position, *at, dropout, causal=causal)
        return heads.transpose(1, 2).contiguous(), None
    query = query * query.shape[-1] ** -0.5
    scores = query @ key.mT  # (B, H, Q, K)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if causal:
        num_queries, num_keys = scores.shape[2:]
        attention_mask = causal_mask(num_queries, num_keys, scores.dtype, scores.device)
    for added in (total_bias(position, query, *at), attention_mask):
        scores = scores if added is None else scores + additive(added, scores.dtype)
    scores = position("score", scores, query, key, None, *at)
    if s_aux is not None:
        sink = s_aux.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat((scores, sink), dim=-1)
    probs = F.dropout(softmax(scores)[..., : key.shape[2]], dropout)
    record(probs)
    heads = probs @ value
    mixed = position("value_bias", probs, *at)
    heads = heads if mixed is None else heads + mixed
    return heads.transpose(1, 2).contiguous(), probs if wanted else None
