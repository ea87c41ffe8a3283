"""A conformance suite for positions: what must hold in anybody's model, and whether it does."""

from .suite import PROPERTIES, Finding, check

__all__ = ["PROPERTIES", "Finding", "check"]
