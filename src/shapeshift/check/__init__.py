"""`shapeshift check`: tests of the positions of any model."""

from .against import Parting, against
from .context import Extension, context
from .declared import Reading, declared
from .suite import PROPERTIES, Finding, check

__all__ = [
    "PROPERTIES",
    "Extension",
    "Finding",
    "Parting",
    "Reading",
    "against",
    "check",
    "context",
    "declared",
]
