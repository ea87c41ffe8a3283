"""Position representations for Transformers: indices × kind × place."""

from .base import Chain, Encoding, Representation
from .dropin import SHAPE
from .indices import Absolute, Shifted
from .learned import Learned
from .placement import Placed, Stack, build_indices, check, place
from .registry import INDICES, KINDS
from .scheme import PRESETS, IndicesChoice, Part, Scheme
from .shaw import Shaw
from .sinusoidal import Sinusoidal

__all__ = [
    "INDICES",
    "KINDS",
    "PRESETS",
    "SHAPE",
    "Absolute",
    "Chain",
    "Encoding",
    "IndicesChoice",
    "Learned",
    "Part",
    "Placed",
    "Representation",
    "Scheme",
    "Shaw",
    "Shifted",
    "Sinusoidal",
    "Stack",
    "build_indices",
    "check",
    "place",
]
