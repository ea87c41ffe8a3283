"""Which of our functions has changed the positions of a model; at most one may."""

from __future__ import annotations

from torch import nn

from shapeshift.errors import ShapeshiftError

HANDLES = "_shapeshift_handles"
"""Attribute of what `shift_positions` was called with."""

UNDO = "_shapeshift_undo"
"""Attribute of the base model whose positions `use_position` has replaced."""

RELATIVE = "_shapeshift_reads_keys"
"""Attribute of an attention that `restore_relative_positions` has given its table back."""


def refuse_changed(model: nn.Module) -> None:
    """Raise a `ShapeshiftError` if the positions of a model, or of a part of it, are changed."""
    name = type(model).__name__
    for part in model.modules():
        if hasattr(part, UNDO):
            raise ShapeshiftError(
                f"use_position has replaced the positions of this {name} already; call unshift"
                " first"
            )
        if hasattr(part, RELATIVE):
            raise ShapeshiftError(
                f"this {name} has relative positions and no others (restore_relative_positions),"
                " which cannot be shifted or replaced"
            )
        if hasattr(part, HANDLES) or _is_shifted(part):
            raise ShapeshiftError(
                f"the positions of this {name} are shifted already; unshift it first (the module"
                " that was given to shift_positions)"
            )


def _is_shifted(module: nn.Module) -> bool:
    """Return whether a module around this one has been shifted."""
    hooks = module._forward_hooks.values()
    return any(getattr(getattr(hook, "__self__", None), "shifts", False) for hook in hooks)
