"""Changes to Hugging Face models: our attention through transformers' `AttentionInterface`, and a
mark, so that at most one of our functions changes the positions of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError

Attention = Callable[..., Any]

HANDLES = "_shapeshift_handles"
"""Attribute of a position embedding that `shift_positions` has shifted."""

UNDO = "_shapeshift_undo"
"""Attribute of the base model whose positions `use_position` has replaced."""

RELATIVE = "_shapeshift_reads_keys"
"""Attribute of an attention that `restore_relative_positions` has given its table back."""

BY = {
    UNDO: "use_position; call unshift first",
    RELATIVE: "restore_relative_positions, and it has no others",
    HANDLES: "shift_positions; call unshift first",
}


def refuse_changed(model: nn.Module) -> None:
    """Raise a `ShapeshiftError` if the positions of a model, or of a part of it, are changed."""
    for part in model.modules():
        for mark, function in BY.items():
            if hasattr(part, mark):
                raise ShapeshiftError(
                    f"the positions of this {type(model).__name__} were changed by {function}"
                )


def no_vectors(*args: Any, **kwargs: Any) -> Tensor:
    """A `forward` for position embeddings that returns zeros."""
    device = next(x.device for x in (*args, *kwargs.values()) if isinstance(x, Tensor))
    # A whole number, so that the sum has the dtype of the embeddings.
    return torch.zeros((), dtype=torch.int64, device=device)


Configs = list[tuple[Any, Any]]
"""Configurations that a changed model had, each with the copy that it has instead."""


def use_attention(
    model: nn.Module,
    base: nn.Module,
    attentions: Iterable[nn.Module],
    name: str,
    attention: Attention,
) -> Configs:
    """Let the attentions in `base` call `attention`, registered as `name`.

    Each part of the model with the configuration of `base` or of one of the attentions gets a copy,
    because another model may have it, too. The first pair that is returned is that of `base`.
    """
    register(name, attention)
    configs: Configs = []
    for part in (base, *attentions):
        config: Any = getattr(part, "config", None)
        if config is not None and not any(config is old for old, _ in configs):
            configs.append((config, copy(config)))
            configs[-1][1]._attn_implementation = name
    replace_configs(model, base, configs)
    return configs


def replace_configs(model: nn.Module, base: nn.Module, configs: Configs) -> None:
    """Give each part of a model that is in `base`, or around it, the copy of its configuration,
    also in place of an equal one. A configuration that contains one of them is copied as well, and
    added to `configs`."""
    for part in reversed(related(model, base)):  # the innermost first
        config = part.config
        if any(config is new for _, new in configs):
            continue
        fields = getattr(config, "__dict__", {}).items()
        copies = {name: new for name, value in fields for old, new in configs if value is old}
        if copies and not any(config is old for old, _ in configs):
            configs.append((config, copy(config)))
            for name, new in copies.items():
                setattr(configs[-1][1], name, new)
        part.config = next((new for old, new in configs if _are_equal(config, old)), config)


def related(model: nn.Module, base: nn.Module) -> list[Any]:
    """Return the parts of a model with a configuration that are in `base`, or around it."""
    inside = {*base.modules()}
    parts = (part for part in model.modules() if hasattr(part, "config"))
    return [x for x in parts if x in inside or any(part is base for part in x.modules())]


def _are_equal(config: Any, old: Any) -> bool:
    return config is old or (type(config) is type(old) and vars(config) == vars(old))


def cache_of(arguments: Mapping[str, Any]) -> Any:
    """Return the cache among a model call's arguments, or None; transformers 5.24 renamed it."""
    return arguments.get("cache", arguments.get("past_key_values"))


def require_attention(module: nn.Module, name: str, attention: Attention, undo: str) -> None:
    """Raise a `ShapeshiftError` before a forward pass if another attention was set meanwhile;
    `undo` names the call that restores the model's own positions."""
    config: Any = module.config
    current = config._attn_implementation
    if current != name:
        raise ShapeshiftError(
            f"the attention of this model is {current!r}, which does not compute its positions;"
            f" call model.set_attn_implementation({name!r}), or {undo}"
        )
    register(name, attention)  # the model may come from another process


def register(name: str, attention: Attention) -> None:
    """Make `attention` known to transformers. Its masks are those of PyTorch's attention: boolean,
    or None where a causal mask, or none, is all."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, sdpa_mask)
