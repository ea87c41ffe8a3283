"""Shapeshift: position representations for Transformers, a translation testbed, the papers."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._system.after_import import after_import

if TYPE_CHECKING:
    from .interop import shift_positions, unshift, use_position
    from .positions import SHAPE
    from .run.folder import load_run as load_run

__version__ = "0.1.0"
__all__ = [
    "SHAPE",
    "__version__",
    "shift_positions",
    "unshift",
    "use_position",
]

# Loaded on first use: the command line imports this package and must not import torch.
_MODULES = {
    "SHAPE": "shapeshift.positions",
    "load_run": "shapeshift.run.folder",
    "shift_positions": "shapeshift.interop",
    "unshift": "shapeshift.interop",
    "use_position": "shapeshift.interop",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES})


# If transformers is ever imported, its `from_pretrained` opens what `use_position` has changed.
after_import("transformers.modeling_utils", lambda: import_module("shapeshift.interop.reopen"))
