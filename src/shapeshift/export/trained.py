"""What is exported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from shapeshift.data.subwords import Subwords
from shapeshift.decoding.config import DecodingConfig, GnmtPenalty, LengthPenalty, NoPenalty
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
