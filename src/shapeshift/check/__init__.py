"""`shapeshift check`: tests of the positions of any model."""

from .against import Parting, against
from .declared import Reading, declared
from .suite import PROPERTIES, Finding, check

__all__ = ["PROPERTIES", "Finding", "Parting", "Reading", "against", "check", "declared"]
