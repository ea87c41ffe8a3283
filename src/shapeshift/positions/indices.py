"""Which position number a token gets: absolute, or shifted by a random offset (SHAPE)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError


class Absolute(nn.Module):
    """Positions 0, 1, 2, …: the same for every sequence."""

    def seed(self, seed: int) -> None:
        """Make the draws that follow depend on `seed` alone. Nothing is drawn here."""

    def forward(
        self,
        num_sequences: int,
        length: int,
        *,
        start: int = 0,
        offset: int | Tensor | None = None,
        device: torch.device | None = None,
    ) -> Tensor:
        """Return the positions of tokens `start … start + length − 1` of each sequence.

        Args:
            num_sequences: B.
            length: T, the number of tokens.
            start: number of tokens before these (incremental decoding).
            offset: added to all positions: one number, or one for each sequence `(B,)`. None lets
                the module choose: a draw while training, what the paper uses at inference.
            device: where the result lives.

        Returns:
            `(1, T)` if all sequences share their positions, else `(B, T)`; int64.
        """
        pos = torch.arange(start, start + length, device=device).unsqueeze(0)  # (1, T)
        if offset is None:
            offset = self.choose_offset(num_sequences)
        if isinstance(offset, Tensor):
            pos = pos + offset.to(pos.device).unsqueeze(1)  # (B, T)
        elif offset:
            pos = pos + offset
        return pos

    def choose_offset(self, num_sequences: int) -> int | Tensor:
        """Return the offset used where the caller gives none."""
        return 0


class Shifted(Absolute):
    """SHAPE: PE(i) becomes PE(i + k) with k ~ U{0, …, K} (Kiyono et al. 2021, section 2.3).

    One k for each sequence and each call while training; k = 0 otherwise. The draws come from a
    generator of the module's own, so they neither disturb nor depend on dropout.

    Args:
        max_offset: K, included.
        authors: draw and decode as the released code does, which differs from the paper: U{0, …,
            K − 1} while training and k = K at inference.
        seed: of the generator.

    Raises:
        ShapeshiftError: if K is negative (or zero in `authors` mode, which leaves nothing to draw).
    """

    def __init__(self, max_offset: int = 500, *, authors: bool = False, seed: int = 0):
        super().__init__()
        smallest = 1 if authors else 0
        if max_offset < smallest:
            raise ShapeshiftError(f"max_offset must be at least {smallest}, got {max_offset}")
        self.max_offset = max_offset
        self.authors = authors
        self._generator = torch.Generator().manual_seed(seed)

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def choose_offset(self, num_sequences: int) -> int | Tensor:
        if not self.training:
            return self.max_offset if self.authors else 0
        upper = self.max_offset if self.authors else self.max_offset + 1
        return torch.randint(upper, (num_sequences,), generator=self._generator)

    def extra_repr(self) -> str:
        return f"max_offset={self.max_offset}" + (", authors=True" if self.authors else "")
