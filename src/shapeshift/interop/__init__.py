"""Position representations inside other people's models: Hugging Face and torch.nn."""

from .decoder_only import restore_position, use_position
from .shift import shift_positions, unshift

__all__ = ["restore_position", "shift_positions", "unshift", "use_position"]
