"""What is exported."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from shapeshift.data.subwords import Subwords
from shapeshift.decoding.config import DecodingConfig, GnmtPenalty, LengthPenalty, NoPenalty
from shapeshift.errors import ShapeshiftError, install_extra
from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.position_config import PositionConfig


@dataclass(frozen=True)
class Trained:
    """A trained model, with all that the exporters need to know of it.

    Attributes:
        model: on the CPU, in fp32.
        subword_models: their folder, to be copied; None copies nothing.
        longest: the most subwords of a source and of a target in training, which the check covers.
    """

    model: Transformer
    shape: ModelConfig
    position: PositionConfig
    subwords: Subwords
    subword_models: Path | None = None
    longest: tuple[int, int] = (64, 64)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    weights_sha256: str | None = None


def exponent(penalty: LengthPenalty) -> float:
    """Return the power of a hypothesis's length by which other engines divide its log-probability;
    with `gnmt`, the base is another one."""
    if isinstance(penalty, NoPenalty):
        return 0.0
    return penalty.alpha if isinstance(penalty, GnmtPenalty) else 1.0


def require(extra: str, *modules: str) -> Any:
    """Return the first of some modules that an extra of this package brings.

    Raises:
        ShapeshiftError: one of them is not installed.
    """
    try:
        found = [import_module(name) for name in modules]
    except ImportError as error:
        raise ShapeshiftError(
            f"this needs {error.name}, which is not installed; {install_extra(extra)}"
        ) from error
    return found[0]
