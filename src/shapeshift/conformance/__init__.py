"""A conformance suite for positions: what must hold in anybody's model, and whether it does."""

from .adapter import Cache, ModuleSubject, Subject, UnsupportedError
from .suite import PROPERTIES, Finding, check

__all__ = [
    "PROPERTIES",
    "Cache",
    "Finding",
    "ModuleSubject",
    "Subject",
    "UnsupportedError",
    "check",
]
