"""Position representations inside other people's models: Hugging Face and torch.nn."""

from .shift import shift_positions, unshift

__all__ = ["shift_positions", "unshift"]
