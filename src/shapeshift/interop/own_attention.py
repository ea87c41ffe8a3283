"""Attention of ours in a model of Hugging Face, through transformers' `AttentionInterface`."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from torch import nn

from shapeshift.errors import ShapeshiftError

Attention = Callable[..., Any]


def use_attention(model: nn.Module, config: Any, name: str, attention: Attention) -> Any:
    """Let a model call `attention`, registered as `name`; return its new configuration.

    Every part of the model that has such a configuration gets the new one, a copy, because another
    model may have the old one.
    """
    _register(name, attention)
    own_config = copy(config)
    own_config._attn_implementation = name
    parts: list[Any] = [*model.modules()]
    for part in parts:
        if type(getattr(part, "config", None)) is type(config):
            part.config = own_config
    return own_config


def require_attention(module: nn.Module, name: str, attention: Attention, undo: str) -> None:
    """Raise a `ShapeshiftError`, before a forward pass, if another attention than this is set;
    `undo` is how a user goes back to the model's own."""
    config: Any = module.config
    current = config._attn_implementation
    if current != name:
        raise ShapeshiftError(
            f"the attention of this model is {current!r}, which does not compute its positions;"
            f" call model.set_attn_implementation({name!r}), or {undo}"
        )
    _register(name, attention)  # the model may come from another process


def _register(name: str, attention: Attention) -> None:
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, eager_mask)
