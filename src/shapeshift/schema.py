"""The base of every configuration model: strict, immutable, unknown keys refused."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Strict(BaseModel):
    """A configuration section: unknown keys are errors, and an instance cannot change after it was
    checked."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Grown(Strict):
    """A section that got more settings after runs had been made with it.

    Those in `LATER` are left out of what is written as long as they have their default: the hashes
    that name runs and prepared data stay what they were.
    """

    LATER: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _leave_out_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        fields = type(self).model_fields
        for name in self.LATER:
            if getattr(self, name) == fields[name].get_default(call_default_factory=True):
                written.pop(name, None)
        return written
