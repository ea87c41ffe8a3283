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

BY = {
    UNDO: "use_position; call unshift first",
    RELATIVE: "restore_relative_positions, and it has no others",
    HANDLES: "shift_positions; call unshift with what was given to it first",
}


def refuse_changed(model: nn.Module) -> None:
    """Raise a `ShapeshiftError` if the positions of a model, or of a part of it, are changed."""
    for part in model.modules():
        # A module around this one may have been shifted.
        hooks = (getattr(hook, "__self__", None) for hook in part._forward_hooks.values())
        is_shifted = any(getattr(owner, "shifts", False) for owner in hooks)
        for mark, function in BY.items():
            if hasattr(part, mark) or (mark == HANDLES and is_shifted):
                raise ShapeshiftError(
                    f"the positions of this {type(model).__name__} were changed by {function}"
                )
