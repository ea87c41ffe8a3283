"""Position representations inside other people's models: Hugging Face and torch.nn."""

from .relative_key import restore_relative_positions
from .shaw_checkpoints import shaw_attention
from .shift import shift_positions, unshift
from .swap import use_position

__all__ = [
    "restore_relative_positions",
    "shaw_attention",
    "shift_positions",
    "unshift",
    "use_position",
]
