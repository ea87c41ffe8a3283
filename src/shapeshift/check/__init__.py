"""`shapeshift check`: tests of the positions of any model."""

from .suite import PROPERTIES, Finding, check

__all__ = ["PROPERTIES", "Finding", "check"]
