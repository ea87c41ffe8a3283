"""Names that `model/attention.py` still imports."""

from torch import Tensor, nn
from torch.nn.functional import linear

__all__ = ["apply_linear", "linear"]


def apply_linear(module: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = module(x)
    return out
