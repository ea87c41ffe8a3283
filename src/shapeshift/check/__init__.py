"""`shapeshift check`: tests of the positions of any model."""

from .declared import Reading, declared
from .suite import PROPERTIES, Finding, check

__all__ = ["PROPERTIES", "Finding", "Reading", "check", "declared"]
