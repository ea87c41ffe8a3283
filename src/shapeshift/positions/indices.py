"""Which position number a token gets: absolute, shifted by a random offset (SHAPE), randomized."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shapeshift.errors import ShapeshiftError

from . import draws, recompute
from .checks import whole_number


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
        return _shift(pos, self.choose_offset(num_sequences) if offset is None else offset)

    def choose_offset(self, num_sequences: int) -> int | Tensor:
        """Return the offset used where the caller gives none."""
        return 0


class Shifted(Absolute):
    """SHAPE: PE(i) becomes PE(i + k) with k ~ U{0, …, K} (Kiyono et al. 2021, section 2.3).

    One k for each sequence and each call while training, compiled or not; k = 0 otherwise. The
    draws come from a generator of the module's own, so they do not depend on dropout. Nor do they
    disturb it, but for one case: a call that gradient checkpointing may repeat, or under
    `torch.no_grad` or hooks of saved tensors, takes one number of torch's CPU generator, and the
    repetition finds the same offsets by it (see `recompute`).

    Args:
        max_offset: K, included.
        authors: draw and decode as the released code does, which differs from the paper: U{0, …,
            K − 1} while training and k = K at inference.
        seed: of the generator.
        by_rank: each process of torch.distributed draws its own; else all draw alike.

    Raises:
        ShapeshiftError: if K is not a whole number, or negative (or zero in `authors` mode, which
            leaves nothing to draw); in training, if gradient checkpointing repeats a call and does
            not restore torch's generator.
    """

    def __init__(
        self,
        max_offset: int = 500,
        *,
        authors: bool = False,
        seed: int = 0,
        by_rank: bool = False,
    ):
        super().__init__()
        what = "max_offset with authors=True" if authors else "max_offset"
        self.max_offset = whole_number(what, max_offset, 1 if authors else 0)
        self.authors = authors
        self.by_rank = by_rank
        self._generator = draws.seeded(seed)

    def seed(self, seed: int) -> None:
        self._generator.copy_(draws.seeded(seed))

    def choose_offset(self, num_sequences: int) -> int | Tensor:
        if not self.training:
            return self.max_offset if self.authors else 0
        upper = self.max_offset if self.authors else self.max_offset + 1
        return recompute.integers(
            self._generator, upper, num_sequences, by_rank=self.by_rank
        )  # (B,)

    def extra_repr(self) -> str:
        return f"max_offset={self.max_offset}" + (", authors=True" if self.authors else "")


class Randomized(Absolute):
    """Positions with gaps: T numbers drawn from 0 … L − 1 without replacement, in order (Ruoss et
    al. 2023, section 3). A model that is trained so has met all numbers and many distances of
    sequences of up to L tokens, however short its own were.

    While training, each sequence of each call draws its own, from a generator of the module's own,
    as `Shifted` does (gradient checkpointing included). T is the length of the padded batch: where
    lengths differ, sentences shorter than the longest have the lower ones of its T numbers.

    Differs from the paper at inference, where it draws again for the whole sequence. That needs T
    beforehand, which a decoder that writes token by token has not, and neighbours in a batch
    would change each other's numbers. Here `max_length` numbers stand for all sequences and calls,
    and token t has the t-th of them. (The released code draws once for a batch in training, too.)

    Args:
        max_position: L; 2048 in the paper.
        max_length: of sequences at inference, from 1 to L (500 in the paper). The fewer, the
            nearer the gaps are to those of short sentences in training.
        sample_at_inference: the numbers at inference are drawn, depending on `seed` alone; else
            they are spread evenly, floor(t · L / max_length).
        seed: of the generator.

    Raises:
        ShapeshiftError: if L is no whole number, or `max_length` none from 1 to L; in `forward`, if
            a sequence has more than L tokens while training, or than `max_length` otherwise.
    """

    def __init__(
        self,
        max_position: int = 2048,
        *,
        max_length: int = 500,
        sample_at_inference: bool = False,
        seed: int = 0,
    ):
        super().__init__()
        self.max_position = whole_number("max_position", max_position, 1)
        self.max_length = whole_number("max_length", max_length, 1)
        if max_length > max_position:
            raise ShapeshiftError(
                f"max_length must lie between 1 and max_position={max_position}, got {max_length}"
            )
        self.sample_at_inference = sample_at_inference
        self._generator = draws.seeded(seed)
        self._fixed: Tensor  # (1, max_length), of inference
        self.register_buffer("_fixed", self._choose_fixed(seed), persistent=False)

    def seed(self, seed: int) -> None:
        self._generator.copy_(draws.seeded(seed))
        if self.sample_at_inference:
            self._fixed.copy_(self._choose_fixed(seed))

    def _choose_fixed(self, seed: int) -> Tensor:
        if self.sample_at_inference:
            keys: Tensor = draws.uniform(draws.seeded(seed), 1, self.max_position)
            return _subsets(keys, self.max_length)
        evenly = torch.arange(self.max_length, device="cpu").unsqueeze(0)
        return evenly * self.max_position // self.max_length

    def forward(
        self,
        num_sequences: int,
        length: int,
        *,
        start: int = 0,
        offset: int | Tensor | None = None,
        device: torch.device | None = None,
    ) -> Tensor:
        """As `Absolute.forward`. With an offset given, or in evaluation, nothing is drawn and it
        shifts the numbers of inference."""
        end = start + length
        drawn = self.training and offset is None
        self._check(end, "max_position" if drawn else "max_length")
        if drawn:
            keys = recompute.uniform(self._generator, num_sequences, self.max_position)
            pos = _subsets(keys, end)  # (B, T)
        else:
            pos = self._fixed
        return _shift(pos[:, start:end].to(device=device), 0 if offset is None else offset)

    def _check(self, length: int, name: str) -> None:
        limit = getattr(self, name)
        if length > limit:
            raise ShapeshiftError(
                f"randomized positions have {name}={limit} numbers for a sequence, got one of"
                f" {length} tokens; give a larger {name} or shorter sequences"
            )

    def extra_repr(self) -> str:
        sampled = ", sample_at_inference=True" if self.sample_at_inference else ""
        return f"max_position={self.max_position}, max_length={self.max_length}{sampled}"


def _shift(pos: Tensor, offset: int | Tensor) -> Tensor:
    if isinstance(offset, Tensor):
        return pos + offset.to(pos.device).unsqueeze(1)  # (B, T)
    return pos + offset if offset else pos


def _subsets(keys: Tensor, size: int) -> Tensor:
    """Return `(B, size)` numbers below L, those of the largest of the random `keys (B, L)`, in
    order: any subset alike."""
    return keys.topk(size, dim=1).indices.sort(dim=1).values
