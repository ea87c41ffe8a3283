"""The encoder-decoder Transformer, which knows positions only through their hooks."""

from .build import build
from .config import SIZES, ModelConfig
from .inference import copy_for_inference
from .layers import Memory
from .loss import Loss, label_smoothed_loss
from .transformer import DecoderState, Transformer

__all__ = [
    "SIZES",
    "DecoderState",
    "Loss",
    "Memory",
    "ModelConfig",
    "Transformer",
    "build",
    "copy_for_inference",
    "label_smoothed_loss",
]
