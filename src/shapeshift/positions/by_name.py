"""A position representation by the name of a preset or a kind, for a model of your own."""

from __future__ import annotations

import inspect
from typing import Any

from shapeshift.errors import ShapeshiftError, nearest

from .base import Representation
from .registry import FIXED_BY_MODEL, KINDS, check_options
from .scheme import PRESETS


def get(name: str, **options: Any) -> Representation:
    """Build the position representation that a preset or a kind is about.

        get("rope", head_dim=64)
        get("rpe", num_heads=8, head_dim=64, max_distance=32)

    Args:
        name: of a kind, or of a preset that is one kind in all layers with absolute positions.
        options: arguments of its class, see `shapeshift positions NAME`; a preset's own are the
            defaults.

    Raises:
        ShapeshiftError: there is none of this name; the preset is more than one module; or an
            argument is unknown, missing or out of its range.
    """
    kind, options = _resolve(name, options)
    taken = _sizes_taken(kind)
    given = {key: value for key, value in options.items() if key not in taken}
    check_options(KINDS[kind], given, f"{name!r}")
    missing = [key for key in taken if key not in options and key != "causal"]
    if missing:
        example = ", ".join(f"{key}=64" if key != "num_heads" else "num_heads=8" for key in missing)
        raise ShapeshiftError(
            f"{name!r} needs {' and '.join(missing)} of your model, such as"
            f" get({name!r}, {example})"
        )
    return KINDS[kind].build(**options)


def fitted(name: str, dim: int, num_heads: int) -> Representation:
    """Build a position representation by its name for an attention of this size; see `get`.

    Args:
        name: see `get`.
        dim, num_heads: D and H.
    """
    kind, _ = _resolve(name, {})
    sizes = {"dim": dim, "num_heads": num_heads, "head_dim": dim // num_heads}
    taken = _sizes_taken(kind)
    return get(name, **{key: value for key, value in sizes.items() if key in taken})


def _resolve(name: str, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind and its options."""
    scheme = PRESETS.get(name)
    if scheme is not None and scheme.position_ids.name == "absolute" and len(scheme.parts) < 2:
        if not scheme.parts:
            return "none", options
        [part] = scheme.parts
        if part.layers is None and part.stacks == "both":
            return part.kind, {**part.options, **options}
    if name in KINDS:
        return name, options
    if scheme is None:
        known = {**PRESETS, **KINDS}
        raise ShapeshiftError(f"no preset or kind {name!r}{nearest(name, known)}")
    remedy = "use shapeshift.SHAPE" if name == "shape" else "see shapeshift.positions.place"
    raise ShapeshiftError(
        f"the preset {name!r} is more than one kind in all layers with absolute positions; {remedy}"
    )


def _sizes_taken(kind: str) -> list[str]:
    """Return the arguments of a kind that are sizes of the model, or `causal`."""
    taken = inspect.signature(KINDS[kind].build).parameters
    return [name for name in FIXED_BY_MODEL if name in taken]
