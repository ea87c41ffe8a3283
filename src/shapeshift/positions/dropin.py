"""Absolute and shifted absolute positions for anybody's model, in one line."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .indices import Absolute, Shifted
from .sinusoidal import Channels, Sinusoidal


class SHAPE(nn.Module):
    """Add shifted absolute positions to embeddings (Kiyono et al. 2021).

        self.position = SHAPE(dim)          # in __init__
        x = self.position(self.embed(ids))  # in forward: (B, T, D) -> (B, T, D)

    While training, every sequence of every call gets its own offset k ~ U{0, …, K}; in evaluation
    k = 0, and the module is plain sinusoidal APE. Any length works.

    Args:
        dim: D.
        max_offset: K; 0 gives APE.
        channels: order of the channels, see `Sinusoidal`.
        seed: of the offsets' own generator. None takes one from torch's CPU generator, now: each
            module of a model (encoder and decoder: the paper draws source and target apart) and
            each process of torch.distributed draws its own, and `torch.manual_seed` before the
            model is built makes them reproducible. With a number, modules and processes that have
            the same one draw alike.

    Raises:
        ShapeshiftError: if K is not a whole number, or negative; if D is odd or smaller than 4.
    """

    def __init__(
        self,
        dim: int,
        max_offset: int = 500,
        *,
        channels: Channels = "interleaved",
        seed: int | None = None,
    ):
        super().__init__()
        self.indices: Absolute = Shifted(
            max_offset, seed=_fresh_seed() if seed is None else seed, by_rank=seed is None
        )
        self.encoding = Sinusoidal(dim, channels=channels)

    def forward(self, x: Tensor, *, offset: int | Tensor | None = None, start: int = 0) -> Tensor:
        """Return `x (B, T, D)` plus its positions.

        Args:
            x: batch-first embeddings, sequences aligned left.
            offset: k for all, or `(B,)`; None draws while training and is 0 otherwise.
            start: tokens before these, for incremental decoding.
        """
        pos = self.indices(x.shape[0], x.shape[1], start=start, offset=offset, device=x.device)
        return self.encoding.embed(x, pos)


def _fresh_seed() -> int:
    return int(torch.randint(2**62, (), dtype=torch.int64, device="cpu"))
