"""Position representations for Transformers: position ids × kind × place."""

from .alibi import ALiBi
from .axial import Axial
from .base import Encoding, Representation
from .chain import Chain
from .cope import CoPE
from .deberta import DeBERTa
from .dropin import SHAPE
from .fire import FIRE
from .fox import FoX
from .graph import Graph, use_edges
from .inkling import Inkling
from .kerple import KERPLE
from .learned import Learned
from .path import PaTH
from .placement import Placed, Stack, build_position_ids, check, get, place
from .pope import PoPE
from .position_ids import Abacus, Absolute, Coupled, Packed, Randomized, Shifted
from .registry import KINDS, POSITION_IDS
from .rotary import Rotary
from .scheme import SCHEMES, Part, PositionIds, Scheme
from .shaw import Shaw, Skew
from .sinusoidal import Sinusoidal
from .t5 import T5
from .transformer_xl import TransformerXL
from .tupe import TUPE
from .xpos import XPos

__all__ = [
    "FIRE",
    "KERPLE",
    "KINDS",
    "POSITION_IDS",
    "SCHEMES",
    "SHAPE",
    "T5",
    "TUPE",
    "ALiBi",
    "Abacus",
    "Absolute",
    "Axial",
    "Chain",
    "CoPE",
    "Coupled",
    "DeBERTa",
    "Encoding",
    "FoX",
    "Graph",
    "Inkling",
    "Learned",
    "PaTH",
    "Packed",
    "Part",
    "Placed",
    "PoPE",
    "PositionIds",
    "Randomized",
    "Representation",
    "Rotary",
    "Scheme",
    "Shaw",
    "Shifted",
    "Sinusoidal",
    "Skew",
    "Stack",
    "TransformerXL",
    "XPos",
    "build_position_ids",
    "check",
    "get",
    "place",
    "use_edges",
]
