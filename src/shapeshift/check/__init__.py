"""`shapeshift check`: tests of the positions of any model."""

from .against import Parting, against
from .comparison import Reading
from .context import Extension, context
from .declared import declared
from .engines import Engine, open_engine
from .suite import PROPERTIES, Finding, check

__all__ = [
    "PROPERTIES",
    "Engine",
    "Extension",
    "Finding",
    "Parting",
    "Reading",
    "against",
    "check",
    "context",
    "declared",
    "open_engine",
]
