"""The base of every configuration model: strict, immutable, unknown keys refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A configuration section: unknown keys are errors, and an instance cannot change after it was
    checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
