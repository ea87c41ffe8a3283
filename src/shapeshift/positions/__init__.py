"""Position representations for Transformers: indices × kind × place."""

from .alibi import ALiBi
from .base import Chain, Encoding, Representation
from .by_name import fitted, get
from .dropin import SHAPE
from .edges import Edges
from .graph import Graph, use_edges
from .indices import Absolute, Randomized, Shifted
from .learned import Learned
from .placement import Placed, Stack, build_indices, check, place
from .registry import INDICES, KINDS
from .rotary import Rotary
from .scheme import PRESETS, IndicesChoice, Part, Scheme
from .shaw import Shaw
from .sinusoidal import Sinusoidal
from .skew import Skew
from .t5 import T5
from .tupe import TUPE
from .xpos import XPos

__all__ = [
    "INDICES",
    "KINDS",
    "PRESETS",
    "SHAPE",
    "T5",
    "TUPE",
    "ALiBi",
    "Absolute",
    "Chain",
    "Edges",
    "Encoding",
    "Graph",
    "IndicesChoice",
    "Learned",
    "Part",
    "Placed",
    "Randomized",
    "Representation",
    "Rotary",
    "Scheme",
    "Shaw",
    "Shifted",
    "Sinusoidal",
    "Skew",
    "Stack",
    "XPos",
    "build_indices",
    "check",
    "fitted",
    "get",
    "place",
    "use_edges",
]
