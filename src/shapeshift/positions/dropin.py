"""Absolute and shifted absolute positions for any model, in one line."""

from __future__ import annotations

from torch import Tensor, nn

from shapeshift._system.errors import ShapeshiftError

from .checks import describe
from .position_ids import Absolute, Shifted
from .sinusoidal import Channels, Sinusoidal


class SHAPE(nn.Module):
    """Add shifted absolute positions to embeddings (Kiyono et al. 2021).

        self.position = SHAPE(dim=dim)      # in __init__
        x = self.position(self.embed(ids))  # in forward: (B, T, D) -> (B, T, D)

    In training, every sequence of every call gets its own offset k ~ U{0, …, K}, drawn from
    PyTorch's generator: `torch.manual_seed` makes the offsets reproducible, gradient checkpointing
    repeats them, and the processes of torch.distributed draw different ones for any seeds. In
    evaluation k = 0, and the module is plain sinusoidal APE. Any length works.

    Args:
        dim: D.
        max_offset: K; 0 gives APE.
        channels: order of the channels, see `Sinusoidal`.

    Raises:
        ShapeshiftError: if K is not a whole number, or negative; if D is odd or smaller than 4.
    """

    def __init__(self, *, dim: int, max_offset: int = 500, channels: Channels = "interleaved"):
        super().__init__()
        self.position_ids: Absolute = Shifted(max_offset=max_offset)
        self.encoding = Sinusoidal(dim=dim, channels=channels)

    def forward(self, x: Tensor, *, offset: int | Tensor | None = None, start: int = 0) -> Tensor:
        """Return `x (B, T, D)` plus its positions.

        Args:
            x: batch-first embeddings, sequences aligned left.
            offset: k ≥ 0: a number, or an integer tensor `()`, `(1,)` or `(B,)`. With None, k is
                drawn in training and is 0 in evaluation.
            start: number of tokens before these, for incremental decoding.

        Raises:
            ShapeshiftError: if `x` is not floating point `(B, T, D)`, or for an offset or a start
                of another type, shape or sign.
        """
        if not x.is_floating_point() or x.ndim != 3 or x.shape[2] != self.encoding.dim:
            raise ShapeshiftError(
                "SHAPE adds positions to embeddings, floating point of shape (B, T,"
                f" {self.encoding.dim}), got {describe(x)}; call it with what the token embedding"
                " returns"
            )
        pos = self.position_ids(x.shape[0], x.shape[1], start=start, offset=offset, device=x.device)
        embedded: Tensor = self.encoding("embed", x, pos)
        return embedded
