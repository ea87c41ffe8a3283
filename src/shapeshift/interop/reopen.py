"""`from_pretrained` opens a model with the positions that `use_position` has given it.

Imported once transformers is, see `shapeshift.__init__`. A model whose configuration has an entry
of `use_position` is changed at the end of its `__init__`, before weights are read. A model around
it gets its configuration at the end of its own `__init__`, and before it is saved.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import wraps
from typing import Any

import torch
from transformers import PretrainedConfig
from transformers.modeling_utils import PreTrainedModel

from shapeshift._system.errors import ShapeshiftError

from .changed import UNDO, register, replace_configs
from .measure import Layer, Own
from .numbering import NAME, attention
from .swap import ENTRY, install, is_named, track_around

_post_init, _save_pretrained = PreTrainedModel.post_init, PreTrainedModel.save_pretrained


@wraps(_post_init)
def post_init(self: PreTrainedModel) -> None:
    _post_init(self)  # type: ignore[no-untyped-call]
    if _share_configs(self):
        return
    entry = getattr(self.config, ENTRY, None)
    if entry is None:
        return
    try:
        saved = read(self, entry)
    except ShapeshiftError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ShapeshiftError(
            f"the configuration of this {type(self).__name__} has a {ENTRY} that cannot be read"
            f" ({error!r}); save the model again with this version of shapeshift, or remove"
            f" {ENTRY} and attn_implementation from its config.json and call use_position"
        ) from error
    if saved is None:
        return
    # Weights are read into the model on the device meta; those of positions have initial values.
    on_meta = next(self.parameters()).is_meta
    with torch.device("cpu") if on_meta else nullcontext():
        tied = install(self, *saved)
    self.all_tied_weights_keys |= {
        f"shapeshift_positions.{name}": f"shapeshift_positions.{first}"
        for name, first in tied.items()
    }


@wraps(_save_pretrained)
def save_pretrained(self: PreTrainedModel, *args: Any, **kwargs: Any) -> Any:
    if _share_configs(self) and not _has_entry(self.config):
        raise ShapeshiftError(
            f"the configuration of this {type(self).__name__} is not that of its part with a"
            " position of use_position, so that from_pretrained would open it without; let both"
            " have one configuration object before use_position, or save the part"
        )
    return _save_pretrained(self, *args, **kwargs)


def _has_entry(config: Any) -> bool:
    """Return whether a configuration, or one in it, has an entry of `use_position`."""
    inner = (x for x in vars(config).values() if isinstance(x, PretrainedConfig))
    return hasattr(config, ENTRY) or any(map(_has_entry, inner))


def _share_configs(model: PreTrainedModel) -> bool:
    """Give a model around changed ones their configurations and hooks, for it was not seen when
    they were changed; return whether there are any."""
    changed = [part for part in model.modules() if hasattr(part, UNDO)]
    for part in changed:
        replace_configs(model, part, getattr(part, UNDO)["configs"])
    if changed:
        track_around(model)
    return bool(changed)


def read(
    model: PreTrainedModel, entry: dict[str, Any]
) -> tuple[Own, str, dict[str, dict[str, Any]]] | None:
    """Return the arguments of `install` that give a model the positions of an entry of
    `use_position`, if `model` is the base model that it is about. Positions of the user's own have
    no entry to build them from: until `use_position` is called, the model raises an error in
    `forward`."""
    names = {name for name, _ in model.named_modules()}
    missing = entry["layers"].keys() - names
    if entry["position"] is None or (missing and missing == entry["layers"].keys()):
        return None
    if missing:
        raise ShapeshiftError(
            f"use_position has changed {sorted(missing)[0]}, which this {type(model).__name__} does"
            " not have; remove layers before use_position, or call unshift, remove them, and call"
            " it again"
        )
    if not is_named(entry["position"]):
        raise TypeError(f"position {entry['position']!r}")
    if missing := {*entry["tables"], *entry["rotary"]} - names:
        raise KeyError(*missing)
    variants = {name: entry["variants"][n] for name, n in entry["layers"].items()}
    own = Own(model, entry["tables"], entry["rotary"])
    own.layers = [Layer(name, {}, v["causal"], v["holder"]) for name, v in variants.items()]
    settings = {
        name: dict(variant["settings"])
        for name, variant in variants.items()
        if variant["settings"] is not None
    }
    return own, entry["position"], settings


with suppress(ImportError):  # transformers before 4.53 has no AttentionMaskInterface
    register(NAME, attention)
    PreTrainedModel.post_init = post_init  # type: ignore[method-assign]
    PreTrainedModel.save_pretrained = save_pretrained  # type: ignore[method-assign]
