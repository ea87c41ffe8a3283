"""The base of every configuration model: strict, immutable, unknown keys refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A configuration section. Unknown keys are errors, values are never coerced silently to
    another meaning, and an instance cannot change after it was checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
