"""When a representation may look at the numbers of its positions."""

from __future__ import annotations

import torch
from torch import Tensor


def can_read(pos: Tensor) -> bool:
    """Return whether the numbers in `pos` are there to be read at no cost.

    On a GPU the host would wait for the device, in every call; in a graph that `torch.compile` or
    `torch.export` captures, and on the meta device, there are no numbers yet.
    """
    return pos.device.type not in ("cuda", "meta") and not torch.compiler.is_compiling()
