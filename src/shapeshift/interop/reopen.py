"""`from_pretrained` opens a model with the positions that `use_position` has given it.

Imported once transformers is, see `shapeshift.__init__`. A model whose configuration has an entry
of `use_position` is changed at the end of its `__init__`, before weights are read.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from functools import wraps
from typing import Any

import torch
from transformers.modeling_utils import PreTrainedModel

from shapeshift._system.errors import ShapeshiftError

from .changed import UNDO, register
from .measure import Layer, Own
from .numbering import NAME, attention
from .swap import ENTRY, install, is_named

_post_init = PreTrainedModel.post_init


@wraps(_post_init)
def post_init(self: PreTrainedModel) -> None:
    _post_init(self)  # type: ignore[no-untyped-call]
    entry = getattr(self.config, ENTRY, None)
    if entry is None or any(hasattr(part, UNDO) for part in self.modules()):
        return
    try:
        reopen(self, entry)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ShapeshiftError(
            f"the configuration of this {type(self).__name__} has a {ENTRY} that cannot be read"
            f" ({error!r}); save the model again with this version of shapeshift, or remove"
            f" {ENTRY} and attn_implementation from its config.json and call use_position"
        ) from error


def reopen(model: PreTrainedModel, entry: dict[str, Any]) -> None:
    """Give a model the positions of an entry that `use_position` has written, if `model` is the
    base model that it is about. Positions of the user's own have no entry to build them from:
    until `use_position` is called, the model raises an error in `forward`."""
    names = {name for name, _ in model.named_modules()}
    if entry["position"] is None or not names >= entry["layers"].keys():
        return
    if not is_named(entry["position"]):
        raise TypeError(f"position {entry['position']!r}")
    variants = {name: entry["variants"][n] for name, n in entry["layers"].items()}
    own = Own(model, entry["tables"], entry["rotary"])
    own.layers = [Layer(name, {}, v["causal"], v["holder"]) for name, v in variants.items()]
    settings = {
        name: variant["settings"]
        for name, variant in variants.items()
        if variant["settings"] is not None
    }
    # Weights are read into the model on the device meta; ours have numbers before, too.
    on_meta = next(model.parameters()).is_meta
    with torch.device("cpu") if on_meta else nullcontext():
        install(model, own, entry["position"], settings)


with suppress(ImportError):  # transformers before 4.53 has no AttentionMaskInterface
    register(NAME, attention)
    PreTrainedModel.post_init = post_init  # type: ignore[method-assign]
