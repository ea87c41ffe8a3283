"""How pairs of channels of queries and keys rotate, and the rotation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from shapeshift import kernels


class Turn(NamedTuple):
    """Pairs (a, b) of channels of each token that become (a cos - b sin, a sin + b cos)."""

    cos: Tensor
    """`(B|1, T, r/2)`."""
    sin: Tensor
    halves: bool
    """Whether a pair are channels m and m + r/2, in place of 2m and 2m + 1."""
    scale: float = 1.0
    """All channels are multiplied by it, those that do not rotate, too."""
    decay: Tensor | None = None
    """`(B|1, T, r/2)`: pairs of queries are multiplied by it, those of keys divided."""

    def of_queries(self) -> Turn:
        """Return the turn of queries: `cos` and `sin` with scale and decay, and no `decay`."""
        return self._multiplied(self.decay)

    def of_keys(self) -> Turn:
        """Return the turn of keys; see `of_queries`."""
        return self._multiplied(None if self.decay is None else 1 / self.decay)

    def _multiplied(self, decay: Tensor | None) -> Turn:
        if decay is None and self.scale == 1:
            return self
        factor = self.scale if decay is None else decay * self.scale
        return self._replace(cos=self.cos * factor, sin=self.sin * factor, decay=None)


def rotate(x: Tensor, turn: Turn) -> Tensor:
    """Rotate r channels of `x (B, H, T, E)` in at least float32. Multiply the others by
    `turn.scale`, which cos and sin already include."""
    if kernels.serves_on_gpu(x) and not (turn.cos.requires_grad or turn.sin.requires_grad):
        from shapeshift.kernels import gpu

        return gpu.rotate(x, turn, in_steps)
    return in_steps(x, turn)


def in_steps(x: Tensor, turn: Turn) -> Tensor:
    """As `rotate`, in steps of PyTorch."""
    width, dtype = 2 * turn.cos.shape[-1], torch.promote_types(x.dtype, torch.float32)
    cos, sin = (y.to(dtype).unsqueeze(1) for y in turn[:2])  # (B|1, 1, T, r/2)
    wide = x[..., :width].to(dtype, memory_format=torch.contiguous_format)
    if turn.halves:
        a, b = wide.chunk(2, dim=-1)  # (B, H, T, r/2)
        turned = torch.cat((a * cos - b * sin, a * sin + b * cos), dim=-1)
    elif kernels.is_traced():  # compilers lack complex numbers, which are faster here
        a, b = wide[..., ::2], wide[..., 1::2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)
    else:
        # A complex number is two neighbours in memory, the first at an even place.
        *strides, last = wide.stride()
        if last != 1 or any(n % 2 for n in (wide.storage_offset(), *strides)):
            wide = wide.clone(memory_format=torch.contiguous_format)
        numbers = torch.view_as_complex(wide.view(*wide.shape[:-1], width // 2, 2))
        turned = torch.view_as_real(numbers * torch.complex(cos, sin)).flatten(-2)
    turned = turned.to(x.dtype)
    if width == x.shape[-1]:
        return turned
    return torch.cat((turned, x[..., width:] * turn.scale), dim=-1)
