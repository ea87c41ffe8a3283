"""What is exported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shapeshift.data.subwords import Subwords
from shapeshift.model import ModelConfig, Transformer
from shapeshift.model.position_config import PositionConfig


@dataclass(frozen=True)
class Trained:
    """A trained model, with all that the exporters need to know of it.

    Attributes:
        model: on the CPU, in fp32.
        shape, position: that it was built with.
        subwords: its subword models.
        subword_models: their folder, to be copied; None copies nothing.
        longest: the most subwords of a source and of a target in training, which the check covers.
        beam: the width of its search.
        weights_sha256: of the file of its weights; None if there is none.
    """

    model: Transformer
    shape: ModelConfig
    position: PositionConfig
    subwords: Subwords
    subword_models: Path | None = None
    longest: tuple[int, int] = (64, 64)
    beam: int = 4
    weights_sha256: str | None = None
