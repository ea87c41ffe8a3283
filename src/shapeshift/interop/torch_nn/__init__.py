"""torch.nn's attention and Transformer layers with a position representation.

Constructors, calls and the names of the weights are those of torch.nn, so a state dict of the
original loads, and without a position the results are the original's.
"""

from .attention import MultiheadAttention
from .layers import TransformerDecoderLayer, TransformerEncoderLayer

__all__ = [
    "MultiheadAttention",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
]
