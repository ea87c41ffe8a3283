"""Shapeshift: position representations for Transformers, a translation testbed, the papers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .interop import shift_positions, unshift
    from .positions import SHAPE

__version__ = "0.1.0"
__all__ = ["SHAPE", "__version__", "shift_positions", "unshift"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: the command line imports this package and must not import torch.
    if name == "SHAPE":
        from .positions import SHAPE

        return SHAPE
    if name in ("shift_positions", "unshift"):
        from . import interop

        return getattr(interop, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
